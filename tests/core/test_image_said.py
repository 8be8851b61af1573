"""What engines and registries say when they do not deliver. The texts are theirs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.images.said import WORDS_CHARACTERS, end_of
from scavenge.images import Broken, DeliveryEnd, Denied, DiskFull, Missing, Throttled, Unfit

KINDS = {
    "MISSING": Missing,
    "DENIED": Denied,
    "THROTTLED": Throttled,
    "DISK_FULL": DiskFull,
    "UNFIT": Unfit,
    "BROKEN": Broken,
}


def read_texts() -> dict[str, list[str]]:
    """The texts of ``engines_say.txt`` by their kinds."""
    _, *sections = re.split(
        r"^\[(\w+)\]\n", Path(__file__).with_name("engines_say.txt").read_text(), flags=re.MULTILINE
    )
    lines = (section.strip().splitlines() for section in sections[1::2])
    texts = ([line.replace("\\n", "\n").replace("\\\\", "\\") for line in section] for section in lines)
    return dict(zip(sections[::2], texts, strict=True))


TEXTS = read_texts()
PERMANENT = TEXTS["MISSING"] + TEXTS["DENIED"] + TEXTS["UNFIT"]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in KINDS for text in TEXTS[kind]])
def test_what_is_said_tells_how_it_ended(kind: str, text: str) -> None:
    for status in (None, 200, 400, 500):
        ended = end_of(status, text)
        assert isinstance(ended, KINDS[kind])
        assert _why(ended).isprintable()


@pytest.mark.parametrize("text", PERMANENT)
def test_passing_trouble_makes_no_permanent_end(text: str) -> None:
    assert isinstance(end_of(500, f"{text}: unexpected EOF"), Broken)


@pytest.mark.parametrize("text", PERMANENT + TEXTS["BROKEN"])
def test_a_full_disk_is_always_one(text: str) -> None:
    assert isinstance(end_of(500, f"{text}: no space left on device"), DiskFull)


@pytest.mark.parametrize(
    ("status", "text", "ended"),
    [
        (401, "", Denied),
        (403, "<html>blocked</html>", Denied),
        (404, "", Missing),
        (404, "  ", Missing),
        (404, "page not found", Broken),
        (404, "<html>404</html>", Broken),
        (400, "", Broken),
        (500, "", Broken),
        (503, "", Broken),
        (507, "", DiskFull),
        (429, "manifest unknown", Throttled),
        (429, "", Throttled),
        (403, "toomanyrequests: slower", Throttled),
        (404, "pull access denied for x", Denied),
        (401, "unexpected EOF", Broken),
    ],
)
def test_a_status_counts_where_the_words_say_nothing(status: int, text: str, ended: type) -> None:
    assert isinstance(end_of(status, text), ended)


def test_a_source_that_says_for_how_long_is_left_alone_for_that() -> None:
    assert end_of(429, "slow down", 30.0) == Throttled("slow down", 30.0)
    assert end_of(503, "", 5.0) == Throttled("HTTP 503", 5.0)
    assert end_of(None, "toomanyrequests: Rate exceeded", 5.0) == Throttled("toomanyrequests: Rate exceeded", 5.0)
    assert end_of(None, "toomanyrequests: Rate exceeded") == Throttled("toomanyrequests: Rate exceeded")
    assert end_of(404, "manifest unknown", 5.0) == Missing("manifest unknown")


def test_who_is_denied_hears_both_possibilities_and_a_wrong_password_only_itself() -> None:
    text = TEXTS["DENIED"][0]
    both = "(there is no such image, or it takes a login that is allowed to have it)"
    assert end_of(404, text) == Denied(f"{text} {both}")
    assert end_of(403, "") == Denied(f"HTTP 403 {both}")
    assert end_of(500, "unauthorized: incorrect username or password") == Denied(
        "unauthorized: incorrect username or password"
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("http: server gave HTTP response to HTTPS client", "insecure registries"),
        ("x509: certificate signed by unknown authority", "certificate authority known to the engine"),
        ("Proxy Authentication Required", "the engine's own settings"),
    ],
)
def test_what_the_engines_settings_can_cure_is_told_with_the_remedy(text: str, hint: str) -> None:
    assert hint in _why(end_of(500, text))


def test_no_words_are_told_as_such() -> None:
    assert end_of(None, "") == Broken("no word of what went wrong")
    assert end_of(500, "\n") == Broken("HTTP 500")


def test_words_come_in_one_line_of_bounded_length() -> None:
    assert end_of(None, "a\n\tb\x1b[0m") == Broken("a b [0m")
    assert len(_why(end_of(None, "x" * 100_000))) == WORDS_CHARACTERS


@given(st.one_of(st.none(), st.integers(100, 599)), st.text())
def test_unknown_words_never_make_an_image_missing(status: int | None, text: str) -> None:
    if text.strip():
        assert isinstance(end_of(status, text), Broken | Denied | Throttled | DiskFull)


@pytest.mark.parametrize(
    "name", ["denied", "unauthorized", "toomanyrequests", "timeout", "enospc.example/x", "unexpected-eof"]
)
def test_the_name_of_an_image_says_nothing(name: str) -> None:
    assert isinstance(end_of(404, f"manifest for {name}:1 not found: manifest unknown"), Missing)


def _why(ended: DeliveryEnd) -> str:
    assert isinstance(ended, Broken | Denied | DiskFull | Missing | Throttled | Unfit)
    return ended.why
