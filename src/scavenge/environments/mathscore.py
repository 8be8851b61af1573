"""Scoring by mathematical equivalence, with the package math-verify: the ``math`` extra, imported when first used.

math-verify's own time limits work with signals in the main thread only, so they are off; the environment that calls
this in a thread owns the deadline.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable

from scavenge.core.score import alternatives, as_text
from scavenge.types import Json

MATH_REPLY_CHARS = 20_000
"""How much of a reply, from its end, is parsed."""

_MARKED = re.compile(r"[$]|\\boxed|\\[(\[]")
"""How LaTeX says that mathematics begins; without it math-verify takes the last number of a text."""


def math_equal(reply: str, answer: object, row: Json) -> float:
    """Whether the reply's result equals the answer (one of them, for a list) as mathematics.

    Raises ``ValueError`` when there is nothing to parse in the answer, ``ImportError`` without the extra.
    """
    math_verify = importlib.import_module("math_verify")
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns at every call that its limits are off
    found = math_verify.parse(reply[-MATH_REPLY_CHARS:], parsing_timeout=None)
    golds = [_gold(as_text(accepted), math_verify.parse) for accepted in alternatives(answer)]
    return float(any(math_verify.verify(gold, found, timeout_seconds=None) for gold in golds))


def _gold(text: str, parse: Callable[..., list[object]]) -> list[object]:
    marked = text if _MARKED.search(text) else f"${text}$"
    if not (gold := parse(marked, parsing_timeout=None) or parse(text, parsing_timeout=None)):
        raise ValueError(f"there is no mathematics in the answer {text[:60]!r}")
    return gold
