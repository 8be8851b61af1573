"""How names and values appear in messages."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.naming import key_name, listed, nearest, one_line, quoted, shown, suggestion


def test_the_nearest_name_is_found_whatever_its_case():
    assert nearest("Max_Retires", ["max_lost", "max_retries"]) == "max_retries"


def test_a_name_that_is_like_none_has_no_nearest():
    assert nearest("zebra", ["max_lost", "max_retries"]) is None


@pytest.mark.parametrize(
    ("valid", "text"),
    [
        (["tide", "fixed"], 'did you mean "tide"?'),
        (["pi", "aimd"], 'valid: "aimd", "pi"'),
        ([], "there are none"),
    ],
)
def test_a_suggestion_is_the_nearest_name_or_all_names(valid, text):
    assert suggestion("tidy", valid) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("three", '"three"'),
        ('a "b"\n', '"a \\"b\\"\\n"'),
        ("\x7f\u2028", '"\\u007f\\u2028"'),
        (True, "true"),
        (False, "false"),
        (12, "12"),
        pytest.param(10**5000, "an integer of more than 120 digits", id="huge"),
        (1.5, "1.5"),
        (None, "nothing"),
        ({}, "an empty table"),
        ({"a": 1, "b c": 2}, 'a table with a, "b c"'),
        (dict.fromkeys("abcde", 1), "a table with a, b, c and 2 more"),
        ([], "an empty list"),
        ([1, 2], "a list of 2"),
        (date(2030, 1, 2), "a date (2030-01-02)"),
        (pytest, "a module (<module 'pytest' from "),
    ],
)
def test_a_value_is_shown_as_toml_would_write_it(value, text):
    assert shown(value).startswith(text)


def test_the_article_fits_the_noun():
    class Odd:
        def __str__(self) -> str:
            return "x"

    for name in ("an odd", "an EndpointSourceType", "a URL", "an unset", "a Type"):
        Odd.__name__ = name.split()[1]
        assert shown(Odd()) == f"{name} (x)"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_a_shown_value_is_one_short_printable_line(value):
    assert len(shown(value)) <= 60
    assert shown(value).isprintable()


def test_a_quoted_string_is_whole():
    assert quoted("x" * 200) == '"' + "x" * 200 + '"'


@pytest.mark.parametrize(
    ("key", "text"), [("a-b_1", "a-b_1"), ("", '""'), ("a b", '"a b"'), ("é", '"é"'), ("k" * 70, '"' + "k" * 58 + "…")]
)
def test_a_key_is_quoted_where_toml_does(key, text):
    assert key_name(key) == text


def test_a_long_list_ends_with_the_number_of_the_others():
    assert listed(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert listed(["a", "b"], most=2) == "a, b"


def test_a_text_becomes_one_bounded_line():
    assert one_line("a\r\n\x00 b\u2028c") == "a b c"
    assert one_line("abcdef", most=4) == "abc…"
