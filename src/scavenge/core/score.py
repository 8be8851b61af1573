"""Scoring by comparison of texts: what is equal, what contains what, what matches.

It decides from the reply and the row's answer alone. It must not know where either came from. A scorer is a function
``(reply, answer, row) -> float`` that gives 1.0 or 0.0 and raises ``ValueError`` when the *answer* cannot be used,
whatever the reply: so calling it with an empty reply checks an answer before a model is asked.
"""

from __future__ import annotations

import json
import math
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Mapping

from scavenge.types import Json

REGEX_REPLY_CHARS = 100_000
"""How much of a reply, from its end, a pattern is searched in. A pattern that backtracks without end is not stopped."""

_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)
_PUNCTUATION = str.maketrans("", "", string.punctuation + "“”‘’«»…–—。，、！？：；")


def _collapse(text: str) -> str:
    return " ".join(text.split())


NORMALIZERS: Mapping[str, Callable[[str], str]] = {
    "strip": str.strip,
    "casefold": str.casefold,
    "lower": str.lower,
    "whitespace": _collapse,
    "punctuation": lambda text: text.translate(_PUNCTUATION),
    "articles": lambda text: _collapse(_ARTICLES.sub(" ", text)),
    "nfkc": lambda text: unicodedata.normalize("NFKC", text),
}
"""What ``normalize`` may name."""


def normalized(value: object, names: Iterable[str]) -> object:
    """The value after the named normalisers, in that order: texts, also in a list; anything else as it is."""
    if isinstance(value, list):
        return [normalized(item, names) for item in value]
    if isinstance(value, str):
        for name in names:
            value = NORMALIZERS[name](value)
    return value


def as_text(value: object) -> str:
    """A row's value as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def alternatives(answer: object) -> list[object]:
    """The answers that a row accepts: those of a list, else the one.

    Raises ``ValueError`` for an empty list.
    """
    if not isinstance(answer, list):
        return [answer]
    if not answer:
        raise ValueError("the answer is an empty list")
    return answer


def exact_match(reply: str, answer: object, row: Json) -> float:
    """Whether the reply is the answer (one of them, for a list)."""
    return float(any(reply == as_text(accepted) for accepted in alternatives(answer)))


def includes(reply: str, answer: object, row: Json) -> float:
    """Whether the reply contains the answer (one of them, for a list)."""
    texts = [as_text(accepted) for accepted in alternatives(answer)]
    if not all(texts):
        raise ValueError("the answer is empty, which every reply includes")
    return float(any(text in reply for text in texts))


def regex(reply: str, answer: object, row: Json) -> float:
    """Whether the answer, a regular expression (one of them, for a list), is found in the reply."""
    patterns = [_pattern(accepted) for accepted in alternatives(answer)]
    return float(any(pattern.search(reply[-REGEX_REPLY_CHARS:]) for pattern in patterns))


def _pattern(answer: object) -> re.Pattern[str]:
    text = as_text(answer)
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as exc:
        raise ValueError(f"the answer {_short(text)} is no regular expression: {exc}") from exc


def unscored(reply: str, answer: object, row: Json) -> float:
    """No score, which is no number: the reply is only kept."""
    return math.nan


def _short(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")
