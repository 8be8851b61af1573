"""The script language of the simulated fleet: ``t=30 kill ep2; t=45 busy ep1 retry_after=3``. Pure.

A script is a list of statements, one a line or separated by ``;``, with comments from ``#`` to the end of the line.
A statement is ``t=SECONDS WORD SERVER [OPTION=VALUE ...]``; seconds count from the start of the fleet. This module
decides what a script means, not what a fault does: that is :mod:`scavenge.testing.host`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeAlias

import attrs

from scavenge.errors import ConfigError, Problem


@attrs.frozen
class Kill:
    """The process dies: connections are reset, the port is closed. It stays listed."""


@attrs.frozen
class Restart:
    """The process dies, if it lives, and comes up again at the same place, healed."""


@attrs.frozen
class Join:
    """The server is listed, not draining, and up. One whose first word in the script this is starts absent."""


@attrs.frozen
class Leave:
    """The server vanishes from the listing, and lives on."""


@attrs.frozen
class Drain:
    """The server is listed as draining, and lives on."""


@attrs.frozen
class Busy:
    """New requests are turned away, with ``Retry-After`` if it is given; lasts that long unless ``for`` is given."""

    retry_after_s: float | None = None
    status: int = 429
    for_s: float | None = None


@attrs.frozen
class Freeze:
    """Sockets stay open and accept, and nothing is heard any more."""

    for_s: float | None = None


@attrs.frozen
class Slow:
    """Everything takes ``x`` times as long."""

    x: float = 2.0
    for_s: float | None = None


@attrs.frozen
class Error:
    """New requests fail with ``status``, each with the probability ``rate``."""

    status: int = 500
    rate: float = 1.0
    for_s: float | None = None


@attrs.frozen
class Garbage:
    """New requests are answered with a page of HTML and status 200."""

    for_s: float | None = None


@attrs.frozen
class Abort:
    """The replies in the making end at once, with finish reason ``abort`` and the text so far, unless frozen."""


@attrs.frozen
class Heal:
    """Busy, freeze, slow, error and garbage are over."""


Fault: TypeAlias = Kill | Restart | Join | Leave | Drain | Busy | Freeze | Slow | Error | Garbage | Abort | Heal


@attrs.frozen
class Step:
    """One statement: ``at_s`` seconds after the start, ``fault`` happens to the server of that name."""

    at_s: float
    server: str
    fault: Fault


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", re.ASCII)


def _number(low: float, high: float = math.inf) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not (low <= value <= high and math.isfinite(value)):
            wanted = f"of at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            raise ValueError(f'expected a number {wanted}, got "{text}"')
        return value

    return read


def _status(*, lowest: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch("[0-9]{3}", text, re.ASCII) or not lowest <= int(text) <= 599:
            raise ValueError(f'expected an HTTP status from {lowest} to 599, got "{text}"')
        return int(text)

    return read


@attrs.frozen
class _Word:
    make: Callable[..., Fault]
    options: Mapping[str, tuple[str, Callable[[str], float]]] = attrs.field(factory=dict)
    """What is written -> the field's name and how its value is read."""


_FOR = {"for": ("for_s", _number(0))}
_WORDS: Mapping[str, _Word] = {
    "kill": _Word(Kill),
    "restart": _Word(Restart),
    "join": _Word(Join),
    "leave": _Word(Leave),
    "drain": _Word(Drain),
    "busy": _Word(
        Busy, {"retry_after": ("retry_after_s", _number(0)), "status": ("status", _status(lowest=400)), **_FOR}
    ),
    "freeze": _Word(Freeze, _FOR),
    "slow": _Word(Slow, {"x": ("x", _number(0.001, 1_000_000)), **_FOR}),
    "error": _Word(Error, {"status": ("status", _status(lowest=400)), "rate": ("rate", _number(0, 1)), **_FOR}),
    "garbage": _Word(Garbage, _FOR),
    "abort": _Word(Abort),
    "heal": _Word(Heal),
}


def parse_script(text: str, servers: Collection[str]) -> tuple[Step, ...]:
    """The steps of a script in the order of their time; statements of the same time keep their order.

    Raises :class:`scavenge.errors.ConfigError` with all that is wrong, each with its line and column.
    """
    steps: list[Step] = []
    problems: list[Problem] = []
    for where, statement in _statements(text):
        try:
            steps.append(_read_statement(statement, servers))
        except ValueError as error:
            problems.append(Problem(f"script:{where}", str(error)))
    if problems:
        raise ConfigError(problems)
    return tuple(sorted(steps, key=lambda step: step.at_s))


def starts_absent(server: str, steps: Collection[Step]) -> bool:
    """Whether a server is neither up nor listed at the start, because the script lets it join later."""
    first = next((step.fault for step in steps if step.server == server), None)
    return isinstance(first, Join)


def _statements(text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        code = line.partition("#")[0]
        for match in re.finditer(r"[^;]+", code):
            if statement := match[0].strip():
                column = match.start() + len(match[0]) - len(match[0].lstrip()) + 1
                yield f"{number}:{column}", statement


def _read_statement(statement: str, servers: Collection[str]) -> Step:
    parts = statement.split()
    if not parts[0].startswith("t="):
        raise ValueError(f'expected "t=SECONDS WORD SERVER", got "{statement}"')
    at_s = _read_value("t", parts[0].removeprefix("t="), _number(0))
    if len(parts) < 3:
        raise ValueError(f'expected a word and a server after "{parts[0]}", as in "{parts[0]} kill {min(servers)}"')
    word = _WORDS.get(parts[1])
    if word is None:
        raise ValueError(_unknown("word", parts[1], _WORDS))
    if parts[2] not in servers:
        raise ValueError(_unknown("server", parts[2], servers))
    return Step(at_s, parts[2], word.make(**_read_options(word, parts[1], parts[3:])))


def _read_options(word: _Word, name: str, parts: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in parts:
        option, equals, value = part.partition("=")
        if not word.options:
            raise ValueError(f'{name} takes no options, got "{part}"')
        if option not in word.options:
            raise ValueError(_unknown(f"option of {name}", option, word.options))
        if not equals:
            raise ValueError(f'expected "{option}=VALUE", got "{part}"')
        field, read = word.options[option]
        if field in found:
            raise ValueError(f'option "{option}" is given twice')
        found[field] = _read_value(option, value, read)
    return found


def _read_value(name: str, text: str, read: Callable[[str], float]) -> float:
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _unknown(what: str, got: str, valid: Collection[str]) -> str:
    near = difflib.get_close_matches(got, valid, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"expected one of {', '.join(sorted(valid))}"
    return f'unknown {what} "{got}", {hint}'
