"""Gates under policies that misbehave: nothing is lost, nobody is blamed, nothing spins."""

from __future__ import annotations

import itertools
import json
import math

import attrs
import pytest
import trio
from gate_kit import POLICIES, A, Kit, Servers, Told, endpoint, open_gates
from source_kit import Caught

from scavenge.app.guarded_policy import GuardedPolicy
from scavenge.core.endpoints_view import as_json, endpoint_table
from scavenge.core.health_settings import SHORTEST_PAUSE_S
from scavenge.core.plainjson import write_json
from scavenge.edge.event_log import EventLog
from scavenge.errors import leaves
from scavenge.events import LimitMoved
from scavenge.signals import GateView
from scavenge.types import Answer, Busy, Url


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    def __init__(self) -> None:
        self.count = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


def counted() -> Steps:
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    return steps


# --- what a policy says of time


@pytest.mark.parametrize("wake", [math.nan, "soon", object()])
async def test_an_instant_that_is_none_ends_the_run_from_the_policys_place_and_keeps_no_slot(autojump_clock, wake):
    caught, kits = Caught(), []
    with caught:
        async with open_gates(lambda: Told(wake=lambda now: wake)) as kit:
            kits.append(kit)
            await kit.chat()
            await trio.sleep(1)
    assert {type(leaf) for leaf in leaves(caught.error)} <= {TypeError, ValueError}
    assert caught.error is not None
    assert not kits[0].pool.dispatcher.held()
    kits[0].check_conserved()


@pytest.mark.parametrize(
    "wake",
    [
        lambda now: -math.inf,
        lambda now: math.inf,
        lambda now: now,
        lambda now: now - 1e9,
    ],
)
async def test_a_policy_that_asks_for_strange_instants_keeps_nobody_busy(autojump_clock, wake):
    async with open_gates(lambda: Told(wake=wake)) as kit:
        await trio.sleep(50)
        steps = counted()
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(kit.chat)
        await trio.sleep(1000)
        assert steps.count < 500
        kit.check_conserved()


async def test_a_policy_that_has_it_both_ways_at_one_instant_keeps_nobody_busy(autojump_clock):
    asked: dict[float, int] = {}

    def wake(now: float) -> float:
        """Not yet, when it is asked first; long ago, when it is asked again; and so on."""
        asked[now] = asked.get(now, 0) + 1
        assert asked[now] < 100, "asked again and again, and no time passes"
        return now + 10 if asked[now] % 2 else now - 10

    async with open_gates(lambda: Told(wake=wake)) as kit:
        await kit.chats(2, 2)
        assert len(asked) < 300


# --- what a policy says of limits


async def test_a_limit_that_dithers_is_told_of_seldom_and_each_move_begins_where_the_last_one_ended(autojump_clock):
    turn = itertools.cycle((1, 10_000))

    @attrs.define
    class Dithers(Told):
        def limit(self, now: float) -> int:
            return next(turn)

        def view(self, now: float) -> GateView:
            return GateView(next(turn), "whim")

    async with open_gates(lambda: Dithers(wake=lambda now: now + 0.1)) as kit:
        await kit.chats(100, 8)
        moves = [event for event in kit.events if isinstance(event, LimitMoved)]
        assert len(moves) > 1
        assert all(one.new == two.old for one, two in itertools.pairwise(moves))
        assert len(moves) <= 1 + trio.current_time()
        kit.check_conserved()


async def test_a_limit_that_moved_while_moves_were_told_often_is_told_in_the_end(autojump_clock):
    policy = Told(100, lambda now: now + 1)
    async with open_gates(lambda: policy) as kit:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kit.chats, 20, 4)
            for limit in (100, 10, 200):
                await trio.sleep(0.05)
                policy.now_limit = limit
                kit.pool.refresh(kit.pool.members[A])
        moves = [event for event in kit.events if isinstance(event, LimitMoved)]
        assert moves[-1].new == 200


HUGE = 10**400


@pytest.mark.parametrize(
    "shown",
    [
        GateView(4, "whim", math.nan, math.inf, -math.inf, math.nan),
        GateView(4, "whim", HUGE, -HUGE, HUGE, HUGE),
        GateView(10**9, "\ud800 \x1b[2J\n" * 1000, 1.0, 2.0, 3.0, 4.0),
    ],
)
async def test_what_a_policy_shows_of_itself_is_told_whatever_it_is(autojump_clock, tmp_path, shown):
    @attrs.define
    class Shows(Told):
        def view(self, now: float) -> GateView:
            return shown

    log = EventLog(tmp_path / "events.jsonl", pytest.fail)
    policies = [Shows()]
    async with open_gates(lambda: GuardedPolicy(policies[0], "a-plugin", "whim")) as kit:
        await kit.chat()
        policies[0].now_limit = 10**9
        await kit.chat()
        status = kit.fleet.status(trio.current_time())
        moves = [event for event in kit.events if isinstance(event, LimitMoved)]
    assert [move.new for move in moves] == [4, 10**9]
    assert all(value is None or math.isfinite(value) for move in moves for value in (move.goodput, move.queue))
    table, _ = endpoint_table(status)
    assert table.rows[0][0] == "pool"
    assert json.loads(write_json(as_json(status), pytest.fail), parse_constant=pytest.fail)["pools"]
    for move in moves:
        log(move)
    log.close()
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail)["new"] for line in lines] == [4, 10**9]


async def test_a_server_that_is_full_and_asks_for_no_patience_is_not_asked_again_and_again(autojump_clock):
    asked = 0

    async def full(stream: object) -> Answer:
        nonlocal asked
        asked += 1
        assert asked < 1000, "asked again and again"
        await trio.lowlevel.checkpoint()
        return Answer(Busy("full", 429, 0.0))

    async with open_gates(POLICIES["fixed"], Servers(full)) as kit:
        with trio.move_on_after(60):
            await kit.chat()
    assert 10 < asked <= 60 / SHORTEST_PAUSE_S + 1


# --- what raises


@attrs.define
class Raises(Told):
    """Raises at the n-th call of one method."""

    method: str = "observe"
    left: int = 1

    def _maybe(self, method: str) -> None:
        if method == self.method:
            self.left -= 1
            if self.left == 0:
                raise ZeroDivisionError(f"a bug in {method}")

    def observe(self, event: object, now: float) -> None:
        self._maybe("observe")

    def limit(self, now: float) -> int:
        self._maybe("limit")
        return 2

    def next_wake_at(self, now: float) -> float | None:
        self._maybe("next_wake_at")
        return now + 0.1

    def view(self, now: float) -> GateView:
        self._maybe("view")
        return GateView(2)


@pytest.mark.parametrize("method", ["observe", "limit", "next_wake_at", "view"])
async def test_what_any_method_raises_at_any_moment_ends_the_run_and_is_no_requests_error(autojump_clock, method):
    ended = 0
    for left in range(1, 40):
        caught, blamed, kits = Caught(), [], []
        with caught:
            async with open_gates(lambda left=left: Raises(method=method, left=left)) as kit:
                kits.append(kit)
                await watch(kit, blamed)
                kit.pool.status()
                await trio.sleep(1)
        assert not blamed
        for kit in kits:  # none: it raised while the pool was opened
            kit.check_conserved()
            assert not kit.pool.dispatcher.held()
        if caught.error is None:
            break
        ended += 1
        assert {type(leaf) for leaf in leaves(caught.error)} == {ZeroDivisionError}
    assert ended


async def watch(kit: Kit, blamed: list[Exception]) -> None:
    """Play requests of which each keeps the error that it got."""

    async def work() -> None:
        try:
            await kit.chats(2, 1)
        except Exception as exc:
            blamed.append(exc)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(work)


async def test_a_policy_that_always_raises_is_told_of_once(autojump_clock):
    caught = Caught()
    with caught:
        async with open_gates(Broken, endpoints=[endpoint(Url(f"http://h{number}/v1")) for number in range(50)]):
            await trio.sleep(1)
    assert len(list(leaves(caught.error))) == 1


class Broken:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str):
        raise ZeroDivisionError(name)
