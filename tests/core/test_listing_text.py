"""Listings in JSON and TOML: what is one, and that nothing else ever passes for one."""

from __future__ import annotations

import json

import pytest
import tomli_w
from hypothesis import example, given
from hypothesis import strategies as st

from scavenge.core.documents import DocumentError
from scavenge.core.listing_text import listing_tables

ROW = {"endpoint_id": "a", "model": "m", "url": "http://h/v1"}
OTHER = {**ROW, "url": "http://i/v1", "headers": {"x": "1"}}
TOML = tomli_w.dumps({"endpoint": [ROW, OTHER]}).encode()
TABLE = json.dumps({"endpoint": [ROW, OTHER]}).encode()
LIST = json.dumps([ROW, OTHER]).encode()


def error_of(data: bytes, content_type: str = "", *, whole: bool = True) -> str:
    with pytest.raises(DocumentError) as caught:
        listing_tables(data, content_type, whole=whole)
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize(
    "data", [TOML, TABLE, LIST, b" \n\t" + LIST, b"# here\n" + TOML, json.dumps([ROW, OTHER], indent=1).encode()]
)
@pytest.mark.parametrize("content_type", ["", "text/plain; charset=utf-8", "application/octet-stream", "text/html"])
def test_what_it_is_is_seen_by_the_bytes_where_nobody_says(data, content_type):
    assert listing_tables(data, content_type) == [ROW, OTHER]


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=UTF-8", "text/json", "application/x+json"]
)
def test_json_is_read_as_that_where_it_is_called_so(kind):
    assert listing_tables(TABLE, kind) == listing_tables(LIST, kind) == [ROW, OTHER]
    assert error_of(TOML, kind).startswith("line 1, column ")


@pytest.mark.parametrize("kind", ["application/toml", "text/x-toml; charset=utf-8"])
def test_toml_is_read_as_that_where_it_is_called_so(kind):
    assert listing_tables(TOML, kind) == [ROW, OTHER]
    assert error_of(TABLE, kind).startswith("line 1, column ")


@pytest.mark.parametrize("data", [b"endpoint = []", b'{"endpoint": []}', b"[]", b" [ ]\n"])
def test_no_endpoint_has_to_be_said(data):
    assert listing_tables(data) == []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", 'empty; no endpoint is `{"endpoint": []}` in JSON, `endpoint = []` in TOML'),
        (b" \r\n", "empty; "),
        (b"# error: no backend\n", "says nothing of `endpoint`"),
        (b"{}", "says nothing of `endpoint`"),
        (b'{"error": "no"}', "unknown key error"),
        (b'{"endpoints": []}', 'did you mean "endpoint"'),
        (b'{"endpoint": null}', "`endpoint` is a list of tables"),
        (b'{"endpoint": {"url": "x"}}', "`endpoint` is a list of tables"),
        (b'[{"error": "no"}]', "a list in which nothing has a `url`"),
        (b'[["url"]]', "unknown key url"),
        (b'[{"url": "x"}', "line 1, column 14: "),
        (b'{"endpoint": [], "endpoint": []}', "the key endpoint stands twice"),
        (
            b"<!doctype html><title>Log\nin</title>",
            "this is an HTML page with the title 'Log\\nin'; expected a listing",
        ),
        (b"\n<Error><Code>AccessDenied</Code></Error>", "this is an HTML page: <Error>"),
        (b"upstream connect error", "line 1, column 10: "),
        (b"\xef\xbb\xbf[]", "byte order mark"),
        ("[]".encode("utf-16"), "UTF-16"),
    ],
)
def test_what_is_no_listing_says_why(data, says):
    assert says in error_of(data)


@pytest.mark.parametrize("data", [b"3", b"null", b'"endpoint"', b'["a"]'])
def test_json_of_another_shape_is_no_listing(data):
    assert "a `url`" in error_of(data, "application/json") or "expected a table with `endpoint`" in error_of(
        data, "application/json"
    )


def test_one_entry_with_a_url_makes_a_list_a_listing_and_the_others_are_rows_to_be_checked():
    assert listing_tables(b'[{"api_base_url": "x"}, {"a": 1}, 3]') == [{"api_base_url": "x"}, {"a": 1}, 3]


def test_another_charset_than_utf_8_is_told_of_where_it_matters():
    text = json.dumps([{**ROW, "model": "é"}], ensure_ascii=False)
    assert listing_tables(LIST, "application/json; charset=latin-1") == [ROW, OTHER]
    assert listing_tables(text.encode(), 'application/json; charset="UTF-8"') == [{**ROW, "model": "é"}]
    assert (
        error_of(text.encode("latin-1"), "application/json; Charset=ISO-8859-1") == "written in ISO-8859-1; send UTF-8"
    )
    assert "is not UTF-8" in error_of(text.encode("latin-1"), "application/json")


def test_toml_that_may_have_been_cut_is_no_listing_and_json_shows_its_end_itself():
    assert "cannot be told from a cut" in error_of(TOML, whole=False)
    assert listing_tables(LIST, whole=False) == [ROW, OTHER]


@pytest.mark.parametrize("data", [TABLE, LIST])
def test_json_that_was_cut_is_never_a_listing(data):
    for length in range(len(data)):
        error_of(data[:length])


@pytest.mark.parametrize("content_type", ["", "application/toml"])
def test_toml_that_may_have_been_cut_is_never_a_listing(content_type):
    for length in range(len(TOML) + 1):
        error_of(TOML[:length], content_type, whole=False)


TYPES = (
    st.sampled_from(["", "application/json", "application/toml", "text/plain; charset=latin-1", "text/html"])
    | st.text()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["endpoint", "url", "a"]) | st.text(), inner),
)


def check_total(data: bytes, content_type: str, *, whole: bool) -> None:
    try:
        said: object = listing_tables(data, content_type, whole=whole)
    except DocumentError as exc:
        said = str(exc)
    assert isinstance(said, list) or (said.isprintable() and len(said) < 1000)


@given(st.binary() | st.text().map(str.encode), TYPES, st.booleans())
@example(b"endpoint = [" * 5000, "", True)
@example(b'{"endpoint":' * 5000, "", True)
@example(b"[{" * 5000, "", True)
@example(b"endpoint = [1979-05-27]", "", True)
def test_any_bytes_are_a_listing_or_a_document_error(data, content_type, whole):
    check_total(data, content_type, whole=whole)


@given(JSON, TYPES, st.booleans())
def test_any_json_is_a_listing_or_a_document_error(value, content_type, whole):
    check_total(json.dumps(value).encode(), content_type, whole=whole)


@given(st.sampled_from([TOML, TABLE, LIST]), st.data())
def test_any_damage_leaves_a_listing_or_a_document_error(text, data):
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(at, len(text)))
    check_total(text[:at] + data.draw(st.binary(max_size=8)) + text[cut:], "", whole=True)
