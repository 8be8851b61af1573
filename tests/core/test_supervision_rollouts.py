"""What becomes of rollouts: who plays them, what they wait for, and who dies of them."""

from __future__ import annotations

from collections import Counter

import pytest

from scavenge.core.supervision import Condemn, Displace, Give, Refuse, Ticket
from supervision_kit import Stage, ready_stage, suspect, told

# --- who plays what


def test_no_worker_has_a_backlog_and_the_oldest_goes_first():
    stage = ready_stage(min=2, max=2, multiplex=2)
    tickets = stage.ask(6)
    assert Counter(stage.inside.values()) == {1: 2, 2: 2}
    late = Ticket(-1, "an older one")
    stage.ask_again(late)
    stage.answer(tickets[0])
    assert late in stage.inside
    stage.answer(tickets[1])
    assert tickets[4] in stage.inside
    assert tickets[5] not in stage.inside


def test_rollouts_of_one_age_go_in_the_order_in_which_they_asked():
    stage = ready_stage(max=1, multiplex=1)
    tickets = [Ticket(7, f"plus/{number}/0") for number in range(4)]
    for ticket in tickets:
        stage.ask_again(ticket)
    for ticket in tickets:
        assert list(stage.inside) == [ticket]
        stage.answer(ticket)


def test_rollouts_are_spread_over_the_emptiest_workers_in_turn():
    stage = ready_stage(min=3, max=3)
    tickets = stage.ask(3)
    assert Counter(stage.inside.values()) == {1: 1, 2: 1, 3: 1}
    stage.answer(*tickets)
    again = stage.ask(1, first=10)[0]
    assert stage.inside[again] == 1
    stage.answer(again)
    assert stage.inside[stage.ask(1, first=11)[0]] == 2


def test_a_worker_that_becomes_ready_takes_over_what_waits():
    stage = ready_stage(max=2, multiplex=2)
    stage.ask(4)
    assert Counter(stage.inside.values()) == {1: 2}
    stage.load()
    assert Counter(stage.inside.values()) == {1: 2, 2: 2}


def test_a_lower_multiplex_holds_for_what_is_asked_after_it():
    stage = Stage(max=1)
    stage.settle()
    stage.supervisor.multiplex = 1
    stage.load()
    stage.ask(3)
    assert len(stage.inside) == 1


def test_a_rollout_cannot_be_asked_for_twice():
    stage = ready_stage(max=1, multiplex=1)
    played, parked = stage.ask(2)
    for ticket in (played, parked):
        with pytest.raises(ValueError, match="asked for before"):
            stage.supervisor.ask(ticket, stage.now)
    stage.supervisor.on_end(1, "SIGSEGV", stage.now)
    with pytest.raises(ValueError, match="asked for before"):
        stage.supervisor.ask(played, stage.now)
    assert told(stage.settle(), Displace)


def test_an_answer_of_a_worker_that_does_not_have_the_rollout_changes_nothing():
    stage = ready_stage(min=2, multiplex=1)
    first, second = stage.ask(2)
    stage.supervisor.on_answer(stage.inside[first], second, stage.now)
    stage.supervisor.on_answer(99, first, stage.now)
    assert stage.settle() == []
    assert stage.status.playing == 2


def test_what_comes_of_a_worker_that_is_gone_changes_nothing():
    stage = ready_stage(min=2)
    stage.end(1)
    for late in ("on_ready", "on_sign"):
        getattr(stage.supervisor, late)(1, stage.now)
    stage.supervisor.on_broken(1, "late", stage.now)
    stage.supervisor.on_end(1, "late", stage.now)
    stage.supervisor.on_cpu(1, 3.0, stage.now)
    assert stage.settle() == []
    assert stage.status.ready == 1


# --- waiting without a worker


def test_rollouts_are_parked_at_an_empty_pool_until_their_deadline():
    stage = Stage(request_deadline_s=100, startup_timeout_s=1e6)
    (early,) = stage.ask(1)
    stage.wait(60)
    (late,) = stage.ask(1, first=1)
    assert told(stage.wait(39), Refuse) == []
    why = "no worker became ready within request_deadline = 100 s: it is still loading"
    assert told(stage.wait(1), Refuse) == [Refuse(early, why)]
    assert told(stage.wait(59), Refuse) == []
    assert told(stage.wait(1), Refuse) == [Refuse(late, why)]


def test_a_refusal_says_what_failed_and_when_it_is_tried_again():
    stage = ready_stage(max=1, request_deadline_s=1)
    stage.end(1)
    stage.ask(1)
    while not stage.starting:
        stage.wait(0.05)
    stage.not_spawned(2, "no memory")
    for _ in range(40):
        stage.wait(0.05)
        for worker in tuple(stage.starting):
            stage.not_spawned(worker, "no memory")
    (refusal,) = told(stage.told, Refuse)
    assert "not spawned, no memory; again in" in refusal.why


def test_no_deadline_runs_while_a_worker_is_ready_and_it_starts_anew_afterwards():
    stage = ready_stage(max=1, multiplex=1, request_deadline_s=100, startup_timeout_s=1e6)
    _, parked = stage.ask(2)
    assert stage.wait(1_000) == []
    stage.end(1)
    assert told(stage.wait(99.5), Refuse) == []
    assert [refusal.ticket for refusal in told(stage.wait(0.5), Refuse)] == [parked]


def test_a_start_that_fails_does_not_prolong_the_deadline():
    stage = Stage(max=1, request_deadline_s=100)
    stage.ask(1)
    for _ in range(995):
        for worker in tuple(stage.starting):
            stage.not_spawned(worker)
        stage.wait(0.1)
    assert told(stage.told, Refuse) == []
    assert told(stage.wait(0.5), Refuse)


def test_a_stall_of_our_own_loop_refuses_nobody():
    stage = Stage(request_deadline_s=100)
    stage.ask(1)
    stage.wait(50)
    assert stage.stall(1_000) == []
    assert told(stage.load(), Give)


# --- death


def test_only_the_unanswered_rollouts_of_a_dead_worker_are_displaced():
    stage = ready_stage(min=2, max=2)
    tickets = stage.ask(4)
    mine = [ticket for ticket in tickets if stage.inside[ticket] == 1]
    stage.answer(mine[0])
    assert told(stage.end(1), Displace) == [Displace(mine[1], "worker 1 died serving (SIGSEGV)")]
    assert [ticket.deaths for ticket in tickets] == [mine[1] is ticket for ticket in tickets]
    stage.ask_again(mine[1])
    assert stage.inside[mine[1]] == 2


def test_nothing_is_given_to_a_dead_worker():
    stage = ready_stage(min=2, max=2, multiplex=2)
    stage.end(1)
    stage.ask(4)
    assert set(stage.inside.values()) == {2}


def test_a_rollout_whose_workers_die_is_the_poison_only_once_it_was_alone():
    stage = ready_stage(max=1)
    poison, other = stage.ask(2)
    for deaths in (1, 2):
        stage.end(stage.ready[0])
        assert poison.deaths == other.deaths == deaths
        for ticket in (poison, other):
            stage.ask_again(ticket)
        stage.wait(1)
        stage.load()
    assert list(stage.inside) == [poison]
    said = "all 3 workers that it was played in died, the last with nothing else in it: worker 3 died serving (SIGSEGV)"
    assert stage.end(stage.ready[0]) == [Condemn(poison, said)]
    stage.wait(1)
    stage.load()
    assert list(stage.inside) == [other]
    stage.answer(other)
    assert len(told(stage.told, Condemn)) == 1


def test_a_suspect_is_not_overtaken_for_ever_where_there_is_one_worker():
    stage = ready_stage(max=1, multiplex=3)
    playing = stage.ask(3)
    stage.ask_again(alone := suspect(3))
    later = stage.ask(5, first=4)
    stage.answer(*playing[:2])
    assert list(stage.inside) == [playing[2]]  # it is being emptied
    stage.answer(playing[2])
    assert list(stage.inside) == [alone]
    stage.answer(alone)
    assert list(stage.inside) == later[:3]


def test_a_suspect_waits_for_its_turn_by_age():
    stage = ready_stage(max=1, multiplex=1)
    (playing,) = stage.ask(1)
    older = stage.ask(2, first=1)
    stage.ask_again(alone := suspect(3))
    stage.answer(playing)
    for ticket in older:
        assert list(stage.inside) == [ticket]
        stage.answer(ticket)
    assert list(stage.inside) == [alone]


def test_suspects_are_alone_in_several_workers_and_leave_one_to_the_others():
    stage = ready_stage(min=4, max=4, multiplex=2)
    suspects = [suspect(age) for age in range(5)]
    others = [Ticket(100 + age, "other") for age in range(6)]
    for ticket in (*others, *suspects):
        stage.supervisor.ask(ticket, stage.now)
    stage.settle()
    assert set(stage.inside) == {*suspects[:3], *others[:2]}
    stage.answer(suspects[0], others[0])
    assert set(stage.inside) == {*suspects[1:4], *others[1:3]}


def test_suspects_take_every_worker_when_there_is_nothing_else():
    stage = ready_stage(min=2, max=2)
    first, second = suspect(0), suspect(1)
    stage.ask_again(first)
    stage.ask_again(second)
    assert len(set(stage.inside.values())) == 2
    late = stage.ask(1, first=2)[0]
    assert late not in stage.inside
    stage.answer(first)
    assert late in stage.inside


def test_a_worker_that_becomes_ready_saves_a_suspect_the_emptying_of_another():
    stage = ready_stage(max=2, multiplex=2)
    tickets = stage.ask(2)
    stage.ask_again(alone := suspect(2))
    (later,) = stage.ask(1, first=3)
    stage.answer(tickets[0])
    assert list(stage.inside) == [tickets[1]]
    stage.load()
    assert stage.inside == {tickets[1]: 1, later: 1, alone: 2}


def test_a_suspect_finds_its_place_again_when_its_worker_dies_before_it_is_empty():
    stage = ready_stage(max=1, multiplex=2)
    (playing,) = stage.ask(1)
    stage.ask_again(alone := suspect(1))
    assert told(stage.end(1), Displace) == [Displace(playing, "worker 1 died serving (SIGSEGV)")]
    assert alone.deaths == 2
    stage.wait(1)
    stage.load()
    assert list(stage.inside) == [alone]


def test_a_suspect_that_is_withdrawn_frees_the_worker_that_was_being_emptied():
    stage = ready_stage(max=1, multiplex=2)
    stage.ask(1)
    stage.ask_again(alone := suspect(1))
    later = stage.ask(1, first=2)[0]
    assert later not in stage.inside
    assert told(stage.withdraw(alone), Give) == [Give(later, 1)]


def test_a_suspect_calls_for_a_worker_of_its_own():
    stage = ready_stage(max=4)
    stage.ask(2)
    assert stage.status.wanted == 1
    stage.ask_again(suspect(5))
    assert stage.status.wanted == 2
