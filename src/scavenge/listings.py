"""Frozen values of what endpoint sources say: rows as they come, and what became of them. No decisions here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import attrs

from scavenge.errors import Problem
from scavenge.types import Endpoint, EndpointId, Json, Url


@attrs.frozen
class EndpointSpec:
    """One endpoint as a source delivers it: raw values with the keys of ``endpoints.toml``, checked by the poller.

    A field left at ``None`` is a key that is not there. ``drain_deadline`` is an aware UTC datetime: when the server
    will be taken away (a preemption notice).
    """

    endpoint_id: object = None
    model: object = None
    url: object = None
    key: object = None
    max_concurrent: object = None
    type: object = None
    headers: object = attrs.field(default=None, repr=False)
    draining: object = None
    proxy: object = attrs.field(default=None, repr=False)
    drain_deadline: datetime | None = None


UNPLACED = "listing"
"""The place of a listing whose source names none."""


@attrs.frozen
class Listing:
    """What a source says there is: one entry an endpoint, either an :class:`EndpointSpec` or a raw table.

    ``where`` names the place of the entries in messages (a file's name); entry *i* is ``{where}: endpoint[i]``. A
    source that names none has its own name there.
    """

    endpoints: Sequence[EndpointSpec | Json]
    where: str = UNPLACED


def placed(listing: Listing, source: str) -> Listing:
    """The listing with the name of its *source* for its place, where it names none itself."""
    return attrs.evolve(listing, where=source) if listing.where == UNPLACED else listing


@attrs.frozen
class PoolMode:
    """What all endpoints of a pool have in common: the model, and whether they set ``max_concurrent``.

    ``capped`` is ``None`` while no endpoint is there that says so.
    """

    model: str
    capped: bool | None


@attrs.frozen
class BadRow:
    """An entry of a listing that is wrong, and as much as it tells of the endpoint it speaks of.

    ``endpoint_id`` and ``url`` are ``None`` where the entry has no valid one; entry ``index`` counts from 0. One
    that is ``incomplete`` lacks what its source does not know of this server, or not yet; nobody wrote it down wrongly.
    """

    problems: tuple[Problem, ...]
    endpoint_id: EndpointId | None
    url: Url | None
    index: int
    incomplete: bool = False


@attrs.frozen
class CheckedListing:
    """A listing taken apart into what can be used and what is wrong, both in the order of the listing."""

    endpoints: tuple[Endpoint, ...] = ()
    bad: tuple[BadRow, ...] = ()
