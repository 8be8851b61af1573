"""How workers end by our hand: for a cancellation that they do not answer, or for their silence."""

from __future__ import annotations

from scavenge.core.supervision import Abort, Condemn, Displace, Give, Kill, Look
from scavenge.core.supervision.settings import ABORT_GRACE_S
from supervision_kit import Stage, ready_stage, suspect, told

# --- cancellation


def test_a_withdrawn_rollout_that_waits_is_forgotten():
    stage = Stage(max=1)
    (ticket,) = stage.ask(1)
    assert stage.withdraw(ticket) == []
    assert stage.load() == []
    assert stage.withdraw(ticket) == []


def test_the_place_of_a_cancelled_rollout_is_taken_until_it_is_answered():
    stage = ready_stage(max=1, multiplex=1)
    ticket, waiting = stage.ask(2)
    assert stage.withdraw(ticket) == [Abort(ticket, 1)]
    assert stage.withdraw(ticket) == []
    stage.wait(ABORT_GRACE_S - 1)
    assert stage.answer(ticket) == [Give(waiting, 1)]
    assert told(stage.wait(60), Kill) == []


def test_a_cancellation_that_is_not_answered_costs_the_worker_but_blames_nobody_else():
    stage = ready_stage(max=1)
    stubborn, other = stage.ask(2)
    stage.withdraw(stubborn)
    assert told(stage.wait(ABORT_GRACE_S - 0.5), Kill) == []
    why = "it has not answered a cancelled rollout within 5 s"
    assert told(stage.wait(0.5), Kill) == [Kill(1, why)]
    assert told(stage.end(1, "SIGKILL"), Displace) == [Displace(other, f"worker 1 was ended ({why})")]
    assert other.deaths == 0
    assert len(stage.starting) == 1  # it has not failed, so that nothing backs off


def test_a_stall_of_our_own_loop_is_no_grace_that_has_passed():
    stage = ready_stage(max=1)
    (ticket,) = stage.ask(1)
    stage.withdraw(ticket)
    assert stage.stall(100) == []
    stage.answer(ticket)
    assert told(stage.wait(60), Kill) == []


def test_a_rollout_that_is_withdrawn_while_its_worker_dies_is_not_told_of_any_more():
    stage = ready_stage(max=1)
    ticket, cancelled = stage.ask(2)
    stage.withdraw(cancelled)
    stage.supervisor.on_end(1, "SIGSEGV", stage.now)
    stage.supervisor.withdraw(ticket, stage.now)
    assert stage.settle() == []


def test_a_rollout_is_not_cancelled_in_a_worker_that_is_being_killed_or_has_answered():
    stage = ready_stage(max=1)
    stubborn, other, answered = stage.ask(3)
    stage.supervisor.withdraw(answered, stage.now)
    assert stage.answer(answered) == []
    stage.withdraw(stubborn)
    stage.wait(ABORT_GRACE_S)
    assert stage.withdraw(other) == []
    assert told(stage.end(1), Displace) == []


def test_a_cancellation_is_not_told_to_a_worker_that_died_meanwhile():
    stage = ready_stage(max=1)
    (ticket,) = stage.ask(1)
    stage.supervisor.withdraw(ticket, stage.now)
    assert stage.end(1) == []


def test_what_a_worker_had_answered_before_it_was_killed_counts():
    stage = ready_stage(max=1)
    stubborn, other, alone = *stage.ask(2), suspect(9)
    stage.withdraw(stubborn)
    stage.wait(ABORT_GRACE_S)
    stage.answer(other)
    stage.ask_again(alone)
    assert stage.end(1, "SIGKILL") == [stage.told[-1]]
    assert not told(stage.told, Displace)


# --- silence


def test_a_worker_that_hung_gets_nothing_although_its_last_answer_comes_after_all():
    stage = ready_stage(max=1)
    stage.ask_again(alone := suspect(0))
    stage.silent.add(1)
    stage.wait(30)
    stage.supervisor.on_broken(1, "late", stage.now)
    assert stage.answer(alone) == []
    (late,) = stage.ask(1, first=1)
    assert stage.status.ready == 0
    assert stage.end(1, "SIGKILL") == []  # it failed all the same, and its slot backs off
    stage.wait(0.25)
    stage.load()
    assert stage.inside == {late: 2}


def test_a_worker_that_is_gone_before_the_decision_is_not_killed():
    stage = ready_stage(max=1)
    stage.silent.add(1)
    stage.wait(29)
    stage.now += 1
    assert told(stage.supervisor.decide(stage.now), Look)
    stage.supervisor.on_cpu(1, 0.0, stage.now)
    stage.supervisor.on_end(1, "SIGSEGV", stage.now)
    assert told(stage.settle(), Kill) == []


def test_an_answer_is_a_sign_of_life():
    stage = ready_stage(max=1)
    stage.silent.add(1)
    for age in range(5):
        stage.answer(*stage.ask(1, first=age))
        assert told(stage.wait(25), Kill) == []


def test_work_before_the_last_sign_is_no_work_after_it():
    stage = ready_stage(max=1)
    stage.silent.add(1)
    stage.wait(10)
    stage.silent.clear()
    stage.wait(10)
    stage.cpu[1] = 100.0
    stage.silent.add(1)
    assert told(stage.wait(29), Kill) == []
    assert told(stage.wait(1), Kill)


def test_a_silent_worker_without_processor_time_is_killed_and_its_rollouts_bear_it():
    stage = ready_stage(max=1)
    (ticket,) = stage.ask(1)
    stage.silent.add(1)
    new = stage.wait(30)
    why = "hung: no sign of life and no work for 30 s"
    assert new == [*[Look(1)] * 6, Kill(1, why)]
    stage.end(1, "SIGKILL")
    assert ticket.deaths == 1
    assert stage.status.why.startswith(f"died serving, {why}")


def test_a_suspect_that_hangs_alone_is_condemned():
    stage = ready_stage(max=1)
    stage.ask_again(alone := suspect(0))
    stage.silent.add(1)
    stage.wait(30)
    assert [end.ticket for end in told(stage.end(1, "SIGKILL"), Condemn)] == [alone]


def test_a_silent_worker_that_works_is_busy():
    stage = ready_stage(max=1)
    stage.silent.add(1)
    for _ in range(200):
        stage.cpu[1] = stage.cpu.get(1, 0.0) + 0.9
        stage.wait(1)
    assert told(stage.told, Kill) == []
    assert told(stage.told, Look)
    assert told(stage.wait(29), Kill) == []  # from the last work on
    assert told(stage.wait(6), Kill)


def test_threads_that_wait_for_the_interpreter_of_a_hung_worker_are_no_work():
    stage = ready_stage(max=1)
    stage.silent.add(1)
    for _ in range(31):
        stage.cpu[1] = stage.cpu.get(1, 0.0) + 0.02
        stage.wait(1)
    assert told(stage.told, Kill)


def test_without_a_clock_of_its_processor_time_silence_alone_counts():
    stage = ready_stage(max=1)
    stage.silent.add(1)
    stage.cpu[1] = None
    assert told(stage.wait(29), Kill) == []
    assert told(stage.wait(1), Kill)


def test_a_stall_of_our_own_loop_makes_nobody_silent():
    stage = ready_stage(min=4, max=4)
    stage.wait(4)
    for _ in range(20):
        assert told(stage.stall(300), Kill) == []
        stage.wait(1)


def test_workers_that_load_may_be_silent():
    stage = Stage(startup_timeout_s=1_000)
    stage.settle()
    stage.silent.add(1)
    assert stage.wait(999) == []
