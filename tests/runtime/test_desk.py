"""The desk: which sessions are open, and what becomes of their requests."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest
import trio

from scavenge.calls import Call, ModelCard, Relayed
from scavenge.errors import PoisonRequest, UnknownSession
from scavenge.runtime.desk import SessionDesk
from scavenge.testing.sweep import cancel_at_every_step
from scavenge.types import ApiType, ModelAddress, Rejected, Reply, RequestFailed

REPLY = Relayed(Reply("hello!", "stop"))
CARD = ModelCard("pool", "the-model")


class Model:
    """A session that takes a while for each request."""

    card = CARD

    def __init__(self, takes_s: float = 1.0) -> None:
        self.takes_s = takes_s
        self.heard: list[tuple[object, dict[str, object]]] = []
        self.under_way = 0

    async def relay(self, call, sink):
        self.heard.append((call, sink))
        self.under_way += 1
        try:
            await trio.sleep(self.takes_s)
        finally:
            self.under_way -= 1
        return REPLY


def call(session_id: str | None) -> Call:
    return Call(ApiType.CHAT_COMPLETIONS, b"{}", {}, session_id=session_id)


def make_desk() -> SessionDesk:
    numbers = itertools.count(1)
    return SessionDesk(
        lambda session_id: ModelAddress(f"http://gateway/{session_id}", "key"), lambda: f"s{next(numbers)}"
    )


async def test_a_request_goes_to_the_session_that_it_names_with_its_options(autojump_clock):
    desk, first, second = make_desk(), Model(), Model()
    assert desk.admit(first) == ModelAddress("http://gateway/s1", "key")
    assert desk.admit(second) == ModelAddress("http://gateway/s2", "key")
    asked, sink = call("s2"), object()
    assert await desk.answer(asked, sink) is REPLY
    assert (first.heard, second.heard) == ([], [(asked, sink)])


def test_a_session_that_is_open_stays_where_it_is():
    desk, session = make_desk(), Model()
    assert desk.admit(session) is desk.admit(session)


def test_a_session_that_comes_back_has_a_number_of_its_own():
    desk, session = make_desk(), Model()
    before = desk.admit(session)
    desk.dismiss(session)
    assert desk.admit(session) != before


async def test_a_session_that_never_was_is_unknown_and_named():
    with pytest.raises(UnknownSession, match="'nobody'"):
        await make_desk().answer(call("nobody"), None)


async def test_a_session_that_was_dismissed_is_unknown_at_once(autojump_clock):
    desk, session = make_desk(), Model()
    desk.admit(session)
    desk.dismiss(session)
    with pytest.raises(UnknownSession):
        await desk.answer(call("s1"), None)
    assert session.heard == []


async def test_dismissing_a_session_ends_its_requests_and_nobody_elses(autojump_clock):
    desk, session, other = make_desk(), Model(10), Model(10)
    desk.admit(session), desk.admit(other)
    ended: list[object] = []

    async def ask(session_id: str) -> None:
        try:
            await desk.answer(call(session_id), None)
        except UnknownSession:
            ended.append((session_id, trio.current_time() - started))
        else:
            ended.append((session_id, "answered"))

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        for session_id in ("s1", "s1", "s2"):
            nursery.start_soon(ask, session_id)
        await trio.sleep(3)
        desk.dismiss(session)
        assert session.under_way == 2  # dismissing does not wait
    assert ended == [("s1", 3), ("s1", 3), ("s2", "answered")]
    assert session.under_way == 0


async def test_a_reply_that_came_in_the_moment_of_dismissal_is_still_told(autojump_clock):
    desk = make_desk()

    class Quick:
        async def relay(self, call, sink):
            await trio.lowlevel.checkpoint()
            desk.dismiss(self)
            return REPLY

    desk.admit(Quick())
    assert await desk.answer(call("s1"), None) is REPLY


async def test_cancelled_from_outside_a_request_ends_without_an_error_of_ours(autojump_clock):
    desk, session = make_desk(), Model(10)
    desk.admit(session)
    with trio.move_on_after(1) as scope:
        await desk.answer(call("s1"), None)
    assert scope.cancelled_caught
    assert session.under_way == 0


async def test_cancelled_from_outside_and_dismissed_at_once_it_is_cancelled(autojump_clock):
    desk, session = make_desk(), Model(10)
    desk.admit(session)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.answer, call("s1"), None)
            await trio.sleep(1)
            scope.cancel()
            desk.dismiss(session)
    assert scope.cancelled_caught


@pytest.mark.parametrize("error", [RequestFailed(Rejected("too long"), ()), PoisonRequest("lost 20 times")])
async def test_what_a_session_raises_goes_through(error):
    class Failing:
        async def relay(self, call, sink):
            raise error

    desk = make_desk()
    desk.admit(Failing())
    with pytest.raises(type(error)) as raised:
        await desk.answer(call("s1"), None)
    assert raised.value is error


async def test_a_call_that_names_no_session_is_none_of_any(autojump_clock):
    desk = make_desk()
    desk.admit(Model())
    with pytest.raises(UnknownSession):
        await desk.answer(call(None), None)


def test_the_models_are_those_of_the_open_sessions_once_each_and_no_client_ends_one():
    desk, session = make_desk(), Model()
    desk.admit(session), desk.admit(Model())
    assert list(desk.models()) == [CARD]
    assert desk.end_session("s1") is False
    desk.dismiss(session)
    assert list(desk.models()) == [CARD]


def test_dismissing_a_session_that_was_never_admitted_does_nothing():
    desk, session = make_desk(), Model()
    desk.admit(session)
    desk.dismiss(Model())
    assert desk.admit(session).base_url == "http://gateway/s1"


def test_nothing_is_kept_of_a_session_that_was_dismissed():
    desk, session = make_desk(), Model()
    desk.admit(session)
    desk.dismiss(session)
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None


async def test_a_session_that_lives_long_keeps_nothing_of_its_requests(autojump_clock):
    desk, session = make_desk(), Model()
    desk.admit(session)
    before = count_scopes()
    for _ in range(100):
        await desk.answer(call("s1"), None)
    assert count_scopes() < before + 50  # the clock and the runner have some of their own


def count_scopes() -> int:
    gc.collect()
    return sum(type(thing) is trio.CancelScope for thing in gc.get_objects())  # isinstance() would ask every thing


def test_a_request_that_is_cancelled_at_any_step_leaves_nothing():
    made: list[tuple[SessionDesk, Model]] = []

    async def use() -> None:
        desk, session = make_desk(), Model()
        made.append((desk, session))
        desk.admit(session)
        await desk.answer(call("s1"), None)
        desk.dismiss(session)

    def check() -> None:
        desk, session = made[-1]
        assert session.under_way == 0
        desk.dismiss(session)  # cancels what it still knows of

    assert cancel_at_every_step(use, check) > 2


async def test_a_dismissal_at_any_step_of_a_request_ends_it_or_lets_its_reply_through():
    seen: list[str] = []

    class Stepping:
        async def relay(self, call, sink):
            for _ in range(5):
                await trio.lowlevel.checkpoint()
            return REPLY

    async def ask(desk: SessionDesk) -> None:
        try:
            assert await desk.answer(call("s1"), None) is REPLY
            seen.append("answered")
        except UnknownSession:
            seen.append("ended")

    for steps in range(10):
        desk, session = make_desk(), Stepping()
        desk.admit(session)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, desk)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            desk.dismiss(session)
    assert len(seen) == 10
    assert set(seen) == {"answered", "ended"}
