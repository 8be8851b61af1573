"""Which workers are let go, what is said of a pool, how it ends, and that many rollouts are no burden to it."""

from __future__ import annotations

from random import Random

from scavenge.core.supervision import Displace, Kill, Retire, Ticket
from scavenge.core.supervision.settings import IDLE_AFTER_S, STOP_GRACE_S
from supervision_kit import Stage, ready_stage, told

# --- idle workers


def test_idle_workers_beyond_the_least_are_retired_the_highest_slot_first():
    stage = ready_stage(max=3, multiplex=1)
    tickets = stage.ask(3)
    stage.load()
    stage.answer(*tickets)
    assert told(stage.wait(IDLE_AFTER_S - 1), Retire) == []
    assert told(stage.wait(1), Retire) == [Retire(3), Retire(2)]
    assert stage.status.ready == 1
    for worker in (2, 3):
        stage.end(worker, "exit code 0")
    assert told(stage.wait(1_000), Retire) == []
    assert (stage.status.state, stage.status.why) == ("ready", "")


def test_a_worker_that_has_work_is_not_retired():
    stage = ready_stage(max=2, multiplex=4)
    stage.ask(3)
    (last,) = stage.ask(1, first=3)
    stage.load()
    stage.ask_again(busy := Ticket(4, "busy"))
    stage.answer(*(ticket for ticket in tuple(stage.inside) if ticket is not busy))
    assert stage.inside == {busy: 2}
    assert told(stage.wait(20 * IDLE_AFTER_S), Retire) == [Retire(1)]  # the other one, although its slot is lower
    assert last not in stage.inside


def test_a_worker_that_has_just_become_idle_is_not_retired_at_once():
    stage = ready_stage(max=2, multiplex=4)
    tickets = stage.ask(4)
    stage.load()
    stage.ask_again(busy := Ticket(4, "busy"))
    stage.answer(*tickets[1:])
    stage.wait(IDLE_AFTER_S)
    assert stage.retired == []
    stage.answer(busy)
    assert told(stage.wait(IDLE_AFTER_S - 1), Retire) == []
    assert told(stage.wait(1), Retire) == [Retire(2)]


def test_need_that_comes_back_keeps_idle_workers():
    stage = ready_stage(max=2, multiplex=1)
    tickets = stage.ask(2)
    stage.load()
    stage.answer(*tickets)
    stage.wait(IDLE_AFTER_S - 1)
    again = stage.ask(2, first=10)
    stage.answer(*again)
    assert told(stage.wait(IDLE_AFTER_S - 1), Retire) == []
    assert told(stage.wait(1), Retire) == [Retire(2)]


def test_a_retired_worker_that_does_not_end_is_killed_and_its_slot_is_taken_until_it_is_gone():
    stage = ready_stage(max=2, multiplex=1)
    stage.answer(*stage.ask(1))
    stage.load()
    stage.wait(IDLE_AFTER_S)
    assert stage.retired == [2]
    stage.ask(2, first=10)
    assert stage.starting == []
    assert told(stage.wait(STOP_GRACE_S), Kill) == [Kill(2, "it has not ended within 5 s")]
    assert told(stage.wait(60), Kill) == []
    assert stage.starting == []
    stage.end(2, "SIGKILL")
    assert [stage.slot[worker] for worker in stage.starting] == [1]


def test_a_pool_may_be_empty_when_nothing_is_asked_of_it():
    stage = Stage(min=0)
    assert stage.settle() == []
    assert stage.supervisor.next_wake_at(stage.now) is None
    assert (stage.status.state, stage.status.why) == ("empty", "")
    stage.ask(1)
    assert len(stage.starting) == 1


# --- what is said of it


def test_the_status_is_never_a_bare_ok():
    stage = Stage(min=2, max=2)
    assert stage.status.state == "empty"
    stage.settle()
    assert stage.status.state == "starting"
    stage.load(1)
    assert (stage.status.state, stage.status.ready, stage.status.starting) == ("ready", 1, 1)
    stage.load()
    stage.end(1)
    assert (stage.status.state, stage.status.ready, stage.status.wanted) == ("degraded", 1, 2)
    stage.wait(0.5)
    assert (stage.status.state, stage.status.why) == ("degraded", "died serving, SIGSEGV; being tried again")
    stage.load()
    assert (stage.status.state, stage.status.why) == ("ready", "")


def test_those_that_load_make_up_for_one_that_failed():
    stage = ready_stage(max=3, multiplex=1)
    tickets = stage.ask(2)
    stage.not_spawned(2)
    assert stage.status.state == "degraded"
    stage.withdraw(tickets[1])
    assert (stage.status.starting, stage.status.state, stage.status.why) == (1, "ready", "")


def test_a_start_that_is_tried_again_is_no_trouble_once_it_is_not_needed():
    stage = ready_stage(max=2, multiplex=4)
    tickets = stage.ask(4)
    stage.not_spawned(2)
    stage.wait(0.25)
    assert (stage.status.state, stage.status.why) == ("degraded", "not spawned, no memory; being tried again")
    stage.answer(*tickets)
    assert (stage.status.starting, stage.status.state, stage.status.why) == (1, "ready", "")


def test_trouble_that_nothing_needs_mended_is_told_without_a_time():
    stage = Stage(min=0, request_deadline_s=1)
    (ticket,) = stage.ask(1)
    stage.not_spawned(1)
    assert stage.status.why == "not spawned, no memory; again in 1 s"
    stage.withdraw(ticket)
    assert (stage.status.state, stage.status.why) == ("empty", "")
    assert stage.wait(1_000) == []


# --- the end


def test_a_closed_pool_starts_and_gives_nothing_but_still_says_what_became_of_rollouts():
    stage = ready_stage(max=2, multiplex=1)
    played, parked = stage.ask(2)
    stage.supervisor.close(stage.now)
    assert stage.settle() == []
    assert stage.supervisor.next_wake_at(stage.now) is None
    assert stage.withdraw(parked) == []
    assert stage.end(1, "exit code 0") == [Displace(played, "worker 1 died serving (exit code 0)")]
    assert stage.starting == [2]


def test_thousands_of_rollouts_go_through_many_workers_once_each():
    stage = ready_stage(min=64, max=64, multiplex=16)
    tickets = stage.ask(3_000)
    order = []
    while stage.inside:
        order.append(next(iter(stage.inside)))
        stage.answer(order[-1])
    assert order == tickets


def test_thousands_of_cancellations_leave_nothing_behind():
    stage = Stage(max=1)
    tickets = stage.ask(3_000)
    random = Random(1)
    random.shuffle(tickets)
    for ticket in tickets[:-1]:
        stage.withdraw(ticket)
    assert stage.status.parked == 1
    stage.load()
    assert list(stage.inside) == tickets[-1:]
