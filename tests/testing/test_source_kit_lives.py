"""The checks for endpoint sources find each way to open, cancel and close one badly, and tell what it is."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress

import pytest
import trio
from source_registry import Plain, Registry, WrongOnes, opener

from scavenge.plugin import Listing, SourceError

WRONG = WrongOnes()


@pytest.fixture
def registry() -> Registry:
    return Registry()


# --- cancelled


@WRONG.kind(r"listing, cancelled at moment \d+: it swallowed its cancellation; let trio.Cancelled through")
class SwallowsItsCancellation(Plain):
    async def list_endpoints(self):
        try:
            return await super().list_endpoints()
        except trio.Cancelled:
            return Listing(self.registry.rows())


@WRONG.kind(r"listing, cancelled at moment \d+: it swallowed its cancellation; let trio.Cancelled through")
class TranslatesItsCancellation(Plain):
    async def list_endpoints(self):
        try:
            return await super().list_endpoints()
        except BaseException as exc:
            raise SourceError("no answer") from exc


@WRONG.kind(r"it was cancelled again and again and went on; never catch trio.Cancelled")
class GoesOn(Plain):
    async def list_endpoints(self):
        while True:
            try:
                return await super().list_endpoints()
            except trio.Cancelled:
                continue


@WRONG.kind(r"it was cancelled again and again and went on; never catch trio.Cancelled", faults=[])
class GoesOnWhateverComes(Plain):
    async def list_endpoints(self):
        while True:
            try:
                await trio.lowlevel.checkpoint()
                return await super().list_endpoints()
            except GeneratorExit:
                raise
            except BaseException:
                continue


@WRONG.kind(
    r"listing, cancelled at moment \d+: it went on for 5\.0 s after it was cancelled; use abandon_.* a virtual clock",
    answers_within_s=30.0,
    faults=[],
    change=None,
)
class TakesItsTime(Plain):
    async def list_endpoints(self):
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return await super().list_endpoints()


@WRONG.kind(r"again after listing, cancelled at moment \d+: list_endpoints\(\) raised RuntimeError: in use", faults=[])
class StaysInUse(Plain):
    in_use = False

    async def list_endpoints(self):
        if self.in_use:
            raise RuntimeError("in use")
        self.in_use = True
        listing = await Plain.list_endpoints(self)
        self.in_use = False
        return listing


@WRONG.kind(r"again after listing, cancelled at moment \d+: list_endpoints\(\) raised RuntimeError: in use", faults=[])
class StaysInUseInATaskOfItsOwn(Plain):
    in_use = False

    async def read(self):
        await trio.lowlevel.checkpoint()
        if self.in_use:
            raise RuntimeError("in use")
        self.in_use = True
        await trio.lowlevel.checkpoint()
        self.in_use = False

    async def list_endpoints(self):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.read)
        return Listing(self.registry.rows())


@WRONG.way(r"closed at moment \d+ of a listing: the listing came without")
def empties_when_it_is_closed(registry):
    class Emptying(Plain):
        closed = False

        async def list_endpoints(self):
            listing = await super().list_endpoints()
            return Listing([]) if self.closed else listing

    @asynccontextmanager
    async def open_source():
        source = Emptying(registry)
        yield source
        source.closed = True

    return open_source


@WRONG.way(r"listing, cancelled at moment \d+: list_endpoints\(\) raised SourceError: busy", change=None, faults=[])
def says_nothing_now_and_then(registry):
    asked = []

    class Busy(Plain):
        async def list_endpoints(self):
            asked.append(None)
            if len(asked) > 12:
                raise SourceError("busy")
            return await super().list_endpoints()

    return opener(lambda: Busy(registry))


# --- opened and closed


@WRONG.way(r"opened once: what open_source\(\) opened is \"a source\", which has no list_endpoints\(\); yield")
def opens_no_source(registry):
    return opener(lambda: "a source")


@WRONG.way(r"opened once: open_source\(\) gave .*, which is no async context manager; decorate")
def is_a_coroutine_function(registry):
    async def open_source():
        return Plain(registry)

    return open_source


@WRONG.way(r"opened once: open_source\(\) gave .*, which is no async context manager; decorate")
def is_a_bare_generator(registry):
    async def open_source():
        yield Plain(registry)

    return open_source


@WRONG.way(r"opened once: opening raised SourceError: no registry; open also when nothing can be said")
def cannot_be_opened(registry):
    @asynccontextmanager
    async def open_source():
        await trio.lowlevel.checkpoint()
        raise SourceError("no registry")
        yield

    return open_source


@WRONG.way(r"opened once: not open within 3 s")
def waits_in_opening(registry):
    @asynccontextmanager
    async def open_source():
        await trio.sleep_forever()
        yield

    return open_source


@WRONG.way(r"opened beside another that is open, the first listing after opening: .*RuntimeError: closed|"
                r"asked again after the other was closed: list_endpoints\(\) raised RuntimeError: closed")  # fmt: skip
def shares_what_it_closes(registry):
    shared = {"open": False}

    class Sharing(Plain):
        async def list_endpoints(self):
            if not shared["open"]:
                raise RuntimeError("closed")
            return await super().list_endpoints()

    @asynccontextmanager
    async def open_source():
        shared["open"] = True
        yield Sharing(registry)
        shared["open"] = False

    return open_source


@WRONG.way(r"opened once: not closed within 2 s; close without waiting for a peer")
def waits_in_closing(registry):
    @asynccontextmanager
    async def open_source():
        yield Plain(registry)
        await trio.sleep_forever()

    return open_source


@WRONG.way(r"opened once: closing raised ValueError: bad")
def raises_in_closing(registry):
    @asynccontextmanager
    async def open_source():
        yield Plain(registry)
        raise ValueError("bad")

    return open_source


@WRONG.way(r"the source died: ValueError: lost the watch|it died of ValueError: lost the watch", faults=[])
def dies_young(registry):
    @asynccontextmanager
    async def open_source():
        async def watch() -> None:
            await trio.sleep(0.015)
            raise ValueError("lost the watch")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            yield Plain(registry)
            nursery.cancel_scope.cancel()

    return open_source


@WRONG.way(r"the source died: it cancelled itself|it ended by itself; stay open until you are closed", faults=[])
def cancels_itself(registry):
    @asynccontextmanager
    async def open_source():
        with trio.move_on_after(0.015):
            yield Plain(registry)

    return open_source


@WRONG.way(r"^opening: it raised SourceError: no room", change=None, faults=[])
def cannot_always_be_opened(registry):
    opened = []

    @asynccontextmanager
    async def open_source():
        opened.append(None)
        if len(opened) > 4:
            raise SourceError("no room")
        yield Plain(registry)

    return open_source


@WRONG.way(r"it ended by itself; stay open until you are closed", change=None, faults=[])
def ends_by_itself(registry):
    opened = []

    class Ending(Plain):
        scope: trio.CancelScope

        async def list_endpoints(self):
            listing = await super().list_endpoints()
            if len(opened) > 4:
                self.scope.cancel()
            return listing

    @asynccontextmanager
    async def open_source():
        opened.append(None)
        source = Ending(registry)
        with trio.CancelScope() as source.scope:
            yield source

    return open_source


@WRONG.way(r"opened once, closing: it was cancelled again and again and went on; never catch")
def goes_on_closing(registry):
    @asynccontextmanager
    async def open_source():
        yield Plain(registry)
        while True:
            with suppress(trio.Cancelled):
                await trio.lowlevel.checkpoint()

    return open_source


@WRONG.way(r"opening, cancelled at moment \d+, opening: it swallowed its cancellation; let")
def swallows_in_opening(registry):
    @asynccontextmanager
    async def open_source():
        with suppress(trio.Cancelled):
            await trio.sleep(0.1)
        yield Plain(registry)

    return open_source


@WRONG.way(r"closing, cancelled at moment \d+, closing: it swallowed its cancellation and raised SourceError: no")
def translates_in_closing(registry):
    @asynccontextmanager
    async def open_source():
        yield Plain(registry)
        try:
            await trio.sleep(0.1)
        except BaseException as exc:
            raise SourceError("no farewell") from exc

    return open_source


@WRONG.way(r"closing, cancelled at moment \d+: it took 4\.0 s to end; shield nothing that may take long")
def shields_its_closing(registry):
    @asynccontextmanager
    async def open_source():
        yield Plain(registry)
        try:
            await trio.sleep(0.1)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await trio.sleep(4)
            raise

    return open_source


@WRONG.way(r"opening, cancelled at moment \d+, opening: it was cancelled again and again and went on")
def goes_on_opening(registry):
    @asynccontextmanager
    async def open_source():
        while True:
            try:
                await trio.sleep(0.1)
                break
            except trio.Cancelled:
                continue
        yield Plain(registry)

    return open_source


@WRONG.way(r"opened once: left behind after closing: the task trio.sleep_forever; end and close")
def leaves_a_task(registry):
    @asynccontextmanager
    async def open_source():
        trio.lowlevel.spawn_system_task(trio.sleep_forever)
        yield Plain(registry)

    return open_source


# --- all of them


@pytest.mark.parametrize("name", WRONG.names())
async def test_a_source_whose_life_goes_wrong_is_told_so(autojump_clock, registry, name):
    await WRONG.check(registry, name)
