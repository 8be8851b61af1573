"""The script language of the simulated fleet: ``t=30 kill ep2; t=45 busy ep1 retry_after=3``. Pure.

A script is a list of statements, one a line or separated by ``;``, with comments from ``#`` to the end of the line.
A statement is ``t=SECONDS WORD SERVER [OPTION=VALUE ...]``, or has ``fleet`` in the place of the server where it is
about the listing; seconds count from the start of the fleet. This module decides which words there are, not what a
fault does: that is :mod:`scavenge.testing.host` and :mod:`scavenge.testing.lister`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs

from scavenge.errors import ConfigError, Problem
from scavenge.testing.grammar import (
    Word,
    check_target,
    number,
    read_statement,
    statements,
    whole,
    write_statement,
)


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
class Kv:
    """The pool for contexts of a batching engine has ``x`` times its size; any other engine takes no notice."""

    x: float = 0.5
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
class Cap:
    """The server is listed with another cap, and its engine runs another number of streams; ``None``: as before.

    It outlasts a restart: ``kill``, ``cap`` and ``restart`` make a server that comes back smaller.
    """

    max_concurrent: int | None = None
    slots: int | None = None


@attrs.frozen
class Notice:
    """The server is listed as draining with a deadline ``in_s`` seconds from now, and is killed then; it stays listed.

    ``join`` takes the notice back.
    """

    in_s: float


@attrs.frozen
class Heal:
    """Busy, freeze, slow, kv, error and garbage are over; of the fleet: its source answers again, with all it has."""


@attrs.frozen
class Outage:
    """The source cannot say which endpoints there are."""

    for_s: float | None = None


@attrs.frozen
class Empty:
    """The source lists no endpoint."""

    for_s: float | None = None


@attrs.frozen
class Hang:
    """The source does not answer until this is over."""

    for_s: float | None = None


Fault: TypeAlias = (
    Kill | Restart | Join | Leave | Drain | Busy | Freeze | Slow | Kv | Error | Garbage | Abort | Cap | Notice | Heal
)
"""What happens to a server."""
ListingFault: TypeAlias = Outage | Empty | Hang | Heal
"""What happens to the listing."""


@attrs.frozen
class Step:
    """One statement: ``at_s`` seconds after the start, ``fault`` happens to that server, or to ``fleet``."""

    at_s: float
    server: str
    fault: Fault | ListingFault


_FOR = {"for": ("for_s", number(0))}
_STATUS = whole(400, 599, "an HTTP status")
_SLOTS = whole(1, 1_000_000)
_WORDS: Mapping[str, Word[Fault | ListingFault]] = {
    "kill": Word(Kill),
    "restart": Word(Restart),
    "join": Word(Join),
    "leave": Word(Leave),
    "drain": Word(Drain),
    "busy": Word(Busy, {"retry_after": ("retry_after_s", number(0)), "status": ("status", _STATUS), **_FOR}),
    "freeze": Word(Freeze, _FOR),
    "slow": Word(Slow, {"x": ("x", number(0.001, 1_000_000)), **_FOR}),
    "kv": Word(Kv, {"x": ("x", number(0.001, 1000)), **_FOR}),
    "error": Word(Error, {"status": ("status", _STATUS), "rate": ("rate", number(0, 1)), **_FOR}),
    "garbage": Word(Garbage, _FOR),
    "abort": Word(Abort),
    "cap": Word(
        Cap,
        {"max_concurrent": ("max_concurrent", _SLOTS), "slots": ("slots", _SLOTS)},
        needs=("max_concurrent", "slots"),
    ),
    "notice": Word(Notice, {"in": ("in_s", number(0))}, needs=("in",)),
    "heal": Word(Heal, of_fleet=True),
    "outage": Word(Outage, _FOR, of_server=False, of_fleet=True),
    "empty": Word(Empty, _FOR, of_server=False, of_fleet=True),
    "hang": Word(Hang, _FOR, of_server=False, of_fleet=True),
}
_NAMES: Mapping[object, str] = {word.make: name for name, word in _WORDS.items()}


def parse_script(text: str, servers: Collection[str]) -> tuple[Step, ...]:
    """The steps of a script in the order of their time; statements of the same time keep their order.

    Raises :class:`scavenge.errors.ConfigError` with all that is wrong, each with its line and column.
    """
    steps: list[Step] = []
    problems: list[Problem] = []
    for where, statement in statements(text):
        try:
            read = read_statement(statement, _WORDS, servers)
        except ValueError as error:
            problems.append(Problem(f"script:{where}", str(error)))
        else:
            steps.append(Step(read.at_s, read.target, read.made))
    if problems:
        raise ConfigError(problems)
    return in_order(steps)


def format_script(steps: Iterable[Step]) -> str:
    """The script that :func:`parse_script` reads as these steps, a statement a line.

    versionadded: 0.1
    """
    return "".join(
        write_statement(step.at_s, name, _WORDS[name], step.server, step.fault) + "\n"
        for step in steps
        for name in [_NAMES[type(step.fault)]]
    )


def read_steps(script: str | Sequence[Step], servers: Collection[str]) -> tuple[Step, ...]:
    """The steps of a script that may have been taken apart already.

    Raises :class:`scavenge.errors.ConfigError` as :func:`parse_script` does, also for a step about another server.
    """
    if isinstance(script, str):
        return parse_script(script, servers)
    problems: list[Problem] = []
    for index, step in enumerate(script):
        name = _NAMES[type(step.fault)]
        try:
            check_target(name, _WORDS[name], step.server, servers)
        except ValueError as error:
            problems.append(Problem(f"step[{index}]", str(error)))
    if problems:
        raise ConfigError(problems)
    return in_order(script)


def in_order(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Steps in the order of their time; those of the same time keep their order."""
    return tuple(sorted(steps, key=lambda step: step.at_s))


def absent_at_start(steps: Iterable[Step]) -> set[str]:
    """The servers that are neither up nor listed at the start, because the script lets them join later."""
    first: dict[str, Fault | ListingFault] = {}
    for step in steps:
        first.setdefault(step.server, step.fault)
    return {server for server, fault in first.items() if isinstance(fault, Join)}
