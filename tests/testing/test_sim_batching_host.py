"""One simulated server with a batching engine: its cache, its pool, its front door and what it tells of itself."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scavenge.signals import ServerLoad
from scavenge.testing import faults
from scavenge.testing.batching_settings import BatchingSettings
from scavenge.testing.engine import EngineSettings
from scavenge.testing.engine_kinds import most_tokens_per_s
from scavenge.testing.host import Host
from scavenge.testing.model import SimulatedReply
from scavenge.testing.served import Generation, Refusal, SimulatedServer

STEP_A_SECOND = BatchingSettings(
    weights_s=1.0, gemm_s=0.0, kv_read_s=0.0, attention_s=0.0, overhead_s=0.0, stream_s=0.0, kv_tokens=1000, slots=2
)
"""Each step takes a second, whatever it carries."""


def make_host(engine: BatchingSettings = STEP_A_SECOND, **settings) -> Host:
    return Host(SimulatedServer("ep1", engine, **settings), random.Random(0))


def begin(host: Host, now: float, tokens: int = 4, prompt: int = 3, conversation: str = "one") -> Generation:
    begun = host.begin(SimulatedReply(("word",) * tokens, "stop", prompt, conversation), lambda: None, now)
    assert isinstance(begun, Generation)
    return begun


def run_dry(host: Host) -> float:
    now = 0.0
    while (at := host.next_event_at()) is not None:
        host.advance(now := at)
    return now


def test_only_the_first_token_and_the_last_are_told_and_the_rest_is_there_for_who_looks():
    host, rung = make_host(), []
    generation = host.begin(SimulatedReply(("word",) * 9, "stop", 3), lambda: rung.append(generation.tokens), 0.0)
    host.advance(5.5)
    assert (generation.tokens, generation.first_at) == (1, 1.0)
    host.refresh(generation, 5.5)
    assert (generation.tokens, host.tells_each_token) == (5, False)
    run_dry(host)
    assert (generation.tokens, generation.finish_reason, generation.first_at, rung) == (9, "stop", 1.0, [1, 9])
    host.refresh(generation, 99.0)
    assert generation.tokens == 9


def test_a_request_that_waits_has_no_tokens_for_who_looks():
    host = make_host()
    *_, third = [begin(host, 0.0, tokens=9) for _ in range(3)]
    host.refresh(third, 4.0)
    assert (third.tokens, third.first_at, host.running, host.waiting) == (0, None, 2, 1)


def test_the_next_turn_of_a_conversation_finds_its_prefix_in_the_cache():
    host = make_host()
    first = begin(host, 0.0, tokens=4, prompt=10)
    now = run_dry(host)
    second, other = begin(host, now, prompt=20), begin(host, now, prompt=20, conversation="two")
    run_dry(host)
    assert (first.cached_tokens, other.cached_tokens) == (0, 0)
    assert second.cached_tokens == 14


def test_a_server_that_keeps_its_cache_to_itself_does_not_report_it():
    generation = begin(host := make_host(reports_cache=False), 0.0)
    run_dry(host)
    assert (generation.finish_reason, generation.cached_tokens) == ("stop", None)


@pytest.mark.parametrize(("death", "cached"), [(faults.Restart(), 0), (faults.Abort(), 13), (faults.Heal(), 14)])
def test_only_a_new_process_has_an_empty_cache(death, cached):
    host = make_host()
    begin(host, 0.0, tokens=5, prompt=10)
    host.advance(4.5)
    host.apply(death, 4.5)
    run_dry(host)
    again = begin(host, 10.0, prompt=20)
    run_dry(host)
    assert again.cached_tokens == pytest.approx(cached, abs=1)


def test_a_dead_server_s_requests_have_the_tokens_that_they_had():
    host = make_host()
    generation, _, waiting = (begin(host, 0.0, tokens=9) for _ in range(3))
    host.apply(faults.Kill(), 4.5)
    assert (generation.lost, generation.tokens, waiting.lost, waiting.tokens) == (True, 4, True, 0)
    assert (host.running, host.waiting, host.next_event_at(), host.truth.lost) == (0, 0, None, 3)


def test_an_aborted_reply_has_the_tokens_that_it_had():
    host = make_host()
    generation = begin(host, 0.0, tokens=9)
    host.apply(faults.Abort(), 4.5)
    assert (generation.finish_reason, generation.tokens, host.truth.tokens) == ("abort", 4, 4)


def test_the_front_door_turns_away_with_429_what_is_too_much():
    host = make_host(BatchingSettings(slots=2, max_waiting=1))
    for _ in range(3):
        begin(host, 0.0)
    refused = host.begin(SimulatedReply(("word",), "stop", 3), lambda: None, 0.0)
    assert refused == Refusal(429, "too many requests are here already")
    assert (host.truth.started, host.truth.refused, len(host.in_flight)) == (3, 1, 3)


def test_a_frozen_engine_stands_still_and_a_slow_one_takes_so_many_times_as_long():
    host = make_host()
    generation = begin(host, 0.0, tokens=10)
    host.apply(faults.Freeze(for_s=100.0), 2.5)
    host.refresh(generation, 90.0)
    assert generation.tokens == 2
    host.apply(faults.Slow(x=2.0), 102.5)
    assert run_dry(host) == pytest.approx(102.5 + 7.5 * 2)


def test_a_cap_on_the_slots_holds_for_who_comes_next():
    host = make_host()
    host.apply(faults.Cap(slots=1), 0.0)
    for _ in range(2):
        begin(host, 0.0)
    assert (host.running, host.waiting) == (1, 1)


def kv_tokens(host: Host, now: float) -> int | None:
    load = host.load(now)
    assert load is not None
    return load.kv_tokens


@pytest.mark.parametrize("end", [faults.Heal(), faults.Restart()])
def test_the_pool_shrinks_until_it_is_healed(end):
    host = make_host()
    host.apply(faults.Kv(x=0.25), 1.0)
    assert kv_tokens(host, 1e6) == 250
    host.apply(end, 1e6)
    assert kv_tokens(host, 1e6) == 1000


def test_a_smaller_pool_puts_requests_back_and_comes_to_its_end():
    host = make_host()
    generations = [begin(host, 0.0, tokens=400, prompt=50, conversation=name) for name in "ab"]
    host.advance(100.0)
    host.apply(faults.Kv(x=0.25, for_s=50.0), 100.0)
    assert (host.running, host.waiting, host.next_event_at()) == (1, 1, pytest.approx(150.0, abs=50))
    host.advance(150.0)
    assert kv_tokens(host, 150.0) == 1000
    run_dry(host)
    assert [generation.finish_reason for generation in generations] == ["stop", "stop"]
    assert host.load(1e6).preemptions == 1


def test_an_engine_without_a_pool_takes_no_notice_of_it():
    host = Host(SimulatedServer("ep1", EngineSettings(token_s=1.0, load_s=0.0)), random.Random(0))
    generation = begin(host, 0.0)
    host.apply(faults.Kv(x=0.01), 0.5)
    assert run_dry(host) == 4.0
    assert generation.cached_tokens is None, "it has no cache either"


def test_what_is_told_is_what_such_a_server_tells():
    told = {}
    for metrics in ("vllm", "llama", None):
        host = make_host(metrics=metrics)
        for _ in range(3):
            begin(host, 0.0, prompt=10)
        told[metrics] = host.load(1.5)
    vllm = ServerLoad(2, 1, kv_usage=0.022, kv_tokens=1000, preemptions=0, prefix_queries=20, prefix_hits=0)
    assert told == {"vllm": vllm, "llama": ServerLoad(running=2, slots=2), None: None}


def test_a_batching_server_offers_figures_unless_told_otherwise():
    assert SimulatedServer("ep1", BatchingSettings()).metrics == "vllm"
    assert SimulatedServer("ep1", BatchingSettings(), metrics=None).metrics is None
    assert SimulatedServer("ep1").metrics is None
    with pytest.raises(ValueError, match="'metrics' must be in"):
        SimulatedServer("ep1", metrics="sglang")


def test_the_ceiling_is_the_speed_of_full_slots_without_any_context():
    host = make_host(BatchingSettings(weights_s=0.006, overhead_s=0.0015, stream_s=15e-6, slots=256))
    assert host.ceiling_tokens_per_s == pytest.approx(256 / (256 * 32e-6 + 0.0015 + 256 * 15e-6))
    host.apply(faults.Cap(max_concurrent=10), 0.0)
    assert host.ceiling_tokens_per_s == pytest.approx(10 / (0.006 + 0.0015 + 10 * 15e-6))
    host.apply(faults.Slow(x=2.0), 0.0)
    assert host.ceiling_tokens_per_s == pytest.approx(5 / (0.006 + 0.0015 + 10 * 15e-6))
    host.apply(faults.Freeze(), 0.0)
    assert host.ceiling_tokens_per_s == 0


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 300)), min_size=1, max_size=12),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.3]),
)
def test_nothing_is_faster_than_the_ceiling(requests, slots, noise):
    host = make_host(BatchingSettings(slots=slots, kv_tokens=500, noise=noise))
    for index, (tokens, prompt) in enumerate(requests):
        begin(host, 0.0, tokens, prompt, str(index))
    within_s = run_dry(host)
    assert host.truth.tokens == sum(tokens for tokens, _ in requests)
    assert host.truth.tokens <= most_tokens_per_s(host.server.engine, slots) * within_s * (1 + 1e-9)


class BatchingHostMachine(RuleBasedStateMachine):
    """Whatever happens, every request that was taken is accounted for once, and its tokens never go back."""

    def __init__(self) -> None:
        super().__init__()
        engine = BatchingSettings(weights_s=0.5, kv_tokens=60, slots=3, max_waiting=2, prefill_tokens=16, noise=0.1)
        self.host, self.now, self.taken, self.seen = make_host(engine), 0.0, [], []

    @rule(tokens=st.integers(1, 9), prompt=st.integers(0, 40), conversation=st.sampled_from(["a", "b", "c"]))
    def ask(self, tokens, prompt, conversation):
        reply = SimulatedReply(("word",) * tokens, "stop", prompt, conversation)
        if isinstance(begun := self.host.begin(reply, lambda: None, self.now), Generation):
            self.taken.append(begun)
            self.seen.append(0)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def hang_up(self, data):
        self.host.cancel(data.draw(st.sampled_from(self.taken)), self.now)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def look(self, data):
        self.host.refresh(data.draw(st.sampled_from(self.taken)), self.now)

    @rule(seconds=st.floats(0, 20))
    def let_time_pass(self, seconds):
        self.now += seconds
        self.host.advance(self.now)

    @precondition(lambda self: self.host.next_event_at() is not None)
    @rule()
    def let_the_next_thing_happen(self):
        self.now = max(self.now, self.host.next_event_at())
        self.host.advance(self.now)

    @rule(
        fault=st.sampled_from(
            [
                *(faults.Kill(), faults.Restart(), faults.Abort(), faults.Heal(), faults.Freeze(2.0), faults.Freeze()),
                *(faults.Slow(2.0, 3.0), faults.Kv(0.3), faults.Kv(0.1, 4.0), faults.Kv(2.0, 1.0)),
                *(faults.Notice(3.0), faults.Join(), faults.Cap(slots=1), faults.Cap(slots=3)),
            ]
        )
    )
    def suffer(self, fault):
        self.host.apply(fault, self.now)

    @invariant()
    def conserved(self):
        truth, in_flight = self.host.truth, self.host.running + self.host.waiting
        assert truth.started == len(self.taken)
        assert truth.started == truth.finished + truth.cancelled + truth.lost + in_flight
        assert in_flight == len(self.host.in_flight)
        assert self.host.alive or not in_flight

    @invariant()
    def tokens_only_come(self):
        for index, generation in enumerate(self.taken):
            assert self.seen[index] <= generation.tokens <= len(generation.reply.tokens)
            assert (generation.first_at is None) == (generation.tokens == 0)
            self.seen[index] = generation.tokens

    @invariant()
    def something_will_happen_while_there_is_work(self):
        frozen_for_good = self.host.frozen_since is not None and self.host.next_change_at() == math.inf
        assert not self.host.in_flight or frozen_for_good or self.host.next_event_at() is not None


TestBatchingHostMachine = BatchingHostMachine.TestCase
