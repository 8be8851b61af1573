"""Which endpoints there are: listings of several sources become joins, changes and departures. Pure.

A source's listing is a fact only where it is readable, so:

- a bad row keeps what is known of the endpoint it speaks of. One that does not even tell whom it speaks of keeps the
  endpoint that is missing; where more are missing than there are such rows, they drain, and none of them is gone;
- a row that vanished makes its endpoint drain at once, and is gone when two listings of that source in a row lack it;
- a listing without any row has no effect until that source's next one is empty too.

Where two sources list the same endpoint, the first of them wins; one from whose listing it has vanished gives way to
one that lists it. The source is one of an endpoint's settings, so a change of hands is a :class:`Changed`.

Invariant: an endpoint is present exactly while some source's book has it, and every difference between two moments is
reported once, as one :data:`Change`.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import attrs

from scavenge.errors import Problem
from scavenge.listings import CheckedListing
from scavenge.types import Endpoint, EndpointId, Url

MISSING_UNTIL_GONE = 2
"""Listings in a row that must lack an endpoint before it counts as removed."""

Name: TypeAlias = tuple[EndpointId, Url]


@attrs.frozen
class Added:
    """An endpoint is listed that was not."""

    endpoint: Endpoint


@attrs.frozen
class Changed:
    """A listed endpoint has other settings; ``keys`` names what differs. ``draining`` is one of them."""

    endpoint: Endpoint
    keys: tuple[str, ...]


@attrs.frozen
class Removed:
    """An endpoint is no longer listed."""

    endpoint: Endpoint


Change: TypeAlias = "Added | Changed | Removed"


@attrs.define
class _Entry:
    endpoint: Endpoint
    missing: int = 0


@attrs.define
class Roster:
    """What all sources together list; of those that list an endpoint now, the first wins."""

    _books: list[dict[Name, _Entry]]
    _empty_in_row: list[int]
    _present: dict[Name, Endpoint] = attrs.field(factory=dict)

    @classmethod
    def of(cls, sources: int) -> Roster:
        """An empty roster for that many sources."""
        return cls([{} for _ in range(sources)], [0] * sources)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._present.values())

    def update(self, source: int, listing: CheckedListing) -> tuple[Change, ...]:
        """Take the next listing of a source and tell what changes by it."""
        if not listing.endpoints and not listing.bad:
            self._empty_in_row[source] += 1
            if self._empty_in_row[source] < MISSING_UNTIL_GONE:
                return ()
            self._books[source].clear()
        else:
            self._empty_in_row[source] = 0
            _enter(self._books[source], listing)
        return tuple(self._differences())

    def _differences(self) -> Iterator[Change]:
        before, after = self._present, _merge(self._books)
        self._present = after
        for name, endpoint in before.items():
            if name not in after:
                yield Removed(endpoint)
        for name, endpoint in after.items():
            old = before.get(name)
            if old is None:
                yield Added(endpoint)
            elif keys := _different_keys(old, endpoint):
                yield Changed(endpoint, keys)


def _enter(book: dict[Name, _Entry], listing: CheckedListing) -> None:
    """Take a listing into a source's book: a bad row stands for whom it names, a vague one for any of its pool."""
    listed = {(endpoint.endpoint_id, endpoint.url): endpoint for endpoint in listing.endpoints}
    named = {(row.endpoint_id, row.url) for row in listing.bad}
    vanished = [name for name in book if name not in listed and named.isdisjoint((name, (None, name[1])))]
    vanished_of = Counter(endpoint_id for endpoint_id, _ in vanished)
    vague_of = Counter(row.endpoint_id for row in listing.bad if row.url is None)
    for name in vanished:
        entry, vague = book[name], vague_of[name[0]] + vague_of[None]
        if vague >= vanished_of[name[0]]:
            continue
        entry.missing += 1
        if vague:
            entry.missing = min(entry.missing, MISSING_UNTIL_GONE - 1)
        if entry.missing >= MISSING_UNTIL_GONE:
            del book[name]
    for name, endpoint in listed.items():
        book[name] = _Entry(endpoint)


def _merge(books: Sequence[dict[Name, _Entry]]) -> dict[Name, Endpoint]:
    merged: dict[Name, Endpoint] = {}
    for missing in (False, True):
        for book in books:
            for name, entry in book.items():
                if name not in merged and bool(entry.missing) is missing:
                    merged[name] = attrs.evolve(entry.endpoint, draining=True) if missing else entry.endpoint
    return merged


def _different_keys(old: Endpoint, new: Endpoint) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(Endpoint) if getattr(old, field.name) != getattr(new, field.name))


def not_listed(endpoint_id: EndpointId, listed: Iterable[Endpoint]) -> str:
    """Why a pool has no endpoint although *listed* was: in one line, with the nearest of the ids there are."""
    ids = sorted({str(endpoint.endpoint_id) for endpoint in listed})
    if not ids:
        return "no endpoint is listed"
    nearest = difflib.get_close_matches(endpoint_id, ids, 1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"no endpoint has this id; listed are {', '.join(map(repr, ids))}{hint}"


def never_listed(endpoint_id: EndpointId | None, why: str) -> Problem:
    """What is wrong with a pool that has no endpoint where sources are asked only once; ``None``: there is no pool."""
    where = "the sources" if endpoint_id is None else f"endpoint_id {endpoint_id!r}"
    return Problem(where, f"{why}; with elastic = false nothing is asked again")
