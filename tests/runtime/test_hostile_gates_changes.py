"""Gates of endpoints that change under way, with figures that do not come or make no sense: nothing is lost."""

from __future__ import annotations

import itertools

import attrs
import pytest
import trio
from gate_kit import POLICIES, A, B, Kit, Servers, Told, endpoint, open_gates

from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.core.sessions.concur import Concur, ConcurSettings
from scavenge.core.sessions.table import MakeSessions
from scavenge.runtime.gate import KEEP_S
from scavenge.runtime.member import LOAD_WITHIN_S
from scavenge.signals import Ended, Ending, Flow, GateView, ServerLoad, WarmStart
from scavenge.testing.sweep import cancel_at_every_step
from scavenge.types import CapChanged

# --- endpoints that change under way


async def test_a_request_that_was_let_in_by_the_gate_of_another_model_ends_at_that_gate(autojump_clock):
    made: list[Told] = []

    def make() -> Told:
        made.append(Told(wake=lambda now: now + 0.25))
        return made[-1]

    async with open_gates(make) as kit:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kit.chat)
            await trio.sleep(0.5)
            old = kit.pool.members[A].gate
            kit.pool.change(endpoint(A, model="other"), ("model",))
            assert kit.pool.members[A].gate is not old
        assert old.meter.in_flight == kit.pool.members[A].gate.meter.in_flight == 0
        assert [event.ending for event in made[0].heard if isinstance(event, Ended)] == [Ending.OK]
        assert not [event for event in made[1].heard if isinstance(event, (Ended, Flow))]


async def test_a_policy_hears_of_the_cap_first_and_of_a_warm_start_after_it(autojump_clock):
    made: list[Told] = []

    @attrs.define
    class Settled(Told):
        def view(self, now: float) -> GateView:
            return GateView(9, settled=True)

    def make() -> Told:
        made.append(Settled())
        return made[-1]

    async with open_gates(make) as kit:
        kit.pool.add(endpoint(B))
        assert made[1].heard == [CapChanged(None), WarmStart(9)]
        kit.pool.change(endpoint(B, max_concurrent=3), ("max_concurrent",))
        assert made[1].heard[-1] == CapChanged(3)
        kit.pool.change(endpoint(B), ("max_concurrent",))
        assert made[1].heard[-1] == CapChanged(None)


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_url_that_goes_and_comes_back_while_its_requests_run_keeps_its_gate_and_count(autojump_clock, policy):
    async with open_gates(POLICIES[policy]) as kit:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kit.chats, 3, 3)
            await trio.sleep(0.5)
            gate = kit.pool.members[A].gate
            for _ in range(3):
                kit.pool.remove(A)
                await trio.sleep(0.1)
                kit.pool.add(endpoint(A))
                assert kit.pool.members[A].gate is gate
                kit.check_conserved()
        kit.check_conserved()
        kit.pool.remove(A)
        await trio.sleep(KEEP_S + 1)
        kit.pool.add(endpoint(A))
        assert kit.pool.members[A].gate is not gate


async def test_the_gate_of_an_endpoint_that_left_stays_while_a_request_of_it_runs_however_long(autojump_clock):
    async def never(stream: object):
        await trio.sleep_forever()

    async with open_gates(lambda: Told(), Servers(never)) as kit:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kit.chat)
                await trio.sleep(1)
                gate = kit.pool.members[A].gate
                kit.pool.remove(A)
                await trio.sleep(3 * KEEP_S)
                kit.pool.add(endpoint(A))
                assert kit.pool.members[A].gate is gate
                assert gate.meter.in_flight == 1
                scope.cancel()
        assert gate.meter.in_flight == 0


async def test_one_url_in_two_pools_has_two_gates(autojump_clock):
    async with open_gates(lambda: Told(), endpoints=[endpoint(A, "one"), endpoint(A, "two", "n")]) as kit:
        one, two = kit.pools
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kit.chat, one)
            await trio.sleep(0.5)
            assert one.members[A].gate is not two.members[A].gate
            assert (one.members[A].gate.meter.in_flight, two.members[A].gate.meter.in_flight) == (1, 0)
            kit.check_conserved()


# --- the server's own figures


async def test_figures_that_never_come_are_asked_for_again_and_keep_nothing(autojump_clock):
    servers = Servers(load=trio.sleep_forever)
    policy = Told(wants_load=True, wake=lambda now: now + 1)
    async with open_gates(lambda: policy, servers) as kit:
        await kit.chats(40, 2)
        assert 40 / (2 * LOAD_WITHIN_S) <= servers.loads_read <= 40 / LOAD_WITHIN_S + 1
        assert not [event for event in policy.heard if isinstance(event, ServerLoad)]
        await trio.sleep(2 * LOAD_WITHIN_S)
        assert not kit.pool.members[A].reading


@pytest.mark.parametrize("what", ["remove", "replace", "client", "model"])
async def test_figures_that_come_after_their_endpoint_changed_are_nobodys(autojump_clock, what):
    async def late() -> ServerLoad:
        await trio.sleep(4)
        return ServerLoad(running=1)

    made: list[Told] = []

    def make() -> Told:
        made.append(Told(wants_load=True, wake=lambda now: now + 0.5))
        return made[-1]

    async with open_gates(make, Servers(load=late)) as kit, trio.open_nursery() as nursery:
        nursery.start_soon(kit.chats, 1, 1)
        await trio.sleep(0.6)
        assert kit.pool.members[A].reading
        if what in ("remove", "replace"):
            kit.pool.remove(A)
        if what == "replace":
            kit.pool.add(endpoint(A))
        if what == "client":
            kit.pool.change(endpoint(A, secret="other"), ("secret",))
        if what == "model":
            kit.pool.change(endpoint(A, model="other"), ("model",))
        await trio.sleep(3.7)
        assert not [event for policy in made for event in policy.heard if isinstance(event, ServerLoad)]


async def test_figures_for_the_session_gate_are_read_whatever_the_policy_of_the_endpoint(autojump_clock):
    async def full() -> ServerLoad:
        await trio.lowlevel.checkpoint()
        return ServerLoad(running=1, kv_usage=0.3)

    servers = Servers(load=full)
    sessions = MakeSessions("concur", lambda: Concur(ConcurSettings()))
    async with open_gates(lambda: Fixed(FixedSettings(4)), servers, sessions=sessions) as kit:
        place = await kit.pool.acquire_place(0)
        for _ in range(30):
            await kit.chat()
            await trio.sleep(0.5)
        kit.pool.sessions.leave(place)
        assert servers.loads_read >= 5


ABSURD = [
    ServerLoad(),
    ServerLoad(-5, -5, -1.0, -1, -1, -1, -1.0, -1.0),
    ServerLoad(10**30, 10**30, 1e300, 10**30, 10**30, 10**30, 1e300, 1e300),
    ServerLoad(0, 0, 0.0, 0, 0, 0, 0.0, 0.0),
    ServerLoad(3, 10**15, 1.0, 1, 1, 10**15, 1.0, 1e15),
]


@pytest.mark.parametrize("policy", POLICIES)
async def test_absurd_figures_neither_break_nor_shut_a_gate(autojump_clock, policy):
    figures = itertools.cycle(ABSURD)

    async def absurd() -> ServerLoad:
        await trio.lowlevel.checkpoint()
        return next(figures)

    async with open_gates(POLICIES[policy], Servers(load=absurd)) as kit:
        with trio.fail_after(10_000):
            await kit.chats(100, 3)
        assert 1 <= kit.pool.members[A].gate.limit(trio.current_time()) <= 1024


# --- cancellation


@pytest.mark.parametrize("policy", ["tide", "aimd", "pi"])
def test_a_chat_that_is_cancelled_anywhere_leaves_the_meter_as_the_ledger(policy):
    kits: list[Kit] = []

    async def use() -> None:
        kits.clear()
        async with open_gates(POLICIES[policy], endpoints=[endpoint(A), endpoint(B)]) as kit:
            kits.append(kit)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kit.chat)
                await kit.chat()
                kit.check_conserved()

    def check() -> None:
        for kit in kits:
            assert not kit.pool.dispatcher.held()
            assert sum(member.gate.meter.in_flight for member in kit.pool.members.values()) == 0
            kit.check_conserved()

    assert cancel_at_every_step(use, check) > 20
