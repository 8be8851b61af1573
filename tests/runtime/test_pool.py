"""A pool's members under changes of listings, settings and health; clients are scripted, time is virtual."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random

import attrs
import pytest
import trio

from scavenge.core.flow import Stream
from scavenge.core.health_settings import HealthSettings
from scavenge.core.health_state import State
from scavenge.core.ledger import Ask
from scavenge.core.limits.fixed import UNCAPPED_LIMIT, Fixed, FixedSettings
from scavenge.core.roster import Added
from scavenge.core.sessions.policy import START_AHEAD
from scavenge.core.sessions.table import DEFAULT_SESSIONS
from scavenge.errors import LeaseRevoked
from scavenge.events import EndpointChanged, EndpointDraining, Event, LeasesRevoked
from scavenge.runtime.fleet import Fleet
from scavenge.runtime.pool import Pool
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import Session, SessionPorts
from scavenge.signals import ServerLoad
from scavenge.types import (
    Answer,
    Busy,
    ChatRequest,
    Endpoint,
    EndpointId,
    Failed,
    Healthy,
    Lost,
    Misrouted,
    Ok,
    Outcome,
    Reply,
    RequestFailed,
    Url,
)

A, B = Url("http://a/v1"), Url("http://b/v1")
START_TIME = 1_800_000_000.0


@attrs.define(eq=False, slots=False)
class Client:
    endpoint: Endpoint
    probe_result: Callable[[], Healthy | Outcome]
    closed: bool = False
    probes: int = 0
    heard_at: float = float("-inf")
    reached_at: float = float("-inf")

    async def ask(self, request: ChatRequest, stream: Stream | None = None) -> Answer:
        await trio.sleep(1)
        return Answer(Ok(Reply("", "stop")))

    async def probe(self, path: str) -> Healthy | Outcome:
        await trio.lowlevel.checkpoint()
        self.probes += 1
        self.heard_at = self.reached_at = trio.current_time()
        return self.probe_result()

    async def read_load(self) -> ServerLoad | None:
        await trio.lowlevel.checkpoint()
        return None

    def close(self) -> None:
        self.closed = True


@attrs.define(eq=False)
class Kit:
    """Pools whose servers answer probes as ``probes`` says by url."""

    nursery: trio.Nursery
    elastic: bool = True
    health: HealthSettings = attrs.field(factory=HealthSettings)
    probes: dict[Url, Healthy | Outcome] = attrs.field(factory=dict)
    clients: list[Client] = attrs.field(factory=list)
    events: list[Event] = attrs.field(factory=list)
    fleet: Fleet = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.fleet = Fleet(self.events.append, Random(2))

    def open_client(self, endpoint: Endpoint) -> Client:
        client = Client(endpoint, lambda: self.probes.get(endpoint.url, Healthy()))
        self.clients.append(client)
        return client

    def pool(self, name: str = "pool") -> Pool:
        pool = Pool(
            endpoint_id=EndpointId(name),
            elastic=self.elastic,
            transport=self,
            make_policy=lambda: Fixed(FixedSettings(4)),
            make_sessions=DEFAULT_SESSIONS,
            health_settings=self.health,
            random=Random(1),
            emit=self.events.append,
            wall_clock=lambda: START_TIME + trio.current_time(),
            minders_nursery=self.nursery,
            share=self.fleet.share,
            accounts=self.fleet.accounts,
            network=self.fleet.network,
            listed=self.fleet.listed,
        )
        self.fleet.pools[pool.endpoint_id] = pool
        return pool


@asynccontextmanager
async def open_pools(**settings: object) -> AsyncIterator[Kit]:
    async with trio.open_nursery() as nursery:
        yield Kit(nursery, **settings)  # type: ignore[arg-type]
        nursery.cancel_scope.cancel()


def endpoint(url: Url = A, pool: str = "pool", **settings: object) -> Endpoint:
    return Endpoint(EndpointId(pool), "m", url, **settings)  # type: ignore[arg-type]


async def settled() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_a_member_gets_work_when_it_has_answered_and_up_to_the_lower_of_cap_and_gate(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        pool.add(endpoint(A, max_concurrent=3))
        pool.add(endpoint(B, max_concurrent=100))
        assert pool.slots == 0
        await settled()
        assert pool.slots == 3 + 4
        async with trio.open_nursery() as nursery:
            for age in range(20):
                nursery.start_soon(pool.acquire_place, age)
            await settled()
            assert (pool.sessions.taken, pool.sessions.waiting) == (7 + START_AHEAD, 20 - 7 - START_AHEAD)
            nursery.cancel_scope.cancel()


async def test_a_changed_cap_counts_at_once_and_keeps_the_client(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        pool.add(endpoint(A, max_concurrent=3))
        await settled()
        pool.change(endpoint(A, max_concurrent=1), ("max_concurrent",))
        assert pool.slots == 1
        assert len(kit.clients) == 1
        assert [e.what for e in kit.events if isinstance(e, EndpointChanged)] == ["max_concurrent"]


async def test_a_cap_alone_says_how_many_and_an_endpoint_without_one_gets_the_policys_default(autojump_clock):
    async with open_pools() as kit:
        capped, uncapped = kit.pool("capped"), kit.pool("uncapped")
        for pool in (capped, uncapped):
            pool.gating.gates.make_policy = lambda: Fixed(FixedSettings())
        capped.add(endpoint(A, "capped", max_concurrent=128))
        uncapped.add(endpoint(B, "uncapped"))
        await trio.sleep(60)  # so that they have opened up
        assert (capped.slots, uncapped.slots) == (128, UNCAPPED_LIMIT)
        capped.change(endpoint(A, "capped", max_concurrent=200), ("max_concurrent",))
        assert capped.slots == 200


async def test_a_changed_key_opens_a_new_client_and_closes_the_old_and_a_live_member_stays_live(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        pool.add(endpoint(A))
        await settled()
        held = await pool.acquire(Ask((0,)))
        member = pool.members[A]
        old = member.client
        pool.change(endpoint(A, secret="new"), ("secret",))
        assert old.closed
        assert member.client.endpoint.secret == "new"
        assert member.health.state is State.LIVE
        # of a request that was sent with the old key
        pool.hearing.report(member, old, Misrouted("401", 401), trio.current_time())
        assert member.health.state is State.LIVE
        pool.release(held)


async def test_new_settings_give_a_misconfigured_member_another_chance(autojump_clock):
    async with open_pools() as kit:
        kit.probes[A] = Misrouted("401", 401)
        pool = kit.pool()
        pool.add(endpoint(A))
        await settled()
        assert pool.members[A].health.state is State.MISCONFIGURED
        kit.probes[A] = Healthy()
        pool.change(endpoint(A, secret="right"), ("secret",))
        await settled()
        assert pool.slots == 4


async def test_a_removed_url_that_comes_back_while_busy_never_carries_more_than_its_cap(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        pool.add(endpoint(A, max_concurrent=2))
        await settled()
        held = [await pool.acquire(Ask((n,))) for n in range(2)]
        pool.remove(A)
        assert set(pool.departing) == {A}
        pool.add(endpoint(A, max_concurrent=2))
        await settled()
        assert not pool.departing
        assert pool.dispatcher.ledger.free(A) == 0
        for lease in held:
            pool.release(lease)
        assert pool.dispatcher.ledger.free(A) == 2
        assert [client.closed for client in kit.clients] == [True, False]


async def test_a_removed_member_is_forgotten_with_its_last_lease(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        pool.add(endpoint(A))
        await settled()
        held = await pool.acquire(Ask((0,)))
        pool.remove(A)
        await trio.sleep(100)
        assert not kit.clients[0].closed
        assert not held.revoked
        pool.release(held)
        assert kit.clients[0].closed
        await settled()
        probes = kit.clients[0].probes
        await trio.sleep(100)
        assert kit.clients[0].probes == probes


async def test_a_drain_deadline_ends_what_still_runs_when_it_has_passed(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        pool.add(endpoint(A))
        await settled()
        held = await pool.acquire(Ask((0,)))
        notice = datetime.fromtimestamp(START_TIME + 30, UTC)
        pool.change(endpoint(A, drain_deadline=notice), ("drain_deadline",))
        assert pool.slots == 0
        assert [type(event) for event in kit.events[-2:]] == [EndpointChanged, EndpointDraining]
        with pytest.raises(LeaseRevoked), held.using():
            await trio.sleep(1000)
        assert trio.current_time() == 30
        assert [e.why for e in kit.events if isinstance(e, LeasesRevoked)] == ["its drain deadline has passed"]


async def test_pools_that_share_a_server_share_what_they_learn_of_its_life(autojump_clock):
    async with open_pools() as kit:
        first, second = kit.pool("first"), kit.pool("second")
        kit.fleet.apply([Added(endpoint(A, "first")), Added(endpoint(A, "second")), Added(endpoint(A, "unknown"))])
        await settled()
        kit.probes[A] = Lost("refused")
        first.hearing.report(first.members[A], first.members[A].client, Lost("refused"), trio.current_time())
        assert (first.slots, second.slots) == (0, 0)
        kit.probes[A] = Healthy()
        await trio.sleep(30)
        assert (first.slots, second.slots) == (1, 1)
        misrouted = Misrouted("404", 404, curable=True)
        first.hearing.report(first.members[A], first.members[A].client, misrouted, trio.current_time())
        assert (first.slots, second.slots) == (0, 1)
        second.hearing.report(second.members[A], second.members[A].client, Busy("wait", 429, 50.0), trio.current_time())
        assert (first.slots, second.slots) == (0, 0)


async def test_what_a_server_fails_in_one_pool_counts_in_the_other(autojump_clock):
    async with open_pools() as kit:
        first, second = kit.pool("first"), kit.pool("second")
        kit.fleet.apply([Added(endpoint(A, "first")), Added(endpoint(A, "second"))])
        await settled()
        for _ in range(5):
            first.hearing.report(first.members[A], first.members[A].client, Failed("500", 500), trio.current_time())
        assert (first.slots, second.slots) == (0, 0)


@attrs.define(eq=False)
class Counting:
    """A fixed limit that is asked only so often: a minding task that spins would never let a virtual clock go on."""

    asked: int = 0

    def observe(self, event: object, now: float) -> None:
        """Nothing follows."""

    def limit(self, now: float) -> int:
        self.asked += 1
        assert self.asked < 1000, "the minding task spins"
        return 4

    def next_wake_at(self, now: float) -> float | None:
        assert self.asked < 1000
        self.asked += 1
        return None


async def test_a_minding_task_never_spins_whatever_becomes_of_its_member(autojump_clock):
    for settings in (HealthSettings(), HealthSettings(probe=False)):
        async with open_pools(health=settings) as kit:
            pool = kit.pool()
            pool.make_policy = Counting
            pool.add(endpoint(A))
            await settled()
            for outcome in (Lost("reset"), Busy("wait", 429, 5.0), Misrouted("404", 404, curable=True)):
                await trio.sleep(100)
                held = await pool.acquire(Ask((0,)))
                member = pool.members[A]
                pool.hearing.report(member, member.client, outcome, trio.current_time())
                await trio.sleep(100)
                pool.hearing.report(member, member.client, Ok(Reply("", "stop")), trio.current_time())
                pool.remove(A)
                await trio.sleep(100)
                pool.release(held)
                pool.add(endpoint(A))


async def test_a_removed_member_that_is_paused_is_minded_quietly(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        pool.make_policy = Counting
        pool.add(endpoint(A))
        await settled()
        held = await pool.acquire(Ask((0,)))
        member = pool.members[A]
        pool.hearing.report(member, member.client, Busy("wait", 429, 5.0), trio.current_time())
        pool.remove(A)
        await trio.sleep(1000)
        pool.release(held)


async def test_a_probe_that_our_own_loop_held_up_blames_nobody(mock_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        pool.add(endpoint(A))
        await settled()
        member = pool.members[A]
        member.client.probe = never  # type: ignore[method-assign]
        mock_clock.jump(30)
        await settled()
        mock_clock.jump(60)  # much longer than the deadline, in one go: the loop was blocked
        await settled()
        assert member.health.state is State.LIVE
        mock_clock.jump(30)
        await settled()
        mock_clock.jump(10)
        await settled()
        assert member.health.state is State.EJECTED


async def never(path: str) -> Healthy:
    await trio.sleep_forever()
    raise AssertionError


async def test_who_waits_for_a_hopeless_pool_is_turned_away_with_the_reason(autojump_clock):
    async with open_pools(elastic=False) as kit:
        kit.probes[A] = Misrouted("the key is wrong", 401)
        pool = kit.pool()
        pool.add(endpoint(A))
        with pytest.raises(RequestFailed, match="the key is wrong"):
            await pool.acquire(Ask((0,)))
        assert pool.dispatcher.ledger.waiting == 0
        with pytest.raises(RequestFailed, match="the key is wrong"):
            await pool.acquire(Ask((1,)))


async def test_a_lease_whose_endpoint_left_before_it_was_used_is_changed_for_another(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        pool.add(endpoint(A))
        await settled()
        held = await pool.acquire(Ask((0,)))
        ports = SessionPorts(kit.events.append, Random(2), lambda: START_TIME)
        session = Session(pool, 0, RequestSettings(), ports, first_lease=held)
        pool.remove(A)
        pool.add(endpoint(B))
        await session.chat([{"role": "user", "content": "hi"}])
        assert [attempt.endpoint for attempt in session.attempts] == [B]
        assert not pool.departing
        assert pool.dispatcher.ledger.lent(B) == 0


async def test_requests_of_one_session_at_once_keep_their_own_places_and_attempts(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        pool.add(endpoint(A, max_concurrent=2))
        await settled()
        ports = SessionPorts(kit.events.append, Random(2), lambda: START_TIME)
        session = Session(pool, 0, RequestSettings(), ports)
        outcomes = iter([Busy("later", 429, 1.0), Ok(Reply("second", "stop")), Ok(Reply("first", "stop"))])

        async def answer(request: ChatRequest, stream: Stream | None = None) -> Answer:
            await trio.sleep(0.1)
            return Answer(next(outcomes))

        pool.members[A].client.ask = answer  # type: ignore[method-assign]
        completions = []

        async def ask(delay_s: float) -> None:
            await trio.sleep(delay_s)
            completions.append(await session.chat([{"role": "user", "content": "hi"}]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 0.0)
            nursery.start_soon(ask, 0.01)
        told = {one.text: [attempt.outcome for attempt in one.attempts] for one in completions}
        assert told == {"second": ["ok"], "first": ["busy", "ok"]}
        assert len(session.attempts) == 3


async def test_a_session_that_asks_for_nothing_gives_its_first_lease_back(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        pool.add(endpoint(A))
        await settled()
        ports = SessionPorts(kit.events.append, Random(2), lambda: START_TIME)
        session = Session(pool, 0, RequestSettings(), ports, first_lease=await pool.acquire(Ask((0,))))
        session.close()
        session.close()
        assert pool.dispatcher.ledger.lent(A) == 0


async def test_the_status_of_a_pool_shows_every_endpoint_with_its_slots(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        for url in (A, B):
            pool.add(endpoint(url, max_concurrent=1))
        await settled()
        for number in range(2):
            await pool.acquire(Ask((number,)))
        pool.remove(A)
        with trio.move_on_after(1):
            await pool.acquire(Ask((3,)))
        status = pool.status()
        assert [(e.url, e.state, e.in_flight, e.limit) for e in status.endpoints] == [
            (B, "live", 1, 1), (A, "draining", 1, 0),
        ]  # fmt: skip
        assert status.waiting == 0


async def test_closing_a_pool_closes_every_client(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        pool.add(endpoint(A))
        pool.add(endpoint(B))
        await settled()
        await pool.acquire(Ask((0,)))
        pool.remove(A)
        pool.close()
        assert all(client.closed for client in kit.clients)


async def test_why_a_pool_waits_names_its_endpoints_and_their_trouble(autojump_clock):
    async with open_pools() as kit:
        pool = kit.pool()
        assert pool.why_waiting() == "no endpoint is listed"
        for number in range(5):
            url = Url(f"http://e{number}/v1")
            kit.probes[url] = Lost("connection refused")
            pool.add(endpoint(url, draining=number == 0))
        await settled()
        why = pool.why_waiting()
        assert why.startswith("http://e0/v1 is draining")
        assert "http://e1/v1 is probing (connection refused)" in why
        assert why.endswith("and 2 more")
