"""What replies mean to whoever asked for a listing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.documents import DocumentError
from scavenge.core.listing_reply import Validators, check_plain, is_framed, may_pass, redirected, refusal

AT = "Fri, 01 Jan 2027 00:00:0{} GMT"


@pytest.mark.parametrize(
    ("headers", "conditions"),
    [
        ({}, {}),
        ({"etag": '"a-1"'}, {"if-none-match": '"a-1"'}),
        ({"etag": 'W/"a"'}, {"if-none-match": 'W/"a"'}),
        ({"etag": "a"}, {}),
        ({"etag": '"a\x7f"'}, {}),
        ({"etag": '"' + "a" * 501 + '"'}, {}),
        ({"last-modified": AT.format(1), "date": AT.format(3)}, {"if-modified-since": AT.format(1)}),
        ({"last-modified": AT.format(1), "date": AT.format(3), "etag": '"a"'}, {"if-none-match": '"a"'}),
        ({"last-modified": AT.format(1), "date": AT.format(2)}, {}),
        ({"last-modified": AT.format(1), "date": AT.format(2), "etag": '"a"'}, {}),
        ({"last-modified": AT.format(2), "date": AT.format(1), "etag": '"a"'}, {}),
        ({"last-modified": AT.format(1)}, {}),
        ({"last-modified": "yesterday", "date": AT.format(3)}, {}),
        ({"last-modified": "yesterday", "date": AT.format(3), "etag": '"a"'}, {"if-none-match": '"a"'}),
        ({"last-modified": "Fri, 01 Jan 2027 00:00:00 -0000", "date": AT.format(3)}, {}),
    ],
)
def test_a_validator_counts_where_a_later_page_cannot_share_it(headers, conditions):
    assert Validators.of(headers).conditions() == conditions


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("b", "https://h/x/b"),
        ("/b?c=1", "https://h/b?c=1"),
        ("//i/b", "https://i/b"),
        ("https://i/b#part", "https://i/b"),
        ("?q", "https://h/x/a?q"),
        (" HTTPS://I:443/b ", "https://I:443/b"),
    ],
)
def test_a_redirect_leads_where_it_says(location, target):
    assert redirected("https://h/x/a", {"location": location}) == target


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("", "does not say where"),
        ("ftp://i/b", "redirects to ftp://i/b, which cannot be followed"),
        ("https://me:hunter2@i/b", "a URL with a user name, which cannot be followed"),
        ("https://i/b c?token=hunter2", "redirects to https://i/b c, which cannot be followed"),
        ("https://[x/b", "cannot be followed"),
        ("https://i:0/b", "cannot be followed"),
        ("http://h/b?token=hunter2", "redirects to http://h, without TLS"),
    ],
)
def test_a_redirect_that_is_not_followed_says_what_to_do_and_no_secret(location, says):
    with pytest.raises(DocumentError, match=r"^it redirects") as caught:
        redirected("https://h/x/a", {"location": location})
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)


@given(st.text())
def test_any_location_is_a_url_or_a_document_error(location):
    try:
        said = redirected("http://h/x", {"location": location})
    except DocumentError as exc:
        said = str(exc)
    assert said.isprintable()


def test_every_status_has_a_remedy_that_fits():
    assert "see `token_var`" in refusal(401, with_token=False)
    assert "refuses the token" in refusal(401, with_token=True)
    assert "see `url`" in refusal(404, with_token=False)
    assert refusal(204, with_token=False) == "HTTP 204: expected 200 and a listing"
    assert refusal(502, with_token=False) == "HTTP 502: a fault of the server"


def test_only_what_may_pass_is_left_alone():
    assert [status for status in range(200, 600) if may_pass(status)] == [429, *range(500, 600)]


def test_a_reply_is_framed_by_a_length_or_by_chunks():
    assert is_framed({"content-length": "3"})
    assert is_framed({"transfer-encoding": "chunked"})
    assert not is_framed({"connection": "close"})


def test_a_compressed_body_is_refused():
    check_plain({"content-encoding": "Identity"})
    check_plain({})
    with pytest.raises(DocumentError, match=r"^compressed \(gzip\)"):
        check_plain({"content-encoding": "GZIP"})
