"""One simulated server: what it makes of requests and faults, and the truth that it keeps."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scavenge.testing import faults
from scavenge.testing.engine import EngineSettings
from scavenge.testing.host import Host
from scavenge.testing.model import SimulatedReply
from scavenge.testing.served import GarbageReply, Generation, Refusal, SimulatedServer

ONE_A_SECOND = EngineSettings(token_s=1.0, load_s=0.0, slots=2, max_waiting=2)


def make_host(**settings) -> Host:
    return Host(SimulatedServer("ep1", ONE_A_SECOND, **settings), random.Random(0))


def reply(tokens: int = 4) -> SimulatedReply:
    return SimulatedReply(("word",) * tokens, "stop", 3)


def begin(host: Host, now: float, tokens: int = 4) -> Generation:
    begun = host.begin(reply(tokens), lambda: None, now)
    assert isinstance(begun, Generation)
    return begun


def test_a_request_is_generated_and_counted():
    host, rung = make_host(), []
    generation = host.begin(reply(), lambda: rung.append(generation.tokens), 0.0)
    assert host.next_event_at() == 1.0
    host.advance(1.0)
    assert not generation.over
    host.advance(host.next_event_at())
    assert (generation.tokens, generation.finish_reason, rung) == (4, "stop", [1, 4])
    assert (host.truth.started, host.truth.finished, host.truth.tokens) == (1, 1, 4)
    assert host.next_event_at() is None


def test_the_peak_counts_what_runs_and_what_waits():
    host = make_host()
    for _ in range(4):
        begin(host, 0.0)
    assert (host.running, host.waiting, host.truth.peak_in_flight) == (2, 2, 4)
    assert host.begin(reply(), lambda: None, 0.0) == Refusal(503, "the queue is full")
    assert (host.truth.started, host.truth.refused, host.truth.peak_in_flight) == (4, 1, 4)


def test_cancelling_counts_once_and_an_ended_one_never():
    host = make_host()
    first, second = begin(host, 0.0), begin(host, 0.0)
    host.cancel(first, 1.0)
    host.cancel(first, 1.0)
    host.cancel(second, 99.0)
    assert (host.truth.cancelled, host.truth.finished) == (1, 1)


def test_the_front_door_looks_at_the_token_the_model_and_the_length():
    host = make_host(secret="s3", context_tokens=10)
    assert host.admit("sim", None, 1, 0.0) == Refusal(401, "the bearer token is missing or wrong")
    assert host.admit_probe("wrong", 0.0) == Refusal(401, "the bearer token is missing or wrong")
    assert host.admit_probe("s3", 0.0) is None
    assert host.admit("other", "s3", 1, 0.0).status == 404
    assert host.admit("sim", "s3", 11, 0.0).status == 400
    assert host.admit("sim", "s3", 10, 0.0) is None


def test_busy_lasts_as_long_as_it_asks_to_wait():
    host = make_host()
    host.apply(faults.Busy(retry_after_s=3.0), 10.0)
    assert host.admit("sim", None, 1, 12.9) == Refusal(429, "too many requests, come back later", 3.0)
    assert host.admit("sim", None, 1, 13.0) is None


@pytest.mark.parametrize("fault", [faults.Busy(), faults.Error(), faults.Garbage()])
@pytest.mark.parametrize("end", [faults.Heal(), faults.Restart()])
def test_a_fault_without_an_end_lasts_until_it_is_healed(fault, end):
    host = make_host()
    host.apply(fault, 0.0)
    assert host.admit("sim", None, 1, 1e6) is not None
    host.apply(end, 1e6)
    assert host.admit("sim", None, 1, 1e6) is None


@pytest.mark.parametrize("fault", [faults.Busy(for_s=2), faults.Error(for_s=2), faults.Garbage(2)])
def test_a_fault_with_an_end_ends(fault):
    host = make_host()
    host.apply(fault, 0.0)
    assert host.admit("sim", None, 1, 1.9) is not None
    assert host.admit("sim", None, 1, 2.0) is None


def test_a_rate_of_errors_is_about_that_rate():
    host = make_host()
    host.apply(faults.Error(status=502, rate=0.25), 0.0)
    errors = [host.admit("sim", None, 1, 0.0) for _ in range(2000)].count(Refusal(502, "simulated error"))
    assert 400 < errors < 600


def test_garbage_is_for_those_who_ask_for_a_completion():
    host = make_host()
    host.apply(faults.Garbage(), 0.0)
    assert host.admit("sim", None, 1, 0.0) == GarbageReply()
    assert host.admit_probe(None, 0.0) is None


def test_a_freeze_stops_the_tokens_and_tells_who_waits():
    host, rung = make_host(), []
    generation = host.begin(reply(), lambda: rung.append(host.frozen_since), 0.0)
    host.apply(faults.Freeze(for_s=10.0), 2.5)
    assert (generation.tokens, host.frozen_since, host.next_event_at()) == (1, 2.5, 12.5)
    host.apply(faults.Freeze(for_s=20.0), 3.0)
    assert (host.frozen_since, host.next_event_at()) == (2.5, 23.0)
    host.advance(23.0)
    assert (host.frozen_since, host.next_event_at()) == (None, 24.5)
    assert rung == [None, 2.5, 2.5, None]


def test_slow_makes_everything_take_so_many_times_as_long():
    host = make_host()
    begin(host, 0.0, tokens=10)
    host.apply(faults.Slow(x=3.0, for_s=12.0), 1.0)
    assert host.next_event_at() == 13.0
    host.advance(13.0)
    assert host.next_event_at() == pytest.approx(13.0 + 10 - 1 - 4)


def test_a_freeze_within_a_slow_time_goes_back_to_slow():
    host = make_host()
    begin(host, 0.0, tokens=10)
    host.apply(faults.Slow(x=2.0), 0.0)
    host.apply(faults.Freeze(for_s=5.0), 0.0)
    host.advance(5.0)
    assert host.next_event_at() == 5.0 + 2.0
    host.advance(7.0)
    assert host.next_event_at() == 5.0 + 20.0


@pytest.mark.parametrize("death", [faults.Kill(), faults.Restart()])
def test_dying_loses_what_was_in_flight_and_heals(death):
    host = make_host()
    running, waiting = [begin(host, 0.0) for _ in range(2)], begin(host, 0.0)
    host.apply(faults.Freeze(), 0.5)
    host.apply(death, 1.0)
    assert all(generation.lost and generation.over for generation in [*running, waiting])
    assert host.alive == isinstance(death, faults.Restart)
    assert (host.frozen_since, host.running, host.waiting, host.truth.lost) == (None, 0, 0, 3)


def test_an_abort_ends_the_replies_with_what_they_have():
    host = make_host()
    generation = begin(host, 0.0)
    host.advance(1.0)
    host.apply(faults.Abort(), 1.5)
    assert (generation.tokens, generation.finish_reason, host.truth.finished, host.truth.tokens) == (1, "abort", 1, 1)
    assert begin(host, 2.0).tokens == 0


def test_a_frozen_server_cannot_even_abort():
    host = make_host()
    generation = begin(host, 0.0)
    host.apply(faults.Freeze(), 0.5)
    host.apply(faults.Abort(), 0.6)
    assert not generation.over


def test_the_listing_words_change_the_listing_only():
    host = make_host()
    host.apply(faults.Drain(), 0.0)
    assert (host.alive, host.listed, host.draining) == (True, True, True)
    host.apply(faults.Leave(), 0.0)
    assert (host.alive, host.listed) == (True, False)
    host.apply(faults.Kill(), 0.0)
    host.apply(faults.Join(), 0.0)
    assert (host.alive, host.listed, host.draining) == (True, True, False)


def test_a_preempted_server_is_killed_at_its_deadline_and_a_restart_before_does_not_save_it():
    host = make_host()
    host.apply(faults.Notice(5.0), 1.0)
    assert (host.draining, host.listed, host.next_event_at()) == (True, True, 6.0)
    host.apply(faults.Restart(), 3.0)
    generation = begin(host, 4.0)
    host.advance(5.9)
    assert (host.alive, generation.lost, host.next_event_at()) == (True, False, 6.0)
    host.advance(6.0)
    assert (host.alive, generation.lost, host.draining, host.next_event_at()) == (False, True, True, None)
    assert host.deaths == 2


def test_healing_does_not_take_a_notice_back():
    host = make_host()
    host.apply(faults.Notice(5.0), 0.0)
    host.apply(faults.Heal(), 1.0)
    host.advance(10.0)
    assert not host.alive


def test_a_request_that_comes_in_the_instant_of_death_is_lost():
    host = make_host()
    host.apply(faults.Kill(), 1.0)
    generation = begin(host, 1.0)
    assert (generation.lost, host.in_flight) == (True, ())
    assert (host.truth.started, host.truth.lost) == (1, 1)


class HostMachine(RuleBasedStateMachine):
    """Whatever happens, every request that was taken is accounted for once."""

    def __init__(self) -> None:
        super().__init__()
        self.host, self.now, self.taken = make_host(), 0.0, []
        self.slots = 2

    @rule(tokens=st.integers(1, 9))
    def ask(self, tokens):
        if isinstance(begun := self.host.begin(reply(tokens), lambda: None, self.now), Generation):
            self.taken.append(begun)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def hang_up(self, data):
        self.host.cancel(data.draw(st.sampled_from(self.taken)), self.now)

    @rule(seconds=st.floats(0, 20))
    def let_time_pass(self, seconds):
        self.now += seconds
        self.host.advance(self.now)

    @rule(
        fault=st.sampled_from(
            [
                *(faults.Kill(), faults.Restart(), faults.Abort(), faults.Heal(), faults.Freeze(2.0), faults.Freeze()),
                *(faults.Slow(2.0, 3.0), faults.Slow(5.0), faults.Busy(1.0), faults.Garbage(1.0)),
                *(faults.Notice(3.0), faults.Join(), faults.Cap(slots=1), faults.Cap(slots=2)),
            ]
        )
    )
    def suffer(self, fault):
        self.host.apply(fault, self.now)
        if isinstance(fault, faults.Cap):
            self.slots = fault.slots

    @invariant()
    def conserved(self):
        truth = self.host.truth
        in_flight = self.host.running + self.host.waiting
        assert truth.started == len(self.taken)
        assert truth.started == truth.finished + truth.cancelled + truth.lost + in_flight
        assert truth.finished == sum(generation.finish_reason is not None for generation in self.taken)
        assert truth.lost == sum(generation.lost for generation in self.taken)
        assert in_flight <= 4
        assert truth.peak_in_flight >= in_flight
        assert not self.host.waiting or self.slots <= self.host.running <= 2
        assert self.host.alive or not in_flight


TestHostMachine = HostMachine.TestCase
