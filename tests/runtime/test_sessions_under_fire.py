"""Multi-turn rollouts over a whole pool: endpoints die under them, rollouts fail between turns, all is cancelled."""

from __future__ import annotations

import attrs
import pytest
import trio
from fleet_kit import NO_RETRIES, open_kit
from trio.testing import wait_all_tasks_blocked

from scavenge.core.sessions.budget import Budget, BudgetSettings
from scavenge.core.sessions.off import Off, OffSettings
from scavenge.core.sessions.policy import Capacity
from scavenge.core.sessions.table import MakeSessions
from scavenge.errors import UsageError
from scavenge.events import SessionsMoved
from scavenge.rollouts import Example, Rollout
from scavenge.runtime.ports import Environment
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import Session
from scavenge.testing.batching_settings import BatchingSettings
from scavenge.testing.fleet import SimulatedFleet
from scavenge.testing.served import SimulatedServer
from scavenge.testing.sweep import cancel_at_every_step
from scavenge.types import RequestFailed
from session_kit import place_in

WORDS = "word " * 400


def small(tokens=1500):
    """Room for two or three of the contexts below."""
    return MakeSessions("budget", lambda: Budget(BudgetSettings(tokens=tokens)))


@attrs.define(eq=False)
class Talks(Environment):
    """Some calls, each with all that was said before, and a tool after each that may fail."""

    count: int = 12
    turns: int = 4
    fails: dict[tuple[str, int], int] = attrs.field(factory=dict)
    """How often the tool of an example fails after a turn."""
    multi_turn = True

    def examples(self):
        return (Example(str(number), {}) for number in range(self.count))

    async def play(self, example, model):
        messages = []
        for turn in range(self.turns):
            messages.append({"role": "user", "content": WORDS})
            reply = await model.chat(messages)
            messages.append({"role": "assistant", "content": reply.text})
            if self.fails.get((example.id, turn), 0):
                self.fails[example.id, turn] -= 1
                raise OSError("the tool broke")
            await trio.sleep(2)
        return Rollout("", 1.0)


def fleet_of(*names, script=""):
    engine = BatchingSettings(kv_tokens=3_000)
    return SimulatedFleet([SimulatedServer(name, engine) for name in names], script)


def check_empty(pool):
    gate = pool.sessions
    assert (gate.taken, gate.waiting, gate.paused) == (0, 0, 0)
    assert not pool.dispatcher.held()
    assert gate.status() is None or gate.status().context_tokens == 0


async def test_sessions_whose_endpoints_die_under_them_all_end(autojump_clock):
    script = "; ".join(
        f"t={at} kill {name}; t={at + 5} restart {name}" for at, name in ((3, "a"), (9, "b"), (21, "a"), (22, "b"))
    )
    with trio.fail_after(3600):
        async with open_kit(fleet_of("a", "b", script=script), sessions=small()) as kit:
            await kit.play(kit.job(Talks()))
            assert {line["status"] for line in kit.lines.written} == {"ok"}
            assert len(kit.lines.keys) == len(set(kit.lines.keys)) == 12
            assert any(attempt["outcome"] == "lost" for attempt in kit.lines.attempts())
            check_empty(kit.pool)


async def test_a_rollout_that_fails_between_turns_gives_its_place_back(autojump_clock):
    fails = {(str(number), 1): 1 for number in range(0, 12, 2)}
    async with open_kit(fleet_of("a"), sessions=small()) as kit:
        await kit.play(kit.job(Talks(fails=fails)))
        assert [line["status"] for line in kit.lines.written].count("error") == 6
        check_empty(kit.pool)


async def test_a_rollout_that_is_played_afresh_keeps_its_place_and_begins_with_no_context(autojump_clock):
    contexts = []

    class Looks(Talks):
        async def play(self, example, model):
            contexts.append((kit.pool.sessions.taken, model.place.calls, model.place.counted_tokens))
            return await super().play(example, model)

    async with open_kit(fleet_of("a"), sessions=small()) as kit:
        await kit.play(kit.job(Looks(count=1, fails={("0", 2): 2}), rollout_retries=2))
        assert contexts == [(1, 0, 0)] * 3
        assert [line["status"] for line in kit.lines.written] == ["ok"]
        check_empty(kit.pool)


async def test_a_paused_call_of_a_place_that_is_given_back_ends_and_the_pool_goes_on(autojump_clock):
    async with open_kit(fleet_of("a"), sessions=small(100)) as kit:
        gate = kit.pool.sessions
        old, young = [await kit.pool.acquire_place(age) for age in (1, 2)]
        for place in (old, old, young):
            await gate.turn(place, 90)
            gate.turn_ended(place)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def ask():
                with pytest.raises(UsageError, match="open another one"):
                    await gate.turn(young, 90)

            await wait_all_tasks_blocked()
            assert gate.paused == 1
            gate.leave(young)
        gate.leave(old)
        check_empty(kit.pool)


async def test_where_nothing_will_ever_serve_them_those_at_the_door_are_turned_away(autojump_clock):
    async with open_kit(fleet_of("a"), elastic=False, rename="another-model") as kit:
        await kit.play(kit.job(Talks(count=5), retry=NO_RETRIES))
        assert {line["error"]["type"] for line in kit.lines.written} == {"RequestFailed"}
        with pytest.raises(RequestFailed):
            await kit.pool.acquire_place(1)
        check_empty(kit.pool)


async def test_calls_beside_each_other_in_one_session_do_not_wait_for_their_own_turn(autojump_clock):
    class Forks(Talks):
        async def play(self, example, model):
            await super().play(example, model)
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(model.chat, [{"role": "user", "content": WORDS}])
            return Rollout("", 1.0)

    async with open_kit(fleet_of("a"), sessions=small(300), limit=2) as kit:
        with trio.fail_after(3600):
            await kit.play(kit.job(Forks(count=6)))
        assert {line["status"] for line in kit.lines.written} == {"ok"}
        check_empty(kit.pool)


async def test_a_flapping_endpoint_floods_nobody_with_moves_of_the_bound(autojump_clock):
    script = "; ".join(f"t={at} kill b; t={at + 4} restart b" for at in range(4, 400, 8))
    async with open_kit(fleet_of("a", "b", script=script)) as kit:
        with trio.fail_after(36_000):
            await kit.play(kit.job(Talks(count=60)))
        moves = [event for event in kit.events if isinstance(event, SessionsMoved)]
        assert len(moves) < 10, moves


def test_cancelled_at_any_step_of_its_calls_a_session_leaves_nothing_behind():
    pools = []

    async def talk(kit, age, calls):
        async with place_in(kit.pool.sessions, age) as place:
            session = Session(kit.pool, age, RequestSettings(), kit.ports, place=place)
            for _ in range(calls):
                await session.chat([{"role": "user", "content": f"{age} {WORDS}"}])
                await trio.sleep(1)

    async def use():
        async with open_kit(fleet_of("a"), sessions=small(700)) as kit:
            pools.append(kit.pool)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk, kit, 1, 4)
                await trio.sleep(0.5)
                await talk(kit, 2, 3)

    def check():
        if pools:
            check_empty(pools[-1])

    assert cancel_at_every_step(use, check) > 40


class Listens(Off):
    """Keeps how many endpoints it was told of each time."""

    def __init__(self) -> None:
        super().__init__(OffSettings())
        self.told: list[int] = []

    def observe(self, event, now):
        if isinstance(event, Capacity):
            self.told.append(len(event.loads))


async def test_endpoints_that_come_or_go_together_are_told_together(autojump_clock):
    policy, names = Listens(), [f"s{number}" for number in range(50)]
    leaving = "; ".join(f"t=15 leave {name}" for name in names[10:])
    async with open_kit(fleet_of(*names, script=leaving), sessions=MakeSessions("off", lambda: policy)):
        await trio.sleep(60)
    assert 50 in policy.told
    assert policy.told[-1] == 10
    assert len(policy.told) < 10
