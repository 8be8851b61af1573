"""Values of one line of the event log, taken out by name and type: what is not as it should be is refused. Pure.

Knows no event. Names and texts come from servers and users: they are cut here, so that whoever keeps one keeps little.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from scavenge.core.naming import one_line

NAME_LONGEST = 300
"""How much of a name is kept: two that differ only further on are one."""
TEXT_LONGEST = 300
LARGEST = 1e12
"""A count or a duration beyond it is a mistake, and would spoil every sum."""
LATEST_S = 253_402_300_799.0
"""The end of the year 9999, beyond which no date can be shown."""

Table = Mapping[str, object]


class BadReading(ValueError):
    """A line has no such value, or one of another type."""


def moment(table: Table) -> float:
    """The line's ``time``, in seconds since 1970; without a zone it is UTC. Raises :class:`BadReading`."""
    text = table.get("time")
    if not isinstance(text, str):
        raise BadReading("time")
    try:
        found = datetime.fromisoformat(text)
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadReading("time") from None
    return _within("time", seconds, LATEST_S)


def name(table: Table, key: str) -> str:
    """A name that things are told apart by, cut to :data:`NAME_LONGEST`. Raises :class:`BadReading`."""
    found = table.get(key)
    if not isinstance(found, str):
        raise BadReading(key)
    return found[:NAME_LONGEST]


def text(table: Table, key: str) -> str:
    """A text to be shown, on one line and cut. Raises :class:`BadReading`."""
    found = table.get(key)
    if not isinstance(found, str):
        raise BadReading(key)
    return one_line(found[: 10 * TEXT_LONGEST], TEXT_LONGEST)


def number(table: Table, key: str) -> float:
    """A number from 0 to :data:`LARGEST`. Raises :class:`BadReading`."""
    found = table.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise BadReading(key)
    return _within(key, found, LARGEST)


def optional_number(table: Table, key: str) -> float | None:
    """The same where it may be null, or not be there. Raises :class:`BadReading`."""
    return None if table.get(key) is None else number(table, key)


def count(table: Table, key: str) -> int:
    """A whole number from 0 to :data:`LARGEST`. Raises :class:`BadReading`."""
    found = table.get(key)
    if isinstance(found, bool) or not isinstance(found, int):
        raise BadReading(key)
    return int(_within(key, found, LARGEST))


def optional_count(table: Table, key: str) -> int | None:
    """The same where it may be null, or not be there. Raises :class:`BadReading`."""
    return None if table.get(key) is None else count(table, key)


def optional_figure(table: Table, key: str) -> float | None:
    """Any finite number; or null, or nothing. Raises :class:`BadReading`."""
    found = table.get(key)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not -LARGEST <= found <= LARGEST:
        raise BadReading(key)
    return float(found)


def flag(table: Table, key: str) -> bool:
    """A boolean. Raises :class:`BadReading`."""
    found = table.get(key)
    if not isinstance(found, bool):
        raise BadReading(key)
    return found


def inner(table: Table, key: str) -> dict[str, Any]:
    """A table in the table. Raises :class:`BadReading`."""
    found = table.get(key)
    if not isinstance(found, dict):
        raise BadReading(key)
    return found


def tables(table: Table, key: str) -> list[dict[str, Any]]:
    """A list of tables. Raises :class:`BadReading`."""
    found = table.get(key)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise BadReading(key)
    return found


def _within(key: str, found: float, most: float) -> float:
    if not 0 <= found <= most:  # nor is NaN
        raise BadReading(key)
    return found
