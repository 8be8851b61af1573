"""Accounts whose quota was run into, under everything that can happen to them: nobody waits for ever."""

from __future__ import annotations

from random import Random

import attrs
import pytest
import trio
from gate_kit import B, Kit, Servers, endpoint, open_gates
from trio.testing import wait_all_tasks_blocked

from scavenge.core.flow import Stream
from scavenge.core.health import EndpointHealth
from scavenge.core.ledger import Ask
from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.core.outcome import RETRY_AFTER_MAX_S
from scavenge.core.sessions.fixed import FixedSessions, FixedSessionsSettings
from scavenge.core.sessions.table import MakeSessions
from scavenge.runtime.accounts import Demand
from scavenge.runtime.member import Member
from scavenge.runtime.pool import Pool
from scavenge.types import Answer, Busy, Ok, Reply, RequestFailed, Url

API = "http://api.test"
ONE, TWO, THREE = (Url(f"{API}/{name}/v1") for name in ("one", "two", "three"))


@attrs.define(eq=False)
class Account:
    """Replies after a second, and turns away what is beyond ``allowed``."""

    allowed: int
    retry_after_s: float | None = None
    in_flight: int = 0
    served: int = 0

    async def reply(self, stream: Stream) -> Answer:
        await trio.lowlevel.checkpoint()
        if self.in_flight >= self.allowed:
            return Answer(Busy("slow down", 429, self.retry_after_s))
        self.in_flight += 1
        try:
            await trio.sleep(1)
        finally:
            self.in_flight -= 1
        self.served += 1
        return Answer(Ok(Reply("", "stop")))


def fixed() -> Fixed:
    return Fixed(FixedSettings(16))


def shared(*urls: Url) -> list:
    return [endpoint(url, f"pool{number}", f"m{number}") for number, url in enumerate(urls)]


async def try_chat(kit: Kit, pool: Pool) -> None:
    try:
        await kit.chat(pool)
    except RequestFailed:
        await trio.sleep(0.5)


async def run_into(kit: Kit, seconds: float = 30.0, workers: int = 6) -> None:
    """Let the account learn its quota."""

    async def work(pool: Pool) -> None:
        while True:
            await try_chat(kit, pool)

    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for pool in kit.pools:
                for _ in range(workers):
                    nursery.start_soon(work, pool)
    assert all(kit.fleet.accounts.bound(member) is not None for member in kit.fleet.members())


def forget_pauses(kit: Kit) -> None:
    """A pause that a 429 asked for is the endpoint's own matter."""
    for member in kit.fleet.members():
        member.health = EndpointHealth.listed(member.health.settings, Random(1), trio.current_time())
        kit.fleet.accounts.refresh(member)
        member.poke()


async def test_an_endpoint_that_is_left_alone_with_no_share_gets_work_again(autojump_clock):
    account = Account(1)
    async with open_gates(fixed, Servers(account.reply), shared(ONE, TWO)) as kit:
        await run_into(kit)
        one, two = kit.pools
        held = [await one.acquire(Ask((number,))) for number in range(await idle_bound(kit))]
        await trio.sleep(0.5)
        assert two.members[TWO].limit == 0
        one.remove(ONE)
        for lease in held:
            one.release(lease)
        with trio.fail_after(5):
            await kit.chat(two)


async def test_settings_that_have_nothing_to_do_with_the_account_leave_its_quota_as_it_is(autojump_clock):
    async with open_gates(fixed, Servers(Account(3).reply), shared(ONE, TWO)) as kit:
        await run_into(kit)
        one, two = kit.pools
        assert one.members[ONE].limit < 16
        one.change(endpoint(ONE, "pool0", "m0", headers={"x-team": "a"}), ("headers",))
        assert kit.fleet.accounts.bound(two.members[TWO]) is not None
        one.change(endpoint(ONE, "pool0", "m0", secret="another"), ("secret",))
        assert [kit.fleet.accounts.bound(member) for member in kit.fleet.members()] == [None, None]


async def test_members_that_come_and_go_on_an_account_that_is_bound_are_served_on(autojump_clock):
    account = Account(3)
    async with open_gates(fixed, Servers(account.reply), shared(ONE, TWO, THREE)) as kit:
        await run_into(kit)
        account.served = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_into, kit, 200.0)
            for number in range(40):
                pool, url = kit.pools[number % 3], (ONE, TWO, THREE)[number % 3]
                listed = pool.members[url].endpoint
                await trio.sleep(2.3)
                pool.remove(url)
                await trio.sleep(0.7 * (number % 4))
                pool.add(listed)
                await wait_all_tasks_blocked()
                kit.check_conserved()
        assert account.served > 300


@pytest.mark.parametrize("slots", [2, 3, 8])
async def test_a_group_that_is_larger_than_the_quota_starts(autojump_clock, slots):
    async with open_gates(fixed, Servers(Account(1).reply), shared(ONE, TWO)) as kit:
        await run_into(kit)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(try_chat, kit, kit.pools[1])
            for pool in kit.pools:
                with trio.fail_after(120):
                    held = await pool.acquire(Ask((10**6,), slots=slots))
                await trio.sleep(1)
                pool.release(held)
        kit.check_conserved()


@pytest.mark.parametrize("retry_after_s", [None, 0.0, 0.001, RETRY_AFTER_MAX_S])
async def test_whatever_the_account_says_of_when_to_come_back_its_bound_grows_again(autojump_clock, retry_after_s):
    account = Account(2, retry_after_s)
    async with open_gates(fixed, Servers(account.reply), shared(ONE, TWO)) as kit:
        await run_into(kit)
        before = await idle_bound(kit)
        account.allowed = 1000
        await run_into(kit, 500.0, 12)
        assert await idle_bound(kit) > before


async def idle_bound(kit: Kit) -> int:
    """What the account may have in flight now that it has nothing to do."""
    forget_pauses(kit)
    await trio.sleep(1)
    bound = kit.fleet.accounts.bound(kit.fleet.members()[0])
    assert bound is not None
    return bound


async def test_what_is_worked_out_for_a_request_does_not_grow_with_the_square_of_the_accounts_endpoints(autojump_clock):
    account, asked = Account(10), 0
    endpoints = [endpoint(Url(f"{API}/{number}/v1")) for number in range(80)]
    async with open_gates(fixed, Servers(account.reply), endpoints) as kit:
        demand = kit.fleet.accounts.demand

        def counting(member: Member) -> Demand:
            nonlocal asked
            asked += 1
            return demand(member)

        kit.fleet.accounts.demand = counting
        await run_into(kit, 10.0, 20)
    assert asked < 20 * len(endpoints) * account.served


MIX = [("0", ONE), ("1", TWO), ("0", B)]


@pytest.mark.parametrize("seed", range(12))
async def test_sessions_groups_and_a_quota_together_never_stand_still(autojump_clock, seed):
    random = Random(seed)
    account = Account(random.randint(1, 4))
    sessions = MakeSessions("fixed", lambda: FixedSessions(FixedSessionsSettings(limit=2)))
    rows = [endpoint(url, f"pool{pool}", f"m{pool}") for pool, url in MIX]
    async with open_gates(fixed, Servers(account.reply), rows, sessions=sessions) as kit:
        with trio.fail_after(3000):
            async with trio.open_nursery() as nursery:
                for _ in range(12):
                    nursery.start_soon(converse, kit, random.choice(kit.pools), random.random() * 40)
                for _ in range(4):
                    nursery.start_soon(borrow, kit, random.choice(kit.pools), random.randint(2, 6))
                nursery.start_soon(come_and_go, kit, random)
        kit.check_conserved()
        for pool in kit.pools:
            assert (pool.sessions.taken, pool.sessions.waiting, pool.dispatcher.ledger.waiting) == (0, 0, 0)
            assert not pool.dispatcher.held()


async def converse(kit: Kit, pool: Pool, patience_s: float) -> None:
    """A session of four calls; half of them lose their patience."""
    session = kit.session(pool, max_retries=100)
    with trio.move_on_after(patience_s if patience_s < 20 else float("inf")):
        session.place = await pool.acquire_place(session.age)
        try:
            for _ in range(4):
                await session.chat([{"role": "user", "content": "hi"}])
                await trio.sleep(0.3)
        finally:
            pool.sessions.leave(session.place)


async def borrow(kit: Kit, pool: Pool, slots: int) -> None:
    for _ in range(3):
        held = await pool.acquire(Ask((0,), slots=slots))
        with held.using():
            await trio.sleep(0.7)


async def come_and_go(kit: Kit, random: Random) -> None:
    pool = kit.pools[0]
    for _ in range(10):
        await trio.sleep(random.random() * 3)
        pool.remove(ONE)
        await trio.sleep(random.random() * 2)
        pool.add(endpoint(ONE, "pool0", "m0"))
