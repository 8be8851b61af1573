"""Named stories of sessions at their gate, on a virtual clock; and cancellation at every step."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from scavenge.core.sessions.budget import Budget, BudgetSettings
from scavenge.core.sessions.doorkeeper import COLD_AFTER_S
from scavenge.core.sessions.fixed import FixedSessions, FixedSessionsSettings
from scavenge.core.sessions.follow import Follow, FollowSettings
from scavenge.errors import UsageError
from scavenge.events import SessionsMoved
from scavenge.runtime.session_gate import SessionGate, run_session_gate
from scavenge.signals import ServerLoad
from scavenge.testing.sweep import cancel_at_every_step
from scavenge.types import EndpointId, Url, Usage
from session_kit import place_in

A = Url("http://a/v1")


def make(policy, slots=10, emit=lambda event: None):
    gate = SessionGate(EndpointId("pool"), "policy", policy, emit)
    gate.set_slots(slots)
    return gate


def fixed(limit, **more):
    return make(FixedSessions(FixedSessionsSettings(limit)), **more)


def budget(tokens, **more):
    return make(Budget(BudgetSettings(tokens=tokens)), **more)


async def take(gate, place, tokens, seconds=0.0):
    """A whole turn; for how long it was paused."""
    paused_s = await gate.turn(place, tokens)
    try:
        await trio.sleep(seconds)
    finally:
        gate.turn_ended(place, Usage(tokens, 0, 0), 0.1, A)
    return paused_s


async def grown(gate, age, tokens):
    """A session with a context of so many tokens."""
    place = await gate.enter(age)
    for _ in range(2):
        await take(gate, place, tokens)
    return place


async def test_who_finds_no_place_waits_and_the_oldest_comes_in_first(autojump_clock):
    gate, came = fixed(1), []

    async def live(age):
        async with place_in(gate, age):
            came.append((age, trio.current_time()))
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        for age in (1, 9, 5):
            nursery.start_soon(live, age)
            await wait_all_tasks_blocked()
        assert (gate.taken, gate.waiting) == (1, 2)
    assert came == [(1, 0.0), (5, 1.0), (9, 2.0)]
    assert (gate.taken, gate.waiting) == (0, 0)


async def test_a_cancelled_waiter_leaves_the_door(autojump_clock):
    gate = fixed(1)
    async with place_in(gate, 1):
        with trio.move_on_after(5) as impatient:
            await gate.enter(2)
        assert impatient.cancelled_caught
        assert (gate.taken, gate.waiting) == (1, 0)


async def test_a_waiter_that_is_cancelled_in_the_tick_of_its_grant_keeps_its_place_to_give_back(autojump_clock):
    gate = fixed(1)
    scope, got = trio.CancelScope(), []

    async def wait():
        with scope:
            got.append(await gate.enter(2))

    place = await gate.enter(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        gate.leave(place)
        scope.cancel()
    assert gate.taken == 1
    gate.leave(got[0])
    assert gate.taken == 0


async def test_leaving_works_while_cancelled(autojump_clock):
    gate = fixed(1)
    with trio.CancelScope() as scope:
        async with place_in(gate, 1):
            scope.cancel()
            await trio.sleep(1)
    assert gate.taken == 0


async def test_a_place_is_given_back_once(autojump_clock):
    gate = fixed(1)
    place = await gate.enter(1)
    gate.leave(place)
    with pytest.raises(UsageError, match="open another one"):
        gate.leave(place)
    with pytest.raises(UsageError, match="open another one"):
        await gate.turn(place, 10)


async def test_sessions_that_wait_come_in_with_the_slots(autojump_clock):
    gate = make(Follow(FollowSettings()), slots=0)
    async with trio.open_nursery() as nursery:
        for age in range(10):
            nursery.start_soon(gate.enter, age)
        await wait_all_tasks_blocked()
        assert (gate.taken, gate.waiting) == (0, 10)
        gate.set_slots(1)
        assert (gate.taken, gate.waiting) == (6, 4)
        gate.set_slots(99)
    assert (gate.taken, gate.waiting) == (10, 0)


async def test_a_turn_waits_while_older_contexts_leave_no_room_and_tells_how_long(autojump_clock):
    gate = budget(1000)
    old, young = await grown(gate, 1, 900), await gate.enter(2)
    assert await take(gate, young, 500) == 0.0
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def end_later():
            await trio.sleep(7)
            gate.leave(old)

        assert await take(gate, young, 600) == 7.0
    gate.leave(young)


async def test_a_paused_call_that_is_cancelled_is_given_up_and_its_session_holds_nobody_for_ever(autojump_clock):
    gate = budget(1000)
    old, second, third = [await grown(gate, age, 100) for age in (1, 2, 3)]
    await gate.turn(old, 500)
    went = []

    async def give_up():
        with trio.move_on_after(20):
            await gate.turn(second, 900)
        assert (gate.paused, second.working) == (1, 0)

    async def wait():
        went.append(await take(gate, third, 100))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_up)
        await wait_all_tasks_blocked()
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        nursery.start_soon(run_session_gate, gate)  # nobody is idle yet: it has nothing to wake for
        await trio.sleep(2 * COLD_AFTER_S)
        nursery.cancel_scope.cancel()
    assert went == [20 + COLD_AFTER_S]
    gate.turn_ended(old)


async def test_a_place_that_is_given_back_ends_its_paused_calls(autojump_clock):
    gate = budget(1000)
    await grown(gate, 1, 990)
    young = await grown(gate, 2, 5)

    async def ask():
        with pytest.raises(UsageError, match="open another one"):
            await gate.turn(young, 500)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        gate.leave(young)
    assert (gate.paused, gate.taken) == (0, 1)


async def test_whoever_waits_for_a_session_goes_on_when_that_starts_afresh(autojump_clock):
    gate = budget(1000)
    old, young = await grown(gate, 1, 990), await grown(gate, 2, 5)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def start_afresh():
            await trio.sleep(3)
            gate.restart(old)

        assert await take(gate, young, 500) == 3.0
    assert gate.taken == 2


async def test_the_turn_of_a_session_that_has_left_still_ends(autojump_clock):
    gate = budget(1000)
    place = await gate.enter(1)
    await gate.turn(place, 10)
    gate.leave(place)
    gate.turn_ended(place, Usage(10, 5), None, A)
    assert gate.taken == 0


async def test_a_call_within_a_call_of_the_same_session_never_waits(autojump_clock):
    gate = budget(100)
    old, young = await grown(gate, 1, 50), await grown(gate, 2, 40)
    await gate.turn(young, 45)
    await take(gate, old, 10_000)
    with trio.fail_after(1):
        assert await take(gate, young, 10_000) == 0.0
    gate.turn_ended(young)
    with trio.move_on_after(1) as held:
        await gate.turn(young, 10_000)
    assert held.cancelled_caught


async def test_whoever_waits_for_an_idle_session_goes_on_once_that_is_cold(autojump_clock):
    gate = budget(1000)
    await grown(gate, 1, 990)
    await trio.sleep(20)
    young = await grown(gate, 2, 5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_session_gate, gate)
        await wait_all_tasks_blocked()
        assert await take(gate, young, 600) == COLD_AFTER_S - 20
        nursery.cancel_scope.cancel()


async def test_a_gate_that_nobody_waits_at_wakes_for_nothing(autojump_clock):
    gate = budget(1000)
    await grown(gate, 1, 10)
    with trio.move_on_after(10 * COLD_AFTER_S):
        await gate.wait_due()
        pytest.fail("it was woken")


@pytest.mark.parametrize("turns", [1, 5])
async def test_sessions_that_need_far_more_than_the_budget_all_end_the_oldest_first(autojump_clock, turns):
    gate, slots, ended = budget(10, slots=3), trio.Semaphore(3), []

    async def live(age):
        async with place_in(gate, age) as place:
            for turn in range(turns):
                await gate.turn(place, 1000 * (turn + 1))
                try:
                    async with slots:
                        await trio.sleep(1)
                finally:
                    gate.turn_ended(place, Usage(1000 * (turn + 1), 100, 0), 0.1, A)
                await trio.sleep(3)
        ended.append(age)

    with trio.fail_after(10_000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_session_gate, gate)
            async with trio.open_nursery() as sessions:
                for age in range(30):
                    sessions.start_soon(live, age)
                    await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert sorted(ended) == list(range(30))
    if turns > 1:
        assert ended == sorted(ended)
    assert (gate.taken, gate.waiting, gate.paused) == (0, 0, 0)


# --- what it tells


async def test_its_status_is_empty_until_the_first_session_comes_and_then_says_all(autojump_clock):
    gate = budget(1000)
    assert gate.status() is None
    await grown(gate, 1, 900)
    young = await grown(gate, 2, 50)
    with trio.move_on_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gate.turn, young, 500)
            await wait_all_tasks_blocked()
            nursery.start_soon(gate.enter, 3)
            await wait_all_tasks_blocked()
            status = gate.status()
    assert (status.policy, status.live, status.waiting, status.paused) == ("policy", 2, 1, 1)
    assert (status.context_tokens, status.budget_tokens, status.limit) == (1400, 1000, None)
    assert status.reason == "set"


async def test_it_tells_when_its_bound_moved_by_more_than_a_tenth(autojump_clock):
    events = []
    gate = make(Follow(FollowSettings()), slots=5, emit=events.append)
    assert events == [SessionsMoved(EndpointId("pool"), 0, "follows the gates", limit=10)]
    await gate.enter(1)
    gate.set_slots(6)
    assert len(events) == 1
    gate.set_slots(7)
    assert [(event.limit, event.live) for event in events] == [(10, 0), (12, 1)]


async def test_it_tells_of_a_budget_that_follows_the_capacity(autojump_clock):
    events = []
    gate = make(Budget(BudgetSettings(start_tokens=1000)), emit=events.append)
    await gate.enter(1)
    assert events == []
    gate.set_capacity({A: ServerLoad(kv_tokens=10_000)})
    assert events == [SessionsMoved(EndpointId("pool"), 1, "capacity", budget_tokens=9000)]
    gate.set_capacity({A: ServerLoad(kv_tokens=10_500)})
    assert len(events) == 1


def test_it_wants_the_servers_figures_where_its_policy_goes_by_them():
    assert SessionGate(EndpointId("pool"), "budget", Budget(BudgetSettings()), print).wants_load
    assert not SessionGate(EndpointId("pool"), "follow", Follow(FollowSettings()), print).wants_load


# --- cancellation at every step


async def enter_at_once(gate, places):
    await _live(gate, places, 1, 3)


async def wait_at_the_door(gate, places):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_live, gate, places, 1, 2)
        await trio.sleep(0.1)
        await _live(gate, places, 2, 2)


async def be_paused_and_go_on(gate, places):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_live, gate, places, 1, 4)
        await trio.sleep(0.1)
        await _live(gate, places, 2, 3)


async def _live(gate, places, age, turns):
    async with place_in(gate, age) as place:
        places.append(place)
        for _ in range(turns):
            await take(gate, place, 80, seconds=1)
            await trio.sleep(0.5)


@pytest.mark.parametrize(
    ("story", "policy"),
    [
        (enter_at_once, lambda: FixedSessions(FixedSessionsSettings(1))),
        (wait_at_the_door, lambda: FixedSessions(FixedSessionsSettings(1))),
        (be_paused_and_go_on, lambda: Budget(BudgetSettings(tokens=100))),
    ],
)
def test_cancellation_at_any_step_gives_everything_back(story, policy):
    gates, places = [], []

    async def use():
        gates.append(make(policy()))
        with trio.fail_after(1000):
            await story(gates[-1], places)

    def check():
        gate = gates[-1]
        assert (gate.taken, gate.waiting, gate.paused) == (0, 0, 0)
        assert not any(place.working for place in places), "a call went out that nobody ends"

    assert cancel_at_every_step(use, check) > 5
