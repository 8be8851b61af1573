"""How a pool of workers starts and grows, told step by step."""

from __future__ import annotations

from scavenge.core.supervision import GiveUp, Kill, Spawn
from scavenge.core.supervision.settings import STOP_GRACE_S
from supervision_kit import Stage, told

# --- the start


def test_as_many_workers_as_the_least_start_side_by_side():
    stage = Stage(min=3)
    assert told(stage.settle(), Spawn) == [Spawn(1, 0), Spawn(2, 1), Spawn(3, 2)]
    assert stage.settle() == []


def test_a_worker_that_loads_gets_no_work():
    stage = Stage(min=2)
    stage.ask(3)
    assert stage.inside == {}
    stage.load(1)
    assert set(stage.inside.values()) == {1}


def test_an_environment_that_no_worker_can_load_ends_the_run_at_once():
    stage = Stage(min=2)
    stage.settle()
    assert stage.end(1, "exit code 3") == []
    assert stage.wait(5) == []  # the other one may still load
    assert stage.broken(2, "KeyError: 'rows'") == [GiveUp("KeyError: 'rows'")]
    assert stage.wait(1_000) == []
    assert stage.status.state == "empty"
    assert stage.status.why == "died loading, KeyError: 'rows'"


def test_loading_for_too_long_is_a_death_while_loading():
    stage = Stage(startup_timeout_s=100)
    stage.settle()
    assert stage.wait(99) == []
    why = "not ready within startup_timeout = 100 s"
    assert stage.wait(1) == [Kill(1, why), GiveUp(why)]
    stage.supervisor.on_ready(1, stage.now)
    assert stage.settle() == []
    assert stage.status.ready == 0


def test_time_in_which_nobody_was_awake_is_no_time_of_loading():
    stage = Stage(startup_timeout_s=100)
    stage.settle()
    stage.wait(90)
    assert stage.stall(500) == []
    assert stage.load() == []
    assert stage.status.state == "ready"


def test_one_that_loads_is_enough_to_try_the_others_again():
    stage = Stage(min=2)
    stage.settle()
    stage.end(1, "exit code 3")
    assert stage.status.why == "died loading, exit code 3; tried again once another has loaded"
    assert told(stage.load(2), Spawn) == [Spawn(3, 0)]
    assert stage.end(3, "exit code 3") == []
    assert (stage.status.state, stage.status.why) == ("degraded", "died loading, exit code 3; again in 1 s")
    assert told(stage.wait(0.25), Spawn) == [Spawn(4, 0)]


def test_a_machine_that_starts_no_process_is_no_broken_environment():
    stage = Stage(min=2, request_deadline_s=1e9)
    stage.settle()
    stage.end(1, "exit code 3")
    stage.not_spawned(2, "no memory")
    assert stage.status.why.startswith("not spawned, no memory; again in")
    for _ in range(50):
        stage.wait(30)
        for worker in tuple(stage.starting):
            assert stage.not_spawned(worker) == []
    stage.wait(60)
    assert stage.broken(stage.starting[0], "no GPU") == [GiveUp("no GPU")]


def test_a_broken_worker_that_does_not_end_is_killed():
    stage = Stage(min=2)
    stage.settle()
    stage.load(2)
    stage.broken(1)
    assert told(stage.wait(STOP_GRACE_S - 0.5), Kill) == []
    assert told(stage.wait(0.5), Kill) == [Kill(1, "it has not ended within 5 s")]
    assert told(stage.wait(60), Kill) == []


def test_a_worker_that_is_broken_only_after_it_was_ready_died_serving():
    stage = Stage()
    (ticket,) = stage.ask(1)
    stage.load(1)
    stage.broken(1)
    assert ticket.deaths == 0
    stage.end(1)
    assert ticket.deaths == 1
    assert stage.status.why.startswith("died serving, KeyError: 'rows'")


# --- growth by need


def test_workers_are_started_when_nine_tenths_of_the_places_are_taken():
    stage = Stage(min=1, max=3, multiplex=10)
    stage.ask(9)
    assert len(stage.starting) == 1
    stage.ask(1, first=9)
    assert len(stage.starting) == 2
    stage.ask(90, first=10)
    assert len(stage.starting) == 3
    assert (stage.status.wanted, stage.status.parked) == (3, 100)


def test_growth_that_failed_is_tried_again_without_a_new_request():
    stage = Stage(max=2)
    stage.settle()
    stage.load()
    stage.ask(9)
    stage.not_spawned(2)
    assert told(stage.wait(0.125), Spawn) + told(stage.wait(0.125), Spawn) == [Spawn(3, 1)]


def test_growth_that_fails_tries_no_fresh_slots_around_the_back_off():
    stage = Stage(max=100)
    stage.settle()
    stage.load()
    stage.ask(5)
    for _ in range(120):
        for worker in tuple(stage.starting):
            stage.not_spawned(worker)
        stage.wait(0.5)
    assert {stage.slot[worker] for _, worker in stage.spawned} == {0, 1}
    assert len(stage.spawned) <= 12


def test_a_slot_that_waits_does_not_stand_in_for_more_than_one_worker():
    stage = Stage(max=4)
    stage.settle()
    stage.load()
    stage.ask(5)
    stage.not_spawned(2)
    assert told(stage.settle(), Spawn) == []
    stage.ask(6, first=20)
    assert [stage.slot[worker] for worker in stage.starting] == [2, 3]


def test_a_worker_that_does_not_end_is_made_up_for_by_a_fresh_slot_once_its_back_off_is_over():
    stage = Stage(min=2, max=3)
    stage.settle()
    stage.load(2)
    assert told(stage.broken(1), Spawn) == []  # no fresh slot around the back-off
    assert told(stage.wait(0.25), Spawn) == [Spawn(3, 2)]
