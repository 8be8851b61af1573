"""How slots that fail back off, are exhausted and probed, and recover."""

from __future__ import annotations

from itertools import pairwise

from scavenge.core.supervision import Spawn
from scavenge.core.supervision.settings import BUDGET
from supervision_kit import Stage, told


def starts_of_slot(stage: Stage, slot: int) -> list[float]:
    return [at for at, worker in stage.spawned if stage.slot[worker] == slot]


def gaps(instants: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(instants)]


def test_failures_back_off_from_a_quarter_of_a_second_by_doubling():
    stage = Stage(max=1)
    stage.settle()
    for _ in range(BUDGET):
        stage.not_spawned(stage.starting[0])
        while not stage.starting:
            stage.wait(0.05)
    for steps, gap in enumerate(gaps(starts_of_slot(stage, 0))):
        assert 0.125 * 2**steps <= gap + 1e-6 <= 0.25 * 2**steps + 0.06


def test_an_exhausted_pool_of_one_is_probed_for_ever_and_recovers():
    stage = Stage(max=1, request_deadline_s=1e9)
    (ticket,) = stage.ask(1)
    stage.exhaust()
    probes = gaps(starts_of_slot(stage, 0))[BUDGET:]
    assert probes
    assert all(30 <= gap <= 31 for gap in probes)
    while not stage.starting:
        stage.wait(1)
    stage.load()
    assert ticket in stage.inside


def test_exhausted_slots_are_probed_one_at_a_time_in_the_whole_pool():
    stage = Stage(min=4, max=4)
    stage.exhaust()
    assert len(stage.starting) <= 1
    before = len(stage.spawned)
    for _ in range(90):
        for worker in tuple(stage.starting):
            stage.wait(7)  # one half-open probe at a time, however long it takes
            assert stage.starting == [worker]
            stage.not_spawned(worker)
        stage.wait(3)
    probes = [at for at, _ in stage.spawned[before:]]
    assert len(probes) > 3
    assert all(gap >= 30 for gap in gaps(probes))
    assert len({stage.slot[worker] for _, worker in stage.spawned[before:]}) > 1  # each has its turn


def test_a_probe_that_loads_for_long_stays_the_only_one():
    stage = Stage(min=3, max=3)
    stage.exhaust()
    while not stage.starting:
        stage.wait(1)
    stage.wait(300)
    assert len(stage.starting) == 1


def test_every_exhausted_slot_has_its_turn():
    stage = Stage(min=3, max=3)
    stage.exhaust()
    before = len(stage.spawned)
    for _ in range(200):
        for worker in tuple(stage.starting):
            stage.not_spawned(worker)
        stage.wait(1)
    assert {stage.slot[worker] for _, worker in stage.spawned[before:]} == {0, 1, 2}


def test_slots_are_probed_again_after_a_probe_that_succeeded():
    stage = Stage(min=2, max=2)
    stage.exhaust()
    while not stage.starting:
        stage.wait(1)
    stage.load()
    stage.exhaust()
    stage.wait(35)
    assert len(stage.starting) == 1


def test_a_ready_worker_ends_the_back_off_of_starts_in_a_slot_whose_worker_had_died_too():
    stage = Stage(min=2, max=2)
    stage.settle()
    stage.load()
    stage.end(1)
    while not stage.starting:
        stage.wait(0.05)
    for _ in range(BUDGET - 1):
        stage.not_spawned(stage.starting[0])
        while not stage.starting:
            stage.wait(0.05)
    stage.end(2)
    while len(stage.starting) == 1:
        stage.wait(0.05)
    first, second = stage.starting
    stage.not_spawned(first)
    assert told(stage.load(second), Spawn) == [Spawn(second + 1, stage.slot[first])]


def test_an_exhausted_static_pool_comes_back_whole_once_one_is_ready():
    stage = Stage(min=3, max=3)
    stage.exhaust()
    while not stage.starting:
        stage.wait(1)
    stage.load()
    assert sorted(stage.slot[worker] for worker in (*stage.starting, *stage.ready)) == [0, 1, 2]


def test_two_exhausted_slots_and_a_live_one_grow_again_under_a_maximum_of_three():
    stage = Stage(min=1, max=3)
    stage.settle()
    stage.load()
    stage.ask(12)
    stage.exhaust()
    assert stage.status.state == "degraded"
    while not stage.starting:
        stage.wait(1)
    stage.load()
    stage.load()
    assert (len(stage.ready), stage.status.state, stage.status.why) == (3, "ready", "")


def test_success_forgets_the_failures():
    stage = Stage(max=2)
    stage.settle()
    stage.load()
    stage.ask(8)
    for _ in range(BUDGET - 1):
        stage.not_spawned(stage.starting[0])
        while not stage.starting:
            stage.wait(0.05)
    stage.load()
    stage.end(stage.ready[1])
    stage.ask(1, first=100)
    assert told(stage.wait(0.25), Spawn)


def test_a_pool_that_lost_all_its_workers_at_once_is_whole_again_at_once():
    stage = Stage(min=4)
    tickets = stage.ask(8)
    stage.load()
    for worker in tuple(stage.ready):
        stage.end(worker)
    assert stage.status.state == "empty"
    assert stage.inside == {}
    for ticket in tickets:
        stage.ask_again(ticket)
    stage.wait(0.25)
    assert sorted(stage.slot[worker] for worker in stage.starting) == [0, 1, 2, 3]
    stage.load()
    assert len(stage.inside) == 8


def test_workers_that_get_ready_and_die_without_having_played_back_off():
    stage = Stage(max=1)
    for _ in range(12):
        while not stage.starting:
            stage.wait(0.05)
            stage.settle()
        stage.load()
        stage.end(stage.ready[0])
    found = gaps(starts_of_slot(stage, 0))
    assert found[6] >= 8
    assert 15 <= found[-1] <= 30.1
    assert stage.status.why.startswith("died serving, SIGSEGV; again in")


def test_a_worker_that_has_finished_rollouts_is_replaced_after_the_shortest_back_off():
    stage = Stage(max=1)
    for age in range(12):
        (ticket,) = stage.ask(1, first=age)
        while not stage.starting:
            stage.wait(0.05)
        stage.load()
        stage.answer(ticket)
        stage.end(stage.ready[0])
    assert max(gaps(starts_of_slot(stage, 0))) <= 0.31


def test_a_rollout_that_was_cancelled_is_none_that_was_finished():
    stage = Stage(max=1)
    for age in range(12):
        (ticket,) = stage.ask(1, first=age)
        while not stage.starting:
            stage.wait(0.05)
        stage.load()
        stage.withdraw(ticket)
        stage.answer(ticket)
        stage.end(stage.ready[0])
    assert max(gaps(starts_of_slot(stage, 0))) > 8
