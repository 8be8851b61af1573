"""Scoring by number: the last number of the reply against the answer's.

It decides what is a number in a text, in the ways people and models write them. Values are compared as ``Decimal``,
so that 0.1 is 0.1. It must not know what a number stands for: units and currencies are passed over, never converted.

It works in three steps: LaTeX and typography are rewritten to plain notation (``_REWRITES``), runs of digits with their
separators are found (``_NUMBER``), and each run is read by its structure (``_digits``).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, localcontext

import attrs

from scavenge.core.score import alternatives, as_text
from scavenge.types import Json

NUMERIC_REPLY_CHARS = 20_000
"""How much of a text, from its end, is searched: the last number is there."""
MAX_EXPONENT = 400
"""Powers of ten beyond the range of a float are nobody's result, but a way to fill the memory."""

_CONTEXT = Context(prec=60)
"""Enough digits to tell fractions apart; comparisons and unary operators aside, nothing is rounded."""


@attrs.frozen
class Number:
    """A number as it was stated; ``percent`` says whether a percent sign stood behind it."""

    value: Decimal
    percent: bool = False

    def agrees_with(self, other: Number) -> bool:
        """Whether both state the same; 50% is 50 as well as 0.5 to a number without the sign."""
        if self.value == other.value:
            return True
        if self.percent == other.percent:
            return False
        stated, plain = (self, other) if self.percent else (other, self)
        return stated.value.scaleb(-2) == plain.value


def numeric(reply: str, answer: object, row: Json) -> float:
    """Whether the last number of the reply equals the answer (one of them, for a list)."""
    expected = [_expected(accepted) for accepted in alternatives(answer)]
    found = last_number(reply)
    return float(found is not None and any(found.agrees_with(number) for number in expected))


def _expected(answer: object) -> Number:
    text = as_text(answer)
    found = None if isinstance(answer, bool) else last_number(text)
    if found is None:
        raise ValueError(f"there is no number in the answer {text[:60]!r}")
    return found


def last_number(text: str) -> Number | None:
    """The number that a text comes to: the last one in its last ``\\boxed{}`` or ``####`` line, else in all of it."""
    stated = _stated(text[-NUMERIC_REPLY_CHARS:])
    for pattern, replacement in _REWRITES:
        stated = pattern.sub(replacement, stated)
    for match in reversed(list(_NUMBER.finditer(stated))):
        if (value := _value(match)) is not None:
            return Number(value, percent=match["percent"] is not None)
    return None


# --- where the result is stated

_HASHES = re.compile(r"^[ \t]*#{4}[ \t]*([-+$€£]?[\d.,]*\d[ \t]*%?)[ \t]*\.?[ \t]*$", re.MULTILINE)
_BOXED = "\\boxed{"


def _stated(text: str) -> str:
    """The part of a text that it marks as its result, or all of it."""
    hashes = max(_HASHES.finditer(text), key=lambda match: match.start(), default=None)
    boxed = text.rfind(_BOXED)
    if hashes is not None and hashes.start() > boxed:
        return hashes[1]
    return text if boxed < 0 else boxed_content(text, boxed)


def boxed_content(text: str, start: int) -> str:
    """What stands inside the ``\\boxed{...}`` that begins at ``start``; to the end where it is not closed."""
    depth = 1
    begin = start + len(_BOXED)
    for index in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return text[begin:index]
    return text[begin:]


# --- one notation for all


def _vulgar(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", match[0]).replace("\u2044", "/")


def _lowered(match: re.Match[str]) -> str:
    return "10^" + unicodedata.normalize("NFKC", match[1]).replace("\u2212", "-")


_POWER = r"10\s?(?:\^|\*\*)\s?\{?\s?([-+]?\d+)\s?\}?"
_REWRITES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile("[\u2212\u2010-\u2013\ufe63\uff0d]"), "-"),
    (re.compile(r"(?<=\d)(?:\{,\}|\\[,;:! ])(?=\d)"), "_"),  # LaTeX thousands
    (re.compile(r"_{2,}"), " "),  # bold in Markdown
    (re.compile(r"(?<=\d)\s?(?=\\[dt]?frac|[¼-¾⅐-⅞])"), " "),  # mixed numbers
    (re.compile(r"\\[dt]?frac\s?\{\s?(-?\d+(?:\.\d+)?)\s?\}\s?\{\s?(\d+(?:\.\d+)?)\s?\}"), r"\1/\2"),
    (re.compile(r"\\[dt]?frac\s?(\d)\s?(\d)"), r"\1/\2"),
    (re.compile("[¼-¾⅐-⅞]"), _vulgar),
    (re.compile(r"(?<!\d)10([⁻⁺]?[⁰¹²³⁴-⁹]+)"), _lowered),
    (re.compile(rf"(?<=\d)\s?(?:[×xX*·⋅]|\\times|\\cdot)\s?{_POWER}"), r"e\1"),
    (re.compile(rf"(?<![\w.,^]){_POWER}"), r"1e\1"),
    (re.compile(r"(?<=[\w)\]}])(?:\^|\*\*(?!\d*\*))\s?(?:\{[^{}]*\}|-?\d+)"), ""),  # other exponents: m^2
    (re.compile(r"\\?[$€£¥₹₩₽₺₫₿¢]\s?"), ""),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"(?<=\d)\s?/\s?(?=\d)"), "/"),
)

_NUMBER = re.compile(
    r"""
    (?:(?<![A-Za-z\d)\]}%-])(?P<sign>-))?           # a minus, not the hyphen of 10-20
    (?:(?<![A-Za-z\d])(?P<point>[.])(?=\d))?        # .5
    (?<![A-Za-z])(?<![A-Za-z\d]_)(?<!\d)            # neither H2O nor x_2
    (?: (?P<whole>\d+)\s(?P<over>\d+)/(?P<under>\d+)(?![\d/])
      | (?P<run>\d+(?:[,.'’_\ \u00a0\u2009\u202f]\d+)*)
        (?:/(?P<bottom>\d+(?:[.]\d+)?)(?![\d/]))?
        (?:[eE](?P<exponent>[+-]?\d+))?
    )
    (?P<percent>\s?(?:%|per\ ?cent\b))?
    """,
    re.VERBOSE,
)


# --- reading one match


def _value(match: re.Match[str]) -> Decimal | None:
    try:
        with localcontext(_CONTEXT):
            value = _mixed(match) if match["whole"] is not None else _simple(match)
    except DecimalException:  # division by zero, an exponent out of range
        return None
    return value.copy_negate() if match["sign"] else value


def _mixed(match: re.Match[str]) -> Decimal:
    part = Decimal(match["over"]) / Decimal(match["under"])
    return part + Decimal(match["whole"]) if part < 1 else part


def _simple(match: re.Match[str]) -> Decimal:
    value = Decimal(f"0.{match['run']}" if match["point"] and match["run"].isdecimal() else _digits(match["run"]))
    if match["bottom"] is not None:
        value /= Decimal(match["bottom"])
    if match["exponent"] is not None:
        exponent = match["exponent"]
        if len(exponent) > len(str(MAX_EXPONENT)) + 1 or abs(int(exponent)) > MAX_EXPONENT:
            raise DecimalException(f"exponent {exponent[:20]} is out of range")
        value = value.scaleb(int(exponent))
    return value


def _digits(run: str) -> str:
    """Read a run of digits and separators: 1,234.5 and 1.234,5 and 1 234 and 12,34,567; a list is its last member."""
    parts = re.split(r"\D", run)
    marks = re.findall(r"\D", run)
    if not marks:
        return run
    if _grouped(parts, marks) and marks != ["."]:  # one point alone is a decimal point
        return "".join(parts)
    if marks[-1] in ".," and marks[-1] not in marks[:-1] and (len(marks) == 1 or _grouped(parts[:-1], marks[:-1])):
        return "".join(parts[:-1]) + "." + parts[-1]
    last = re.split(r"[^\d.]", run)[-1]
    return last if last.count(".") < 2 else parts[-1]


def _grouped(parts: list[str], marks: list[str]) -> bool:
    """Whether the marks between the parts can be thousands separators."""
    if len(set(marks)) != 1 or len(parts[-1]) != 3 or len(parts[0]) > 3 or parts[0].startswith("0"):
        return False
    sizes = {len(part) for part in parts[1:-1]}
    return sizes <= {3} or (marks[0] == "," and sizes == {2} and len(parts[0]) <= 2)
