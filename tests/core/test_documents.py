"""TOML and JSON from bytes, and the shape of an endpoints file."""

from __future__ import annotations

import pytest

from scavenge.core.documents import DocumentError, endpoint_tables, parse_json, parse_toml


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"a = 1\nb = @\n", "line 2, column 5: invalid value"),
        (b"a = 1\nb = \xff\n", "line 2: byte 0xff is not UTF-8"),
        (b"\xef\xbb\xbfa = 1", "byte order mark"),
        ("a = 1".encode("utf-16"), "UTF-16"),
        (b"a = " + b"9" * 5000, "limit"),
        (b"a = " + b"[" * 5000, "nested"),
        (b"a = " + b"[" * 100 + b"]" * 100, "nested more than 100 deep"),
        (b"a." * 100 + b"a = 1", "nested more than 100 deep"),
    ],
)
def test_what_is_no_toml_says_where_and_why_on_one_line(data, says):
    with pytest.raises(DocumentError, match=says) as caught:
        parse_toml(data)
    assert str(caught.value).isprintable()


def test_nesting_as_deep_as_allowed_is_read():
    assert parse_toml(b"a = " + b"[" * 99 + b"]" * 99)


def test_toml_1_1_is_read():
    assert parse_toml(b'a = {\n  b = "\\e",\n}\n') == {"a": {"b": "\x1b"}}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{\n"a": @}', "line 2, column 6: expecting value"),
        (b'{"a": 1} x', "line 1, column 10: extra data"),
        (b'{"a": "\xff"}', "line 1: byte 0xff is not UTF-8"),
        (b"\xef\xbb\xbf[]", "byte order mark"),
        ("[]".encode("utf-16"), "UTF-16"),
        (b"[" + b"9" * 5000 + b"]", "limit"),
        (b"[" * 5000, "nested|recursion"),
        (b"[" * 500_000, "nested|recursion"),
        (b"[" * 101 + b"]" * 101, "nested more than 100 deep"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b'[{"a": 1, "a": 1}]', "the key a stands twice in one table"),
        (b'[{"a b": 1, "a\\u0020b": 1}]', 'the key "a b" stands twice in one table'),
        (b'["\\ud83d"]', "half of a character"),
        (b'{"\\uDC00": 1}', "half of a character"),
        (b"", "line 1, column 1: expecting value"),
    ],
)
def test_what_is_no_json_says_where_and_why_on_one_line(data, says):
    with pytest.raises(DocumentError, match=says) as caught:
        parse_json(data)
    assert str(caught.value).isprintable()


def test_json_is_read_with_whole_characters():
    assert parse_json(b'{"a": ["\\ud83d\\ude00", 1.5, null]}') == {"a": ["\U0001f600", 1.5, None]}
    assert parse_json(b"[" * 100 + b"]" * 100)


@pytest.mark.parametrize("document", [{}, {"endpoint": []}])
def test_no_endpoint_is_an_empty_listing(document):
    assert endpoint_tables(document) == []


def test_entries_are_passed_on_unchecked():
    assert endpoint_tables({"endpoint": [{"url": 3}, 4]}) == [{"url": 3}, 4]


def test_an_unknown_key_is_named_with_the_nearest():
    with pytest.raises(DocumentError, match=r'^unknown key endpoints; did you mean "endpoint"\?$'):
        endpoint_tables({"endpoints": []})


def test_a_single_table_is_told_how_to_be_a_list():
    with pytest.raises(DocumentError, match=r"\[\[endpoint\]\]"):
        endpoint_tables({"endpoint": {"url": "x"}})
