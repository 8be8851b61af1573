"""What the tests of the sources share: scripted sources, mortal ones, and a poller that keeps what it hears."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from random import Random

import trio
import trio.testing

from scavenge.core.roster import Change
from scavenge.errors import Problem, leaves
from scavenge.events import Event, SourceChanged
from scavenge.listings import BadRow, CheckedListing, Listing
from scavenge.runtime.poller import Poller
from scavenge.runtime.sources import NamedSource
from scavenge.types import Endpoint, EndpointId, Url

STANDS = "; the last good listing, 1 endpoint, stands"


def endpoint(name: str, source: str = "source0") -> Endpoint:
    return Endpoint(EndpointId("pool"), "m", Url(name), source=source)


def check(listing: Listing, present: Sequence[Endpoint]) -> CheckedListing:
    """Rows are names; one that begins with ``!`` is a bad row of nobody in particular, with ``?`` an incomplete one."""
    names = [str(row) for row in listing.endpoints]
    bad = [name for name in names if name[0] in "!?"]
    good = tuple(endpoint(name, source="") for name in names if name not in bad)
    return CheckedListing(good, tuple(map(bad_row, bad)))


def bad_row(name: str) -> BadRow:
    return BadRow((Problem("listing", f"{name} is bad"),), EndpointId("other"), None, 0, incomplete=name[0] == "?")


class Scripted:
    """Answers with the next step of its script each time; a step may be names, an error, or a wait."""

    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)
        self.asked = 0

    async def list_endpoints(self) -> Listing:
        self.asked += 1
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        await trio.lowlevel.checkpoint()
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, float):
            await trio.sleep(step)
            step = "a"
        return step if not isinstance(step, str) else Listing(step.split())  # type: ignore[return-value,arg-type]


class Mortal:
    """Opens with a task of its own that kills it as the next step of its script says; counts what is open."""

    def __init__(self, *deaths: object, opening: Sequence[object] = ()) -> None:
        self.deaths = list(deaths)
        self.opening = list(opening)
        self.opened_at: list[float] = []
        self.open_now = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Scripted]:
        self.opened_at.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        step = self.opening.pop(0) if self.opening else None
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, float):
            await trio.sleep(step)
        self.open_now += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._die, nursery.cancel_scope, self.deaths.pop(0) if self.deaths else None)
                yield Scripted("a")
                nursery.cancel_scope.cancel()
        finally:
            self.open_now -= 1

    async def _die(self, scope: trio.CancelScope, death: object) -> None:
        await trio.sleep(15)
        if isinstance(death, BaseException):
            raise death
        if death == "cancelled":
            scope.cancel()
        await trio.sleep_forever()


class Caught:
    """Keeps what its block raises, whatever it is."""

    error: BaseException | None = None

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return True


class Heard:
    def __init__(self, *sources: object, elastic: bool = True, interval_s: float = 10.0) -> None:
        self.changes: list[Change] = []
        self.events: list[Event] = []
        named = [
            NamedSource(
                f"source{index}",
                getattr(source, "open", partial(nullcontext, source)),  # type: ignore[arg-type]
                "" if index else "plugin",
                code=None,  # the lines of this kit are nobody's
            )
            for index, source in enumerate(sources)
        ]
        self.poller = Poller(named, check, self.on_changes, self.events.append, interval_s, elastic, Random(1))

    def on_changes(self, changes: Sequence[Change]) -> None:
        self.changes.extend(changes)

    @property
    def told(self) -> list[tuple[bool, str]]:
        return [(event.ok, event.message) for event in self.events if isinstance(event, SourceChanged)]

    async def run(self, seconds: float) -> None:
        """Start, and go on until that much time has passed since."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.poller.run_poller)
            await trio.sleep(seconds)
            nursery.cancel_scope.cancel()

    async def refused(self, seconds: float = 0.0) -> BaseException:
        """The error of a start that fails."""
        caught = Caught()
        with caught:
            await self.run(seconds)
        assert caught.error is not None
        (error,) = leaves(caught.error)
        return error
