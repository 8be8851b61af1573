"""What the sources of a file list, for ``scavenge check``: each is asked once, and they are merged as a run does.

Invariants: an endpoint is gathered once, as the first source in the order of the file lists it; what a listing is
checked against is what the sources before it gave.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from scavenge.config.endpoint_rows import check_listing, pool_modes
from scavenge.core.redaction import Redactor
from scavenge.core.roster import Roster, never_listed, not_listed
from scavenge.errors import Problem, SourceError
from scavenge.listings import Listing, placed
from scavenge.runtime.ports import EndpointSource
from scavenge.runtime.sources import NamedSource, told, use_source
from scavenge.types import Endpoint, EndpointId

SOURCE_WITHIN_S = 15.0
"""How long a source may take to open and to answer."""


@attrs.define
class Gathered:
    """What has been found so far. *redact* learns the keys of every endpoint."""

    environ: Mapping[str, str] = attrs.field(repr=False)
    redact: Redactor
    roster: Roster
    problems: list[Problem] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)

    def take(self, index: int, name: str, listing: Listing) -> None:
        """Sort the listing of a source into endpoints and problems. Raises what a listing of no right shape raises."""
        checked = check_listing(placed(listing, name), self.environ, present=pool_modes(self.roster))
        for endpoint in checked.endpoints:
            self.redact.hide_endpoint(endpoint.secret, endpoint.headers)
        self.problems.extend(problem for row in checked.bad for problem in row.problems)
        named = tuple(attrs.evolve(endpoint, source=name) for endpoint in checked.endpoints)
        self.roster.update(index, attrs.evolve(checked, endpoints=named))

    def cannot_say(self, name: str, why: str, *, waited_for: bool) -> None:
        """Tell of a source that has no listing."""
        if waited_for:
            self.warnings.append(f"{name}: {why}; an elastic run waits for it")
        else:
            self.problems.append(Problem(name, why))

    def miss(self, wanted: Sequence[EndpointId], *, elastic: bool) -> None:
        """Tell which of these pools no source lists; not where a source could not be read, which may have them."""
        if self.problems or self.warnings:
            return
        listed = {endpoint.endpoint_id for endpoint in self.roster}
        for endpoint_id in wanted:
            if endpoint_id in listed:
                continue
            why = not_listed(endpoint_id, self.roster)
            if elastic:
                self.warnings.append(f"endpoint_id {endpoint_id!r}: {why}; an elastic run waits for one")
            else:
                self.problems.append(never_listed(endpoint_id, why))


@asynccontextmanager
async def open_sources(sources: Sequence[NamedSource], gathered: Gathered, *, elastic: bool) -> AsyncIterator[None]:
    """Ask the sources side by side and gather what they list; they stay open for the body, which may need them.

    Cancelled or left, it closes every source, for two seconds at most.
    """
    asked = [_Asked(source) for source in sources]
    async with trio.open_nursery() as lives:
        for one in asked:
            lives.start_soon(one.run_asked, name=f"ask source {one.source.name}")
        for one in asked:
            await one.heard.wait()
        for index, one in enumerate(asked):
            one.tell(index, gathered, elastic=elastic)
        yield
        died = [one for one in asked if one.listing is not None and one.trouble is not None]
        gathered.warnings.extend(f"{one.source.name}: {one.trouble}, after it had answered" for one in died)
        lives.cancel_scope.cancel()


@attrs.define(eq=False)
class _Asked:
    """One source, what it listed, and why it cannot say, or ended."""

    source: NamedSource
    listing: Listing | None = None
    trouble: str | None = None
    openable: bool = True
    heard: trio.Event = attrs.field(factory=trio.Event)

    async def run_asked(self) -> None:
        """Open the source, ask it once, and keep it open until it dies. Cancelled, it closes the source."""

        async def ask(opened: EndpointSource) -> None:
            listing: object = await opened.list_endpoints()
            if not isinstance(listing, Listing):
                raise SourceError(f"list_endpoints() returned {type(listing).__name__}, not a Listing")
            slow.deadline = math.inf
            self.listing = listing
            self.heard.set()
            await trio.sleep_forever()

        with trio.move_on_after(SOURCE_WITHIN_S) as slow:
            end = await use_source(self.source, ask)
            self.openable = end.opened
            self.trouble = end.why.removeprefix("died: ").removeprefix(f"{self.source.name}: ")
        if slow.cancelled_caught:
            self.trouble = f"no answer within {SOURCE_WITHIN_S:g} s"
        self.heard.set()

    def tell(self, index: int, gathered: Gathered, *, elastic: bool) -> None:
        """Gather what it listed, or why it listed nothing: a run waits only for a source that can be opened."""
        name = self.source.name
        if self.listing is None:
            gathered.cannot_say(name, str(self.trouble), waited_for=elastic and self.openable)
            return
        try:
            gathered.take(index, name, self.listing)
        except Exception as exc:  # a listing may be of the plugin's making all through
            gathered.cannot_say(name, told(exc).removeprefix(f"{name}: "), waited_for=elastic)


def merged(fixed: Sequence[Endpoint], gathered: Gathered, wanted: Sequence[EndpointId]) -> list[Endpoint]:
    """The endpoints of the pools in *wanted*, each once: the servers that evals name, and those that are listed."""
    every = {(one.endpoint_id, one.url): one for one in (*gathered.roster, *fixed)}
    return sorted(
        (one for one in every.values() if one.endpoint_id in wanted), key=lambda one: wanted.index(one.endpoint_id)
    )
