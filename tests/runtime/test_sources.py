"""Sources that die are opened again, those that hang hold nothing up, and whatever happens none is left open."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from random import Random

import attrs
import pytest
import trio
import trio.testing
from source_kit import STANDS, Caught, Heard, Mortal, Scripted, endpoint

from scavenge.core.roster import Added, Change
from scavenge.errors import ConfigError, PluginError, SourceError
from scavenge.listings import Listing
from scavenge.runtime.sources import NamedSource, Report, SourceKeeper, Troubled, lent, use_source
from scavenge.status import SourceStatus
from scavenge.testing.sweep import cancel_at_every_step

# --- sources that die


@pytest.mark.parametrize(
    ("death", "says"),
    [
        (ConnectionError("watch lost"), "ConnectionError: watch lost"),
        (BaseExceptionGroup("g", [SystemExit(3), SourceError("no scheduler")]), "SystemExit: 3; no scheduler"),
        ("cancelled", "it cancelled itself"),
    ],
)
async def test_a_source_that_dies_keeps_its_listing_is_told_of_once_and_opened_again(autojump_clock, death, says):
    mortal, other = Mortal(death), Scripted("b")
    heard = Heard(mortal, other)
    await heard.run(100)
    (dead, back) = heard.told
    assert (dead[0], back) == (False, (True, "readable again after 0:01"))
    assert dead[1].startswith(f"died: {says}")
    assert dead[1].endswith(STANDS)
    assert heard.changes == [Added(endpoint("a")), Added(endpoint("b", "source1"))]
    assert 16 <= mortal.opened_at[1] <= 17
    assert heard.poller.status(trio.current_time())[0] == SourceStatus(
        "source0", 1, pytest.approx(100 - mortal.opened_at[1] - 80), None, 1  # type: ignore[arg-type]
    )  # fmt: skip
    assert mortal.open_now == 0
    assert other.asked == 11


async def test_a_source_that_cannot_be_opened_again_is_tried_for_ever_ever_less_often(autojump_clock):
    refusals = [ConnectionRefusedError(f"try {number}") for number in range(20)]
    mortal = Mortal(ConnectionError("lost"), opening=[None, *refusals])
    heard = Heard(mortal)
    await heard.run(3000)
    assert [ok for ok, _ in heard.told] == [False, False, True]
    assert heard.told[1][1] == f"cannot be opened: ConnectionRefusedError: try 0{STANDS}"
    waits = [later - earlier for earlier, later in zip(mortal.opened_at[1:], mortal.opened_at[2:], strict=False)]
    bounds = [min(60, 2.0**deaths) for deaths in range(2, 22)]
    assert len(waits) == 20
    assert all(bound / 2 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True))
    assert len({round(wait, 3) for wait in waits[6:]}) > 5
    assert heard.poller.status(0)[0].restarts == 21
    assert heard.changes == [Added(endpoint("a"))]


async def test_the_wait_before_a_source_is_opened_again_starts_anew_after_a_good_listing(autojump_clock):
    mortal = Mortal(*(ConnectionError(f"lost {number}") for number in range(12)))
    heard = Heard(mortal)
    await heard.run(190)
    lives = [later - earlier for earlier, later in zip(mortal.opened_at, mortal.opened_at[1:], strict=False)]
    assert len(lives) >= 11
    assert all(16 <= life <= 17 for life in lives)
    assert [ok for ok, _ in heard.told] == [False, True] * (len(heard.told) // 2)


async def test_a_source_that_does_not_open_within_a_minute_is_tried_again(autojump_clock):
    mortal = Mortal(ConnectionError("lost"), opening=[None, 1e9])
    heard = Heard(mortal)
    await heard.run(100)
    assert heard.told[1] == (False, f"cannot be opened: not open within 60 s{STANDS}")
    assert len(mortal.opened_at) == 3
    assert heard.told[2][0] is True


class Leaking(Scripted):
    """Lets the cancellation of a scope of its own out of its second answer."""

    async def list_endpoints(self) -> Listing:
        listing = await super().list_endpoints()
        if self.asked == 2:
            caught = Caught()
            with trio.CancelScope() as scope:
                scope.cancel()
                with caught:
                    await trio.lowlevel.checkpoint()
            assert caught.error is not None
            raise self.leaked(caught.error)
        return listing

    def leaked(self, error: BaseException) -> BaseException:
        return error


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_cancellation_that_a_source_lets_out_ends_its_life_only(autojump_clock, grouped):
    class Grouped(Leaking):
        def leaked(self, error: BaseException) -> BaseException:
            return BaseExceptionGroup("leaked", [error, ValueError("x")])

    source = Grouped("a") if grouped else Leaking("a")
    heard = Heard(source)
    await heard.run(100)
    says = "died: ValueError: x" if grouped else "died: it cancelled itself"
    assert heard.told == [(False, says + STANDS), (True, "readable again after 0:01")]
    assert heard.poller.status(0)[0].restarts == 1


async def test_a_source_that_leaves_its_cancel_scopes_in_disorder_is_opened_again(autojump_clock):
    opened = 0

    @asynccontextmanager
    async def open_disorderly() -> AsyncIterator[Scripted]:
        nonlocal opened
        opened += 1
        if opened == 1:
            trio.CancelScope().__enter__()
            yield Scripted("a", SystemExit())
        else:
            yield Scripted("a")

    heard = Heard(attrs.make_class("Disorderly", {"open": attrs.field()})(open_disorderly))
    await heard.run(100)
    assert [ok for ok, _ in heard.told] == [False, True]
    assert "died: " in heard.told[0][1]
    assert opened == 2


async def test_what_is_no_context_manager_or_no_source_is_told_and_ends_nothing(autojump_clock):
    class NoManager:
        def open(self) -> object:
            return 3

    class NoSource:
        def open(self) -> object:
            return nullcontext()

    error = await Heard(NoManager()).refused()
    assert isinstance(error, PluginError)
    assert "asynchronous context manager" in str(error)
    error = await Heard(NoSource()).refused()
    assert isinstance(error, PluginError)
    assert str(error) == "plugin plugin: source0 cannot be opened: its open() yielded None; yield the source"


class Nameless:
    list_endpoints = "no method"


@pytest.mark.parametrize(
    ("opened", "says"),
    [
        (None, "its open() yielded None; yield the source"),
        ("a b", "its open() yielded str, which has no list_endpoints(); yield the source"),
        (Nameless(), "its open() yielded Nameless, which has no list_endpoints(); yield the source"),
    ],
)
async def test_an_open_that_yields_no_source_has_opened_none_and_is_closed(opened, says):
    closed = []

    @asynccontextmanager
    async def open_nothing() -> AsyncIterator[object]:
        try:
            yield opened
        finally:
            closed.append(opened)

    end = await use_source(NamedSource("odd", open_nothing), never_used)  # type: ignore[arg-type]
    assert end == Troubled(f"cannot be opened: {says}", opened=False)
    assert closed == [opened]


async def never_used(source: object) -> None:
    await trio.lowlevel.checkpoint()
    pytest.fail("what is no source was used")


# --- the place of an error


class Failing:
    async def list_endpoints(self) -> Listing:
        await trio.lowlevel.checkpoint()
        raise self.error()

    def error(self) -> BaseException:
        return ZeroDivisionError("division by zero")


class Wordy(Failing):
    def error(self) -> BaseException:
        return ValueError("x" * 10_000)


class Saying(Failing):
    def error(self) -> BaseException:
        return SourceError("half a file")


@pytest.mark.parametrize(
    ("source", "begins", "placed"),
    [(Failing(), "ZeroDivisionError: division by zero", True), (Wordy(), "ValueError: xxx", True),
     (Saying(), "half a file", False)],
)  # fmt: skip
@pytest.mark.parametrize("borrowed", [True, False])
async def test_what_a_listing_raises_is_told_with_its_line_unless_it_is_a_sentence(source, begins, placed, borrowed):
    @asynccontextmanager
    async def open_it() -> AsyncIterator[Failing]:
        yield source

    named = lent("theirs", source) if borrowed else NamedSource("theirs", partial(open_it))
    send, receive = trio.open_memory_channel[Report](0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(SourceKeeper(named, 10, True, Random(1)).run_source, send)
        report = await receive.receive()
        nursery.cancel_scope.cancel()
    assert isinstance(report, Troubled)
    assert report.why.startswith(begins)
    assert len(report.why) <= 500
    assert (re.search(r" \(test_sources\.py, line \d+\)$", report.why) is not None) == placed
    assert placed or report.why == begins


async def test_a_source_behind_one_of_ours_is_told_with_its_own_line():
    send, receive = trio.open_memory_channel[Report](0)
    named = lent("theirs", Scripted(KeyError("bug")), code=Scripted)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(SourceKeeper(named, 10, True, Random(1)).run_source, send)
        report = await receive.receive()
        nursery.cancel_scope.cancel()
    assert re.search(r"KeyError: 'bug' \(source_kit\.py, line \d+\)$", str(report.why))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("mortal", "says"),
    [(Mortal(opening=[OSError("no")]), "cannot be opened: OSError: no"), (Mortal(OSError("x")), "died: OSError: x")],
)
async def test_what_opening_raises_and_what_a_source_dies_of_is_told_with_its_line(autojump_clock, mortal, says):
    async def use(source: object) -> None:
        await trio.sleep_forever()

    end = await use_source(NamedSource("theirs", mortal.open), use)
    assert re.fullmatch(rf"{says} \(source_kit\.py, line \d+\)", end.why)


async def test_ctrl_c_inside_a_source_is_nobodys_death_but_the_runs(autojump_clock):
    error = await Heard(Mortal(KeyboardInterrupt())).refused(100)
    assert isinstance(error, KeyboardInterrupt)
    error = await Heard(Scripted("a", BaseExceptionGroup("g", [KeyboardInterrupt()]))).refused(100)
    assert isinstance(error, KeyboardInterrupt)


async def test_an_error_of_ours_is_not_taken_for_the_sources(autojump_clock):
    class Swallowing(Scripted):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[Scripted]:
            with suppress(BaseException):
                yield self

    heard = Heard(Swallowing("a", "a b"))

    def fail(changes: Sequence[Change]) -> None:
        raise LookupError("a bug")

    async with trio.open_nursery() as outer:
        with pytest.RaisesGroup(pytest.RaisesGroup(LookupError)):
            async with trio.open_nursery() as nursery:
                await nursery.start(heard.poller.run_poller)
                heard.poller.on_changes = fail
                await trio.sleep(100)
        outer.cancel_scope.cancel()
    assert heard.told == []


# --- the end


class Closing(Scripted):
    """Takes its time to close."""

    def __init__(self, closing_s: float) -> None:
        super().__init__("a")
        self.closing_s = closing_s
        self.closed: list[str] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Scripted]:
        async with trio.open_nursery() as nursery:  # with a scope that no shield around the closing alone would hold
            nursery.start_soon(self._die, nursery.cancel_scope)
            yield self
            nursery.cancel_scope.cancel()
        self.closed.append("begun")
        await trio.sleep(self.closing_s)
        self.closed.append("ended")

    async def _die(self, scope: trio.CancelScope) -> None:
        await trio.sleep(25)
        scope.cancel()


def test_leaving_gives_every_source_two_seconds_to_close():
    async def leave() -> float:
        await Heard(quick, slow, hanging).run(20)
        return trio.current_time()

    for _ in range(10):  # all is due at one instant, in an order of chance
        quick, slow, hanging = Closing(0), Closing(1.5), Closing(1e9)
        start = trio.testing.MockClock(autojump_threshold=0)
        assert trio.run(leave, clock=start) == 22
        assert (quick.closed, slow.closed, hanging.closed) == (["begun", "ended"], ["begun", "ended"], ["begun"])


async def test_what_is_cancelled_already_opens_no_source(autojump_clock):
    mortal = Mortal()

    async def use(source: object) -> None:
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        scope.cancel()
        await use_source(NamedSource("never", mortal.open), use)
    assert mortal.opened_at == []


async def test_a_source_that_hangs_in_its_closing_when_it_dies_is_opened_again(autojump_clock):
    heard = Heard(Closing(1e9))
    await heard.run(40)
    assert heard.told[0] == (False, f"died: it cancelled itself{STANDS}")
    assert heard.told[1] == (True, "readable again after 0:01")


async def test_a_source_that_fails_in_its_closing_hides_no_other_error(autojump_clock):
    class Failing(Scripted):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[Scripted]:
            yield self
            raise OSError("cannot be closed")

    heard = Heard(Failing("a"))
    await heard.run(20)
    assert isinstance(await Heard(Failing("!x")).refused(), ConfigError)
    assert heard.told == []


@pytest.mark.parametrize("script", ["lives", "dies", "cannot be opened again", "opens slowly"])
def test_cancelling_at_any_step_leaves_no_source_open(script):
    mortals: list[Mortal] = []

    async def use() -> None:
        mortal = {
            "lives": Mortal(),
            "dies": Mortal(ConnectionError("lost"), "cancelled"),
            "cannot be opened again": Mortal(ConnectionError("lost"), opening=[None, OSError("no"), OSError("no")]),
            "opens slowly": Mortal(opening=[4.0]),
        }[script]
        mortals[:] = [mortal]
        await Heard(mortal, Scripted("b")).run(40)

    def check_closed() -> None:
        assert all(mortal.open_now == 0 for mortal in mortals)

    assert cancel_at_every_step(use, check_closed) > 3


def test_cancelling_the_task_that_keeps_a_source_at_any_step_leaves_it_closed():
    mortals: list[Mortal] = []

    async def use() -> None:
        mortals[:] = [Mortal(ConnectionError("lost"), opening=[None, OSError("no")])]
        heard = Heard(*mortals)
        keeper = heard.poller._sourced[0].keeper
        send, receive = trio.open_memory_channel(0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, receive, nursery.cancel_scope)
            await keeper.run_source(send)

    async def take(receive: trio.MemoryReceiveChannel[object], scope: trio.CancelScope) -> None:
        for _ in range(6):
            await receive.receive()
        scope.cancel()

    def check_closed() -> None:
        assert all(mortal.open_now == 0 for mortal in mortals)

    assert cancel_at_every_step(use, check_closed) > 20
