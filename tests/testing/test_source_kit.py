"""The checks for endpoint sources: right sources pass them, and what one leaves behind is found."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio
import trio.testing
from source_registry import Plain, Polling, Registry, Watching, check, opener, watcher

from scavenge.plugin import Listing, SourceError
from scavenge.testing import SourceFault, check_endpoint_source
from scavenge.testing.source_answers import ask, unhurried
from scavenge.testing.source_leftovers import belongings
from scavenge.testing.source_probe import Knife, Probe


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.mark.parametrize("kind", [Plain, Polling])
async def test_a_right_source_passes(autojump_clock, registry, kind):
    await check(registry, opener(lambda: kind(registry)))


async def test_a_right_source_with_a_task_that_dies_in_a_fault_passes(autojump_clock, registry):
    await check(registry, watcher(registry))


async def test_a_source_that_holds_its_answer_in_a_fault_passes(autojump_clock, registry):
    class Patient(Plain):
        async def list_endpoints(self) -> Listing:
            while registry.down:
                await registry.moved.wait()
            return await super().list_endpoints()

    await check(registry, opener(lambda: Patient(registry)))


async def test_a_source_that_says_in_a_fault_what_it_last_knew_passes(autojump_clock, registry):
    class Remembering(Plain):
        last: Listing | None = None

        async def list_endpoints(self) -> Listing:
            await trio.lowlevel.checkpoint()
            if not registry.down:
                self.last = await super().list_endpoints()
            elif self.last is None:
                raise SourceError("the registry does not answer; start it")
            return self.last

    await check(registry, opener(lambda: Remembering(registry)))


async def test_a_source_that_cannot_be_opened_in_a_fault_passes(autojump_clock, registry):
    @asynccontextmanager
    async def open_source() -> AsyncIterator[Plain]:
        await trio.sleep(0.01)
        if registry.down:
            raise SourceError("the registry does not answer; start it")
        yield Plain(registry)

    await check(registry, open_source)


async def test_the_order_of_a_listing_is_free(autojump_clock, registry):
    class Shuffling(Plain):
        turn = 0

        async def list_endpoints(self) -> Listing:
            self.turn += 1
            rows = (await super().list_endpoints()).endpoints
            return Listing(rows[:: 1 if self.turn % 2 else -1])

    await check(registry, opener(lambda: Shuffling(registry)))


async def test_a_source_that_nobody_says_anything_of_is_checked_too(autojump_clock):
    class Empty:
        async def list_endpoints(self) -> Listing:
            await trio.lowlevel.checkpoint()
            return Listing([])

    await check_endpoint_source(opener(Empty))


async def test_what_a_library_makes_once_is_no_leftover(autojump_clock, registry):
    kept: list[int] = []

    class Caching(Plain):
        async def list_endpoints(self) -> Listing:
            if not kept:
                kept.append(os.open("/dev/null", os.O_RDONLY))
            return await super().list_endpoints()

    await check(registry, opener(lambda: Caching(registry)))
    os.close(kept[0])


async def test_what_goes_with_the_next_garbage_is_no_leftover(autojump_clock, registry):
    class Handle:
        def __init__(self) -> None:
            self.number = os.open("/dev/null", os.O_RDONLY)
            self.me = self

        def __del__(self) -> None:
            os.close(self.number)

    @asynccontextmanager
    async def open_source() -> AsyncIterator[Plain]:
        Handle()
        yield Plain(registry)

    await check(registry, open_source, change=None, faults=[])


async def test_a_thread_counts_while_it_works():
    began, enough = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        enough.wait()

    before = belongings(()).threads
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, work)
        await trio.to_thread.run_sync(began.wait)
        working = belongings(()).threads - before
        enough.set()
    assert len(working) == 1
    assert belongings(()).threads - before == set()
    assert working <= set(threading.enumerate())


async def test_what_the_authors_own_double_starts_is_no_leftover(autojump_clock, registry, nursery):
    async def change() -> None:
        nursery.start_soon(trio.sleep_forever)
        await registry.move()

    await check(registry, opener(lambda: Plain(registry)), change=change)
    nursery.cancel_scope.cancel()


async def test_what_the_authors_own_double_opens_is_no_leftover(autojump_clock, registry):
    opened: list[int] = []

    async def change() -> None:
        opened.append(os.open("/dev/null", os.O_RDONLY))
        await registry.move()

    @asynccontextmanager
    async def apply() -> AsyncIterator[None]:
        opened.append(os.open("/dev/null", os.O_RDONLY))
        async with registry.outage():
            yield

    await check(registry, watcher(registry), change=change, faults=[SourceFault("outage", apply)])
    for number in opened:
        os.close(number)


async def test_a_source_that_dies_when_the_fault_is_over_passes(autojump_clock, registry):
    class Doomed(Watching):
        async def watch(self) -> None:
            with suppress(SourceError):
                await super().watch()
            while registry.down:
                await registry.moved.wait()
            await trio.sleep(0.1)
            raise SourceError("the registry was away")

        async def list_endpoints(self) -> Listing:
            if registry.down:
                raise SourceError("the registry does not answer; start it")
            return await super().list_endpoints()

    await check(registry, watcher(registry, Doomed))


async def test_a_source_that_says_nothing_once_it_is_closed_passes(autojump_clock, registry):
    class Closing(Plain):
        closed = False

        async def list_endpoints(self) -> Listing:
            listing = await super().list_endpoints()
            if self.closed:
                raise SourceError("it was closed")
            return listing

    @asynccontextmanager
    async def open_source() -> AsyncIterator[Plain]:
        source = Closing(registry)
        yield source
        source.closed = True

    await check(registry, open_source)


async def test_a_key_that_a_row_names_need_not_be_set(autojump_clock, registry):
    class Keyed(Plain):
        async def list_endpoints(self) -> Listing:
            return Listing([attrs.evolve(row, key="KEY") for row in (await super().list_endpoints()).endpoints])

    await check(registry, opener(lambda: Keyed(registry)))


async def test_a_source_that_starts_tasks_all_the_time_passes(autojump_clock, registry):
    class Busy(Watching):
        async def watch(self) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(super().watch)
                while True:
                    nursery.start_soon(trio.sleep, 0.05)
                    await trio.sleep(0.02)

    await check(registry, watcher(registry, Busy))


async def test_cancellation_also_comes_between_being_woken_and_running(autojump_clock, nursery):
    came: set[str] = set()
    bell = trio.Event()

    class Waiting:
        async def list_endpoints(self) -> Listing:
            await bell.wait()
            came.add("cancelled already" if trio.current_effective_deadline() == -math.inf else "in time")
            return Listing([])

    async def ring() -> None:
        nonlocal bell
        while True:
            await trio.sleep(0.01)
            bell.set()
            bell = trio.Event()

    nursery.start_soon(ring)
    await check_endpoint_source(opener(Waiting))
    nursery.cancel_scope.cancel()
    assert came == {"in time", "cancelled already"}


async def test_of_many_steps_only_so_many_are_tried(autojump_clock):
    cut: list[int] = []

    class Long:
        async def list_endpoints(self) -> Listing:
            for step in range(100):
                try:
                    await trio.lowlevel.checkpoint()
                except trio.Cancelled:
                    cut.append(step)
                    raise
            return Listing([])

    @asynccontextmanager
    async def open_source() -> AsyncIterator[Long]:
        yield Long()

    await check_endpoint_source(open_source, max_steps=4)
    assert cut == [0, 25, 50, 75]


async def test_a_change_or_a_fault_needs_what_is_to_be_expected(registry):
    for options in ({"change": registry.move}, {"faults": [SourceFault("outage", registry.outage)]}):
        with pytest.raises(ValueError, match="change= and faults= need expect="):
            await check_endpoint_source(opener(lambda: Plain(registry)), **options)


@pytest.mark.parametrize(
    ("opens", "says"),
    [
        (lambda registry: opener(lambda: Plain(registry))(), "an async context manager, which opens only once"),
        (lambda registry: Plain(registry), "a Plain"),
    ],
)
async def test_what_opens_nothing_anew_is_refused_with_what_does(registry, opens, says):
    with pytest.raises(TypeError, match=f"open_source= is {says}.*; pass what makes one: lambda: open_x"):
        await check_endpoint_source(opens(registry))


async def test_a_class_that_is_an_async_context_manager_opens_anew(autojump_clock, registry):
    class Entered(Plain):
        def __init__(self) -> None:
            super().__init__(registry)

        async def __aenter__(self) -> Plain:
            return self

        async def __aexit__(self, *exc: object) -> None:
            pass

    await check(registry, Entered)


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        (lambda outage: [outage], r"faults= has a \w+ \(.*\) in it; name it: SourceFault\(name, apply\)"),
        (lambda outage: SourceFault("outage", outage), r"faults= is a SourceFault .*; pass a list: \[SourceFault\("),
        (lambda outage: outage, r"faults= is a method .*; pass a list: \[SourceFault\("),
    ],
)
async def test_a_fault_that_is_none_is_refused(registry, faults, says):
    with pytest.raises(TypeError, match=says):
        await check(registry, opener(lambda: Plain(registry)), faults=faults(registry.outage))


async def test_a_change_that_cannot_be_awaited_is_refused(autojump_clock, registry):
    def change() -> None:
        registry.version += 1

    with pytest.raises(TypeError, match="change= gave nothing, which cannot be awaited; make it an `async def`"):
        await check(registry, opener(lambda: Plain(registry)), change=change)


async def test_a_change_may_be_a_function_that_gives_what_is_awaited(autojump_clock, registry):
    await check(registry, opener(lambda: Plain(registry)), change=lambda: registry.move())


async def test_on_a_virtual_clock_a_source_that_waits_for_a_thread_is_told_to_use_the_real_one(autojump_clock):
    class Threaded:
        async def list_endpoints(self) -> Listing:
            await trio.to_thread.run_sync(enough.wait, abandon_on_cancel=True)
            return Listing([])

    enough = threading.Event()
    try:
        with pytest.raises(AssertionError, match=r"no answer within 10 s; .*; a virtual clock does not wait for a th"):
            await check_endpoint_source(opener(Threaded))
    finally:
        enough.set()


@pytest.mark.parametrize(("clock", "told"), [(True, True), (False, False)])
def test_only_a_clock_that_jumps_is_told_of(clock, told):
    async def told_of() -> str:
        return unhurried()

    for threshold in (0.0, math.inf):
        mock = trio.testing.MockClock(rate=1.0, autojump_threshold=threshold)
        said = trio.run(told_of, clock=mock if clock else None)
        assert ("virtual clock" in said) is (told and threshold == 0.0)


async def test_an_interruption_goes_through(autojump_clock, registry):
    class Interrupted(Plain):
        async def list_endpoints(self) -> Listing:
            raise KeyboardInterrupt

    with pytest.RaisesGroup(KeyboardInterrupt, flatten_subgroups=True):
        await check(registry, opener(lambda: Interrupted(registry)))


async def test_a_check_that_is_cancelled_closes_what_it_opened(autojump_clock, registry):
    living: list[object] = []

    @asynccontextmanager
    async def open_source() -> AsyncIterator[Plain]:
        living.append(object())
        try:
            yield Plain(registry)
        finally:
            living.pop()

    with trio.move_on_after(0.03) as scope:
        await check(registry, open_source)
    assert scope.cancelled_caught
    assert living == []


async def test_code_that_was_dropped_is_told_of_whatever_trio_says_of_it():
    class Broken:
        async def list_endpoints(self) -> Listing:
            raise RuntimeError("cancel scope stack corrupted")

    knife = Knife(print, given=1_000)
    with pytest.raises(AssertionError, match="asked: it was cancelled again and again and went on"):
        await ask(Broken(), Probe(), knife, trio.CancelScope(), "asked")


# --- what is left behind


async def test_an_open_file_that_stays_is_found(autojump_clock, registry):
    left: list[int] = []

    @asynccontextmanager
    async def open_source() -> AsyncIterator[Plain]:
        left.append(os.open("/dev/null", os.O_RDONLY))
        yield Plain(registry)

    with pytest.raises(AssertionError, match=r"left behind after closing: the file descriptor \d+ \(/dev/null\)"):
        await check(registry, open_source)
    for number in left:
        os.close(number)


async def test_a_file_that_a_cancelled_opening_leaves_is_found(autojump_clock, registry):
    left: list[int] = []

    @asynccontextmanager
    async def open_source() -> AsyncIterator[Plain]:
        left.append(os.open("/dev/null", os.O_RDONLY))
        await trio.sleep(0.1)
        try:
            yield Plain(registry)
        finally:
            os.close(left.pop())

    with pytest.raises(AssertionError, match=r"opening, cancelled at moment 1: left behind after closing: the file"):
        await check(registry, open_source)
    for number in left:
        os.close(number)


async def test_a_thread_that_goes_on_is_found(autojump_clock, registry):
    enough = threading.Event()
    threads: list[threading.Thread] = []

    @asynccontextmanager
    async def open_source() -> AsyncIterator[Plain]:
        threads.append(threading.Thread(target=enough.wait, name="watch of the registry"))
        threads[-1].start()
        yield Plain(registry)

    try:
        with pytest.raises(AssertionError, match="left behind after closing: the thread watch of the registry"):
            await check(registry, open_source)
    finally:
        enough.set()
        for thread in threads:
            thread.join()


async def test_a_program_that_goes_on_is_found(autojump_clock, registry):
    programs: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    @asynccontextmanager
    async def open_source() -> AsyncIterator[Plain]:
        programs.append(start())
        yield Plain(registry)

    try:
        with pytest.raises(AssertionError, match=r"left behind after closing: .*the child process \d+"):
            await check(registry, open_source)
    finally:
        for program in programs:
            program.communicate(b"\n")
