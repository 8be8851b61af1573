"""What came of asking a source once: a checked listing, an error, or nothing in time.

Decides what is an answer at all, and whether its rows are right; must not know which ones are wanted. Each check that
fails raises :class:`AssertionError`, which says what was done, what came, and what to do.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeAlias

import attrs
import trio
import trio.testing

from scavenge.config.endpoint_rows import check_listing
from scavenge.core.naming import listed, one_line
from scavenge.core.urls import normal_url
from scavenge.errors import SourceError, leaves
from scavenge.listings import Listing
from scavenge.testing.source_probe import Knife, Probe, WentOn
from scavenge.types import Endpoint

CLOSED_WITHIN_S = 2.0
"""How long scavenge waits for a source that is closed or cancelled."""

MOST_MOMENTS = 50_000
"""How many moments one call may take; a source that runs hot would stop a virtual clock for ever."""


@attrs.frozen
class Answer:
    """A listing that is right in itself: its endpoints by pool and URL."""

    endpoints: Mapping[tuple[str, str], Endpoint]

    @property
    def urls(self) -> frozenset[str]:
        return frozenset(url for _, url in self.endpoints)

    def differs_from(self, wanted: Answer) -> str | None:
        """What is different, or ``None``."""
        changed = [url for (pool, url), one in self.endpoints.items() if wanted.endpoints.get((pool, url), one) != one]
        told = differing(self.urls, wanted.urls)
        if told is None and changed:
            return f"other settings of {listed(changed)}"
        return told or ("other pools" if self.endpoints.keys() != wanted.endpoints.keys() else None)


@attrs.frozen
class Raised:
    """It could not say."""

    error: Exception


@attrs.frozen
class Held:
    """No answer until the call was cancelled."""


Outcome: TypeAlias = "Answer | Raised | Held"


def told(error: BaseException) -> str:
    """An error, by the errors in it, on one line."""
    return one_line("; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error)), 500)


def differing(got: Collection[str], wanted: Collection[str]) -> str | None:
    """What *got* lacks and what it has too much, or ``None``."""
    lacks, extra = sorted({*wanted} - {*got}), sorted({*got} - {*wanted})
    parts = [f"without {listed(lacks)}"] * bool(lacks) + [f"with {listed(extra)}"] * bool(extra)
    return " and ".join(parts) or None


def normal_urls(urls: Collection[str]) -> frozenset[str]:
    """What the author expects, in normal form."""
    return frozenset(normal_url(url) for url in urls)


async def ask(source: Any, probe: Probe, knife: Knife, scope: trio.CancelScope, doing: str) -> Outcome:
    """Ask the source once, inside *scope*, which *knife* or its deadline may cancel."""
    try:
        with scope:
            return await probe.call(_listing_of(source, doing), knife)
    except WentOn:
        raise AssertionError(went_on(doing)) from None
    except _Garbage as exc:
        raise AssertionError(str(exc)) from exc.__cause__
    except Exception as exc:
        if knife.lost:  # Trio found what the code that was dropped had begun
            raise AssertionError(went_on(doing)) from None
        return Raised(exc)
    except BaseException as exc:
        if not is_sources_own(exc):
            raise
        remedy = "let it raise SourceError when it cannot say"
        raise AssertionError(f"{doing}: list_endpoints() raised {told(exc)}; {remedy}") from exc
    return Held()


def is_sources_own(error: BaseException) -> bool:
    """Whether what came out of a source's code is its own making, and no interruption from outside."""
    found = list(leaves(error))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in found):
        return False
    cancelled = any(isinstance(leaf, trio.Cancelled) for leaf in found)
    return not cancelled or trio.current_effective_deadline() > -math.inf


def went_on(doing: str) -> str:
    """The message for code that takes no cancellation."""
    return (
        f"{doing}: it was cancelled again and again and went on; never catch trio.Cancelled or BaseException for good"
    )


def swallowed(doing: str, instead: str = "") -> str:
    """The message for code that makes something else of its cancellation."""
    remedy = "let trio.Cancelled through: catch Exception, or end `except BaseException` with a bare raise"
    return f"{doing}: it swallowed its cancellation{instead}; {remedy}"


def unhurried() -> str:
    """The end of a message about time, where the clock is one that does not wait for the world; else empty."""
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, trio.testing.MockClock) and clock.autojump_threshold < math.inf:
        return "; a virtual clock does not wait for a thread or a socket: use the real one for a source that needs any"
    return ""


class _Garbage(Exception):
    """An answer that is none. Not an assertion: the source may raise those."""


async def _listing_of(source: Any, doing: str) -> Answer:
    asked = source.list_endpoints()
    if not inspect.isawaitable(asked):
        raise _Garbage(f"{doing}: list_endpoints() returned {_kind(asked)} at once; make it an `async def`")
    listing = await asked
    if not isinstance(listing, Listing):
        raise _Garbage(
            f"{doing}: list_endpoints() returned {_kind(listing)}, not a Listing; wrap the rows in Listing(...)"
        )
    return checked(listing, doing)


def checked(listing: Listing, doing: str) -> Answer:
    """The endpoints of a listing, all of whose rows have to be right."""
    try:
        found = check_listing(listing, _EveryVariable())
    except SourceError as exc:
        raise _Garbage(f"{doing}: {exc}; give Listing(...) a list of EndpointSpec") from exc
    twice = sorted(str(bad.url) for bad in found.bad if (bad.endpoint_id, bad.url) in _pairs(found.endpoints))
    if twice:
        raise _Garbage(f"{doing}: {listed(twice)} came twice in one pool; list each server once")
    if found.bad:
        problems = "; ".join(str(problem) for bad in found.bad for problem in bad.problems)
        raise _Garbage(f"{doing}: it has wrong rows: {problems}")
    return Answer({(one.endpoint_id, one.url): one for one in found.endpoints})


def _pairs(endpoints: Collection[Endpoint]) -> set[tuple[object, object]]:
    return {(one.endpoint_id, one.url) for one in endpoints}


def _kind(value: object) -> str:
    return type(value).__name__


class _EveryVariable(Mapping[str, str]):
    """An environment in which every variable is set."""

    def __getitem__(self, name: str) -> str:
        return "secret"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
