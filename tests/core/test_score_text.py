"""Scoring by comparison of texts, and the normalisers."""

from __future__ import annotations

import math

import pytest

from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.core.score import (
    NORMALIZERS,
    REGEX_REPLY_CHARS,
    as_text,
    exact_match,
    includes,
    normalized,
    regex,
    unscored,
)
from scavenge.types import CapChanged


@pytest.mark.parametrize(
    ("reply", "answer", "score"),
    [
        ("4", "4", 1.0),
        ("4", 4, 1.0),
        ("true", True, 1.0),
        ("4.5", 4.5, 1.0),
        ("", "", 1.0),
        ("5", "4", 0.0),
        ("b", ["a", "b"], 1.0),
        ("c", ["a", "b"], 0.0),
    ],
)
def test_exact_match_compares_the_whole_reply(reply: str, answer: object, score: float) -> None:
    assert exact_match(reply, answer, {}) == score


@pytest.mark.parametrize(
    ("reply", "answer", "score"), [("it is 42.", 42, 1.0), ("it is 4", "42", 0.0), ("a b", ["c", "b"], 1.0)]
)
def test_includes_looks_for_the_answer_in_the_reply(reply: str, answer: object, score: float) -> None:
    assert includes(reply, answer, {}) == score


@pytest.mark.parametrize("answer", ["", [], ["a", ""]])
def test_an_answer_that_every_reply_includes_is_refused(answer: object) -> None:
    with pytest.raises(ValueError, match="empty"):
        includes("a", answer, {})


@pytest.mark.parametrize(
    ("reply", "answer", "score"),
    [("the 4th", r"\d", 1.0), ("fourth", r"\d", 0.0), ("Paris", "(?i)paris", 1.0), ("x", ["a", "x"], 1.0)],
)
def test_regex_searches_for_the_answer(reply: str, answer: object, score: float) -> None:
    assert regex(reply, answer, {}) == score


@pytest.mark.parametrize("answer", ["(", "a{99999999999999999999}", "(" * 5000, "*" * 100])
def test_an_answer_that_is_no_pattern_is_refused_in_few_words(answer: str) -> None:
    with pytest.raises(ValueError, match="no regular expression") as caught:
        regex("", answer, {})
    assert len(str(caught.value)) < 250


def test_a_pattern_sees_the_end_of_a_long_reply() -> None:
    assert regex("start" + "x" * REGEX_REPLY_CHARS, "start", {}) == 0.0


def test_no_score_is_no_number() -> None:
    assert math.isnan(unscored("a", "b", {}))


@pytest.mark.parametrize(
    ("name", "text", "result"),
    [
        ("strip", " a b\n", "a b"),
        ("casefold", "Straße", "strasse"),
        ("lower", "Straße", "straße"),
        ("whitespace", " a \n b ", "a b"),
        ("punctuation", "“a, b.”", "a b"),
        ("articles", "The cat and a dog", "cat and dog"),
        ("nfkc", "４２", "42"),
    ],
)
def test_each_normaliser_does_what_its_name_says(name: str, text: str, result: str) -> None:
    assert NORMALIZERS[name](text) == result


def test_normalisers_go_in_order_through_texts_and_lists_only() -> None:
    assert normalized([" A ", 3], ["strip", "casefold"]) == ["a", 3]
    assert normalized(None, ["strip"]) is None
    assert normalized(" A ", []) == " A "


def test_a_value_that_is_no_text_is_its_json() -> None:
    assert [as_text(value) for value in ("é", 1, None, {"ä": [True]})] == ["é", "1", "null", '{"ä": [true]}']


def test_the_fixed_policy_never_moves() -> None:
    policy = Fixed(FixedSettings(limit=3))
    policy.observe(object(), 1.0)
    assert (policy.limit(0.0), policy.limit(1e9), policy.next_wake_at(0.0)) == (3, 3, None)
    assert policy.limit(0.0) == 3
    open_ended = Fixed(FixedSettings())
    assert open_ended.limit(0.0) == 64
    for cap, limit in ((128, 128), (5, 5), (None, 64)):
        open_ended.observe(CapChanged(cap), 1.0)
        assert open_ended.limit(1.0) == limit


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "8"])
def test_a_fixed_limit_is_a_positive_integer(limit: object) -> None:
    with pytest.raises(ValueError, match="expected an integer"):
        FixedSettings(limit=limit)  # type: ignore[arg-type]  # on purpose
