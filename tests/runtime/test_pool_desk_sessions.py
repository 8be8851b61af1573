"""Sessions at the desk of a gateway: their places, their ends, and what is kept of them."""

from __future__ import annotations

import pytest
import trio
from relay_kit import Desk, Server, call, ok, open_desk, saying, sessions_fixed_to

from scavenge.errors import NoEndpointsError, PoisonRequest, ScavengeError
from scavenge.types import Busy, Lost

A, B, C = "http://a/v1", "http://b/v1", "http://c/v1"


async def test_a_session_stays_with_its_endpoint_and_has_a_place_until_it_is_ended(autojump_clock):
    servers = {url: Server(saying(ok())) for url in (A, B, C)}
    async with open_desk(servers) as kit:
        for _ in range(6):
            await kit.desk.answer(call(session="s1"), None)
        assert sorted(len(server.asked) for server in servers.values()) == [0, 0, 6]
        assert (kit.desk.sessions, kit.places) == (1, 1)
        assert kit.desk.end_session("s1") is True
        assert (kit.desk.sessions, kit.places) == (0, 0)
        assert kit.desk.end_session("s1") is False


async def test_a_session_without_a_call_ends_after_its_time_and_a_call_keeps_it(autojump_clock):
    async with open_desk({A: Server(saying(ok(), after_s=100))}, session_idle_s=60) as kit:
        await kit.desk.answer(call(session="s1"), None)
        await trio.sleep(50)
        await kit.desk.answer(call(session="s1"), None)  # longer under way than a session may be idle
        assert kit.desk.sessions == 1
        await trio.sleep(58)
        assert kit.desk.sessions == 1
        await trio.sleep(5)
        assert (kit.desk.sessions, kit.places) == (0, 0)


async def test_ending_a_session_ends_its_calls_and_nobody_elses(autojump_clock):
    async with open_desk({A: (server := Server(saying(ok(), after_s=10)))}) as kit:
        ends: list[str] = []
        async with trio.open_nursery() as nursery:
            for session in ("s1", "s1", "s2", None):
                nursery.start_soon(end_of, kit, session, ends)
            await trio.sleep(1)
            assert kit.desk.end_session("s1")
        assert sorted(ends) == ["None: ok", "s1: UnknownSession", "s1: UnknownSession", "s2: ok"]
        assert (server.dropped, kit.lent) == (2, 0)
        assert sorted(event.outcome for event in kit.ended()) == ["ended", "ended", "ok", "ok"]


async def end_of(kit: Desk, session: str | None, ends: list[str]) -> None:
    try:
        await kit.desk.answer(call(session=session), None)
    except ScavengeError as exc:
        ends.append(f"{session}: {type(exc).__name__}")
    else:
        ends.append(f"{session}: ok")


async def test_sessions_beyond_the_limit_wait_for_one_that_ends(autojump_clock):
    async with open_desk({A: Server(saying(ok(), after_s=200))}, make_sessions=sessions_fixed_to(1)) as kit:
        async with trio.open_nursery() as nursery:
            ends: list[str] = []
            for session in ("s1", "s2", "s2", None):
                nursery.start_soon(end_of, kit, session, ends)
                await trio.sleep(1)
            await trio.sleep(100)
            assert kit.places == 2  # one session waits, whatever number of calls it has
            await trio.sleep(102)
            assert ends == ["s1: ok", "None: ok"]  # a call without a session needs no place
            kit.desk.end_session("s1")
        assert ends == ["s1: ok", "None: ok", "s2: ok", "s2: ok"]


@pytest.mark.parametrize(("calls", "idle_s"), [(1, 5), (2, 60)])
async def test_an_idle_session_gives_its_place_to_one_that_waits(autojump_clock, calls, idle_s):
    async with open_desk({A: Server(saying(ok()))}, make_sessions=sessions_fixed_to(1)) as kit:
        for _ in range(calls):
            await kit.desk.answer(call(session="s1"), None)
        idle_since = trio.current_time()
        await kit.desk.answer(call(session="s2"), None)
        assert idle_s <= trio.current_time() - idle_since <= idle_s + 2
        assert (kit.desk.sessions, kit.places) == (2, 1)


async def test_an_idle_session_gives_its_place_though_the_last_that_others_heard_was_no_answer(autojump_clock):
    full = Busy("full", 429, 5.0)
    async with open_desk({A: Server(saying(ok(), full, full, ok()))}, make_sessions=sessions_fixed_to(1)) as kit:
        await kit.desk.answer(call(session="s1"), None)
        with trio.move_on_after(10):  # it hangs up while the server has its pause
            await kit.desk.answer(call(), None)
        with trio.fail_after(10):
            await kit.desk.answer(call(session="s2"), None)


async def test_an_idle_session_keeps_its_place_while_nobody_waits_for_it(autojump_clock):
    async with open_desk({A: Server(saying(ok()))}, make_sessions=sessions_fixed_to(2)) as kit:
        for session in ("s1", "s2"):
            await kit.desk.answer(call(session=session), None)
        await trio.sleep(100)
        assert kit.places == 2


async def test_of_idle_sessions_no_more_than_needed_give_their_places_the_longest_idle_first(autojump_clock):
    async with open_desk({A: Server(saying(ok()))}, make_sessions=sessions_fixed_to(2)) as kit:
        for session in ("s1", "s2", "s1"):
            await kit.desk.answer(call(session=session), None)
            await trio.sleep(70)
        await kit.desk.answer(call(session="s3"), None)
        assert (kit.desk.sessions, kit.places) == (3, 2)
        async with trio.open_nursery() as nursery:
            ends: list[str] = []
            for session in ("s2", "s1"):
                nursery.start_soon(end_of, kit, session, ends)
            await trio.sleep(2)
            assert ends == ["s1: ok"]


async def test_a_session_that_gave_its_place_goes_on_before_younger_ones(autojump_clock):
    async with open_desk({A: Server(saying(ok()))}, make_sessions=sessions_fixed_to(1)) as kit:
        for session in ("s1", "s2"):
            await kit.desk.answer(call(session=session), None)
        async with trio.open_nursery() as nursery:
            ends: list[str] = []
            for session in ("s3", "s1"):
                nursery.start_soon(end_of, kit, session, ends)
                await trio.sleep(1)
        assert ends == ["s1: ok", "s3: ok"]


async def test_the_first_call_of_a_session_may_hang_up_while_it_waits_for_the_place_of_all(autojump_clock):
    async with open_desk({A: Server(saying(ok()))}, make_sessions=sessions_fixed_to(1)) as kit:
        await kit.desk.answer(call(session="s1"), None)
        ends: list[str] = []
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(3):
                async with trio.open_nursery() as impatient:
                    impatient.start_soon(end_of, kit, "s2", ends)
                    await trio.testing.wait_all_tasks_blocked()
                    nursery.start_soon(end_of, kit, "s2", ends)
            kit.desk.end_session("s1")
        assert ends == ["s2: ok"]
        assert kit.places == 1


async def test_a_session_that_is_ended_while_it_waits_for_its_place_gets_none(autojump_clock):
    async with open_desk({A: Server(saying(ok()))}, make_sessions=sessions_fixed_to(1)) as kit:
        await kit.desk.answer(call(session="s1"), None)
        ends: list[str] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_of, kit, "s2", ends)
            await trio.sleep(3)
            kit.desk.end_session("s1")  # in one tick: the place is free, and who waits for it is told to go
            kit.desk.end_session("s2")
        assert ends == ["s2: UnknownSession"]
        assert (kit.places, kit.desk.sessions) == (0, 0)


async def test_waiting_for_a_place_has_its_patience_too(autojump_clock):
    server = Server(saying(ok()))
    async with open_desk({A: server}, make_sessions=sessions_fixed_to(1), stall_timeout_s=60) as kit:
        await kit.desk.answer(call(session="s1"), None)
        server.alive = False
        server.answer = saying(Lost("connection refused"))
        with pytest.raises((NoEndpointsError, PoisonRequest)):
            await kit.desk.answer(call(), None)
        with pytest.raises(NoEndpointsError):
            await kit.desk.answer(call(session="s2"), None)
        assert kit.places == 1


async def test_one_id_in_two_pools_is_two_sessions_that_end_together(autojump_clock):
    async with open_desk({A: Server(saying(ok()))}) as kit:
        kit.add(B, Server(saying(ok())), pool="other", model="other-model")
        await trio.sleep(2)
        await kit.desk.answer(call("sim", session="s1"), None)
        await kit.desk.answer(call("other", session="s1"), None)
        assert (kit.desk.sessions, kit.places) == (2, 2)
        assert kit.desk.end_session("s1")
        assert (kit.desk.sessions, kit.places) == (0, 0)


async def test_a_desk_that_closes_gives_all_places_back(autojump_clock):
    async with open_desk({A: Server(saying(ok()))}) as kit:
        for session in ("s1", "s2", "s3"):
            await kit.desk.answer(call(session=session), None)
        kit.desk.close()
        assert (kit.desk.sessions, kit.places) == (0, 0)


async def test_nothing_is_kept_of_what_a_session_has_said(autojump_clock):
    async with open_desk({A: Server(saying(ok()))}) as kit:
        for _ in range(3):
            await kit.desk.answer(call(session="s1"), None)
        (session,) = (guest.session for guest in kit.desk._guests.values())
        assert (session.prompt, session.attempts) == (None, [])


async def test_calls_of_one_session_at_once_tell_each_its_own_attempts(autojump_clock):
    async with open_desk({A: Server(saying(Lost("gone"), ok()))}) as kit:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(kit.desk.answer, call(session="s1"), None)
        assert sorted(event.attempts for event in kit.ended()) == [1, 1, 2]
