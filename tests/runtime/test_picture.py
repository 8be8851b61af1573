"""The full picture of a run: everything is in it, long lists are cut, and no task is strange enough to spoil it."""

from __future__ import annotations

from contextlib import asynccontextmanager

import trio
from fleet_kit import POOL, open_kit

from scavenge.core.ledger import Ask
from scavenge.runtime.picture import picture_tasks, take_picture
from scavenge.status import LeaseStatus, Picture, TaskStatus, WaitingStatus
from scavenge.testing.engine import EngineSettings
from scavenge.testing.fleet import SimulatedFleet
from scavenge.testing.host import SimulatedServer
from scavenge.types import EndpointId, Url

EP1 = Url("http://ep1.sim/v1")


def fleet(*names: str) -> SimulatedFleet:
    return SimulatedFleet([SimulatedServer(name, EngineSettings(0.01, 0.001, 8)) for name in names])


async def live(kit, slots: int) -> None:
    """Wait until the pool has this many slots and nobody has anything else to do."""
    while kit.pool.slots < slots:  # noqa: ASYNC110  # a limit tells nobody that it has moved
        await trio.sleep(1)


def now_picture(kit) -> Picture:
    return take_picture(kit.fleet, trio.current_time())


async def test_who_holds_slots_and_who_waits_is_in_it_with_ages(autojump_clock):
    async with open_kit(fleet("ep1"), limit=2) as kit, trio.open_nursery() as nursery:
        await live(kit, 2)
        held = [await kit.pool.acquire(Ask((age,))) for age in range(2)]
        await trio.sleep(3)
        nursery.start_soon(kit.pool.acquire, Ask((7,), avoid=frozenset({EP1, Url("http://z/v1")})))
        await trio.sleep(2)
        (pool,) = now_picture(kit).pools
        assert pool.status == kit.pool.status()
        assert pool.leases == (LeaseStatus(EP1, 1, 5.0), LeaseStatus(EP1, 1, 5.0))
        assert (pool.leases_in_all, pool.status.waiting) == (2, 1)
        assert pool.waiting == (WaitingStatus(1, 2.0, (EP1, Url("http://z/v1"))),)
        assert (pool.stalled_s, pool.why) == (0.0, "")
        kit.pool.dispatcher.revoke(EP1)
        assert {lease.revoked for lease in now_picture(kit).pools[0].leases} == {True}
        nursery.cancel_scope.cancel()
    assert len(held) == 2


async def test_sessions_under_way_and_those_that_wait_for_their_place_are_counted(autojump_clock):
    async with open_kit(fleet("ep1"), limit=1) as kit, trio.open_nursery() as nursery:
        await live(kit, 1)
        for age in range(9):
            nursery.start_soon(kit.pool.acquire_place, age)
        await trio.testing.wait_all_tasks_blocked()
        (pool,) = now_picture(kit).pools
        assert (pool.places, pool.places_waiting) == (6, 3)
        nursery.cancel_scope.cancel()


async def test_a_pool_without_an_endpoint_says_since_when_and_why(autojump_clock):
    async with open_kit(SimulatedFleet([SimulatedServer("ep1")], "t=100000 join ep1")) as kit:
        await trio.sleep(10)
        picture = now_picture(kit)
        assert [(pool.stalled_s, pool.why) for pool in picture.pools] == [(10.0, "no endpoint is listed")]
        assert picture.network_down_s is None


async def test_long_lists_are_cut_and_their_counts_are_whole(autojump_clock):
    async with open_kit(fleet("ep1"), limit=250) as kit, trio.open_nursery() as nursery:
        await live(kit, 250)
        for age in range(600):
            nursery.start_soon(kit.pool.acquire, Ask((age,)))
        await trio.testing.wait_all_tasks_blocked()
        picture = now_picture(kit)
        (pool,) = picture.pools
        assert (len(pool.leases), pool.leases_in_all) == (200, 250)
        assert (len(pool.waiting), pool.status.waiting) == (200, 350)
        assert len(picture.tasks) == 200
        assert picture.tasks_in_all > 350
        nursery.cancel_scope.cancel()


async def test_the_lists_of_all_pools_together_are_bounded(autojump_clock):
    other = EndpointId("other")
    servers = [SimulatedServer("ep1"), SimulatedServer("ep2", endpoint_id=other)]
    async with open_kit(SimulatedFleet(servers), limit=150, wanted=(POOL, other)) as kit:
        for pool in kit.fleet.pools.values():
            for age in range(150):
                await pool.acquire(Ask((age,)))
        pools = now_picture(kit).pools
        assert [(len(pool.leases), pool.leases_in_all) for pool in pools] == [(150, 150), (50, 150)]


# --- tasks


def task_named(name: str) -> TaskStatus:
    (found,) = [task for task in picture_tasks()[0] if task.name == name]
    return found


async def with_tasks(*tasks, look):
    """Start tasks under their names, let them come to rest, and look."""
    async with trio.open_nursery() as nursery:
        for name, function in tasks:
            nursery.start_soon(function, name=name)
        await trio.testing.wait_all_tasks_blocked()
        seen = look()
        nursery.cancel_scope.cancel()
    return seen


async def sleep_in_a_helper():
    await trio.sleep(1000)


async def waits_in_a_helper():
    await sleep_in_a_helper()


@asynccontextmanager
async def entered_slowly():
    await trio.sleep(1000)
    yield


async def enters():
    async with entered_slowly():
        pass


async def test_a_task_is_told_by_its_name_and_the_lines_where_it_waits_the_innermost_last():
    seen = await with_tasks(("the waiter", waits_in_a_helper), look=lambda: task_named("the waiter"))
    places = [place.split(" ")[1] for place in seen.stack]
    assert places == ["waits_in_a_helper", "sleep_in_a_helper", "sleep"]
    assert seen.stack[0].startswith("test_picture.py:")
    assert seen.stack[2].startswith("trio/_timeouts.py:")
    assert not any(place.startswith("/") for place in seen.stack)


async def test_a_task_that_waits_inside_an_asynchronous_context_manager_is_followed_there():
    seen = await with_tasks(("the enterer", enters), look=lambda: task_named("the enterer"))
    assert [place.split(" ")[1] for place in seen.stack][-2:] == ["entered_slowly", "sleep"]


class Foreign:
    """An awaitable that Trio can run and cannot look into."""

    def __await__(self):
        return Opaque()


class Opaque:
    cr_frame = None

    def __init__(self):
        sleeping = trio.sleep_forever
        self._inner = sleeping().__await__()

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._inner)

    def send(self, value):
        return self._inner.send(value)

    def throw(self, *error):
        return self._inner.throw(*error)


async def awaits_something_foreign():
    await Foreign()


async def deep(levels: int):
    if levels:
        await deep(levels - 1)
    else:
        await trio.sleep_forever()


async def test_a_strange_awaitable_ends_the_walk_of_its_task_and_of_no_other():
    tasks = (("strange", awaits_something_foreign), ("usual", waits_in_a_helper))
    strange, usual = await with_tasks(*tasks, look=lambda: (task_named("strange"), task_named("usual")))
    assert strange.stack[0].endswith("awaits_something_foreign")
    assert strange.stack[-1].startswith("(no further: ")
    assert len(usual.stack) == 3


async def test_of_a_deep_stack_only_the_innermost_places_are_told():
    async def waits_deep():
        await deep(300)

    seen = await with_tasks(("deep", waits_deep), look=lambda: task_named("deep"))
    assert [place.split(" ")[1] for place in seen.stack] == ["deep"] * 5 + ["sleep_forever"]


async def test_a_name_from_outside_is_one_short_line():
    name = "rollout " + "x\n" * 1000
    seen = await with_tasks((name, trio.sleep_forever), look=picture_tasks)
    (found,) = [task.name for task in seen[0] if task.name.startswith("rollout")]
    assert len(found) <= 120
    assert "\n" not in found


async def test_a_task_that_has_not_begun_and_the_one_that_looks_are_told_too():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits_in_a_helper, name="fresh")
        nursery.start_soon(trio.sleep_forever, name="fresh too")
        tasks, count = picture_tasks()
        nursery.cancel_scope.cancel()
    assert len(tasks) == count
    assert [task.stack[0].split(" ")[1] for task in tasks if task.name == "fresh"] == ["waits_in_a_helper"]
    own = trio.lowlevel.current_task().name
    assert [task.name for task in tasks].count(own) == 1


async def test_the_outer_tasks_come_before_those_that_they_have_started():
    async def parent():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever, name="a child")
            nursery.start_soon(trio.sleep_forever, name="another child")

    names = await with_tasks(("z parent", parent), look=lambda: [task.name for task in picture_tasks()[0]])
    assert names.index("z parent") < names.index("a child")
