"""The model of an engine with continuous batching: against its formula, a step-by-step twin, and itself."""

from __future__ import annotations

import math
import random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scavenge.signals import ServerLoad
from scavenge.testing.batching import BatchingEngine, BatchingSettings
from scavenge.testing.batching_steps import StepRun
from scavenge.testing.engine import Progress

PLAIN = BatchingSettings(
    weights_s=1.0, gemm_s=0.0, kv_read_s=0.0, attention_s=0.0, overhead_s=0.0, stream_s=0.0,
    kv_tokens=1000, slots=4, prefill_tokens=100,
)  # fmt: skip
"""A step takes a second, whatever is in it."""


def run_dry(engine: BatchingEngine) -> list[Progress]:
    events = []
    while (at := engine.next_event_at()) is not None:
        events += engine.advance(at)
    return events


def ends(events: list[Progress]) -> dict[int, float]:
    return {event.request_id: event.at for event in events if event.finished}


def begins(events: list[Progress]) -> dict[int, float]:
    return {event.request_id: event.at for event in events if event.tokens == 1}


@pytest.mark.parametrize("streams", [1, 3, 40])
def test_a_step_takes_what_the_formula_says(streams):
    settings = BatchingSettings(0.01, 0.001, 1e-5, 1e-7, 0.002, 1e-4, 100_000, 64, 100_000)
    engine = BatchingEngine(settings)
    for request_id in range(streams):
        engine.submit(request_id, 100, 50, 3.0)
    events = run_dry(engine)
    prompt, overhead_s = 100 * streams, 0.002 + 1e-4 * streams
    first_s = max(0.01, 0.001 * prompt) + 1e-5 * prompt + 1e-7 * 100 * 50 * streams + overhead_s
    rest_s = sum(max(0.01, 0.001 * streams) + 1e-5 * (100 + tokens) * streams + overhead_s for tokens in range(1, 50))
    assert begins(events) == {i: pytest.approx(3.0 + first_s) for i in range(streams)}
    assert ends(events) == {i: pytest.approx(3.0 + first_s + rest_s) for i in range(streams)}


def test_prompts_are_read_in_order_within_the_budget_of_a_step_while_others_decode():
    engine = BatchingEngine(PLAIN)
    engine.submit(1, 10, 20, 0.0)
    assert engine.advance(1.0) == [Progress(1, 1, False, 1.0)]
    engine.submit(2, 150, 2, 1.0)  # 99 tokens of a step are left beside the stream that decodes
    engine.submit(3, 40, 2, 1.0)  # 48 of the second step are left
    assert begins(run_dry(engine)) == {2: 3.0, 3: 3.0}


def test_what_comes_in_the_middle_of_a_step_takes_part_from_the_next_one_on():
    engine = BatchingEngine(PLAIN)
    engine.submit(1, 10, 5, 0.0)
    engine.submit(2, 10, 5, 0.5)
    assert (engine.running, engine.waiting) == (1, 1)
    assert begins(run_dry(engine)) == {1: 1.0, 2: 2.0}


def test_what_does_not_fit_the_slots_waits_and_is_served_in_order():
    engine = BatchingEngine(attrs.evolve(PLAIN, slots=2))
    for request_id in range(4):
        engine.submit(request_id, 1, 10, 0.0)
    assert (engine.running, engine.waiting) == (2, 2)
    assert ends(run_dry(engine)) == {0: 10.0, 1: 10.0, 2: 20.0, 3: 20.0}


def test_where_the_pool_overflows_the_youngest_goes_back_to_the_front_and_loses_no_token():
    engine = BatchingEngine(attrs.evolve(PLAIN, kv_tokens=50))
    for request_id in range(3):
        engine.submit(request_id, 10, 20, 0.0)
    engine.advance(5.0)
    assert (engine.running, engine.waiting, engine.preemptions) == (3, 0, 0)
    engine.advance(6.5)  # three contexts of 16 tokens leave no room for three more
    assert (engine.running, engine.waiting, engine.preemptions) == (2, 1, 1)
    assert engine.tokens(2, 6.5) == 6
    engine.submit(4, 10, 20, 6.5)
    assert ends(run_dry(engine)) == {0: 20.0, 1: 25.0, 2: 35.0, 4: 45.0}  # 1 at 15.0 and 2 again at 24.0 went back
    assert engine.generated == 80


def test_a_request_that_is_larger_than_the_pool_runs_alone():
    engine = BatchingEngine(attrs.evolve(PLAIN, kv_tokens=10))
    engine.submit(1, 30, 5, 0.0)
    engine.submit(2, 1, 5, 0.0)
    assert (engine.running, engine.waiting) == (1, 1)
    assert engine.load().kv_usage == 1.0
    assert ends(run_dry(engine)) == {1: 5.0, 2: 10.0}


def test_the_context_of_a_session_is_not_read_again():
    settings = attrs.evolve(PLAIN, prefill_tokens=10)
    engine = BatchingEngine(settings)
    engine.submit(1, 40, 10, 0.0, session="a")
    assert ends(run_dry(engine)) == {1: 13.0}  # four steps to read, the last of them with the first token
    engine.submit(2, 55, 1, 20.0, session="a")
    assert run_dry(engine) == [Progress(2, 1, True, 21.0, cached_tokens=50)]
    engine.submit(3, 30, 1, 30.0, session="b")
    assert run_dry(engine) == [Progress(3, 1, True, 33.0, cached_tokens=0)]
    load = engine.load()
    assert (load.prefix_queries, load.prefix_hits) == (125.0, 50.0)


def test_idle_sessions_give_way_to_what_runs_the_oldest_first_and_from_its_tail():
    engine = BatchingEngine(attrs.evolve(PLAIN, kv_tokens=100))
    for request_id, session in enumerate(["a", "b"]):
        engine.submit(request_id, 39, 1, 10.0 * request_id, session=session)
        run_dry(engine)
    engine.submit(2, 49, 1, 20.0)  # 30 of the 80 tokens kept have to go, all of them of "a"
    run_dry(engine)
    engine.submit(3, 50, 1, 30.0, session="a")
    engine.submit(4, 45, 1, 40.0, session="b")
    assert {event.request_id: event.cached_tokens for event in run_dry(engine)} == {3: 10, 4: 40}


def test_the_whole_prompt_in_the_cache_still_leaves_one_token_to_read():
    engine = BatchingEngine(PLAIN)
    engine.submit(1, 10, 5, 0.0, session="a")
    run_dry(engine)
    engine.submit(2, 15, 1, 10.0, session="a")
    assert [event.cached_tokens for event in run_dry(engine)] == [14]


def test_a_request_that_was_put_back_reads_all_of_its_context_again():
    engine = BatchingEngine(attrs.evolve(PLAIN, kv_tokens=50))
    for request_id in range(3):
        engine.submit(request_id, 10, 20, 0.0, session=str(request_id))
    events = run_dry(engine)
    assert engine.preemptions > 0
    assert engine.load().prefix_hits == 0
    assert [event.request_id for event in events if event.tokens == 1] == [0, 1, 2]  # nobody begins twice


@given(
    first_s=st.floats(1e-4, 10),
    more_s=st.sampled_from([0.0, 1e-7, 1e-3, 0.5]),
    steps=st.integers(1, 400),
    data=st.data(),
)
def test_a_run_of_steps_knows_how_many_are_over_and_can_be_cut(first_s, more_s, steps, data):
    run = StepRun(7.0, steps, first_s, more_s)
    times = [7.0]
    for step in range(steps):
        times.append(times[-1] + first_s + step * more_s)
    done = data.draw(st.integers(0, steps - 1))
    assert run.ends_at == pytest.approx(times[-1])
    for part in (0.001, 0.5, 0.999):
        assert run.done(times[done] + part * (times[done + 1] - times[done])) == done
    rest = run.cut(done)
    assert (rest.began_at, rest.ends_at) == (pytest.approx(times[done]), pytest.approx(times[done + 1]))


def test_the_front_door_turns_away_what_is_too_much_and_nothing_changes():
    engine = BatchingEngine(attrs.evolve(PLAIN, slots=1, max_waiting=1))
    assert [engine.submit(i, 1, 5, 0.0) for i in range(3)] == [True, True, False]
    assert ends(run_dry(engine)) == {0: 5.0, 1: 10.0}
    engine = BatchingEngine(attrs.evolve(PLAIN, max_in_flight=2))
    assert [engine.submit(i, 1, 5, 0.0) for i in range(3)] == [True, True, False]


def test_half_the_speed_takes_twice_as_long_and_a_frozen_engine_stands_still():
    engine = BatchingEngine(PLAIN)
    engine.submit(1, 1, 10, 0.0)
    engine.set_speed(0.5, 4.0)
    engine.set_speed(0.0, 8.0)
    assert engine.advance(8.0) == [Progress(1, 1, False, 1.0)]
    assert engine.next_event_at() is None
    assert engine.advance(100.0) == []
    assert engine.tokens(1, 100.0) == 6
    engine.set_speed(1.0, 100.0)
    assert ends(run_dry(engine)) == {1: 104.0}


def test_fewer_slots_let_those_that_run_go_on():
    engine = BatchingEngine(attrs.evolve(PLAIN, slots=2))
    for request_id in range(4):
        engine.submit(request_id, 1, 10, 0.0)
    engine.set_slots(1, 2.0)
    assert ends(run_dry(engine)) == {0: 10.0, 1: 10.0, 2: 20.0, 3: 30.0}


def test_a_smaller_pool_puts_back_what_does_not_fit_at_once():
    engine = BatchingEngine(attrs.evolve(PLAIN, kv_tokens=100))
    for request_id in range(3):
        engine.submit(request_id, 19, 10, 0.0)
    engine.advance(1.5)
    engine.set_kv(0.5, 1.5)
    assert (engine.running, engine.waiting, engine.load().kv_tokens) == (2, 1, 50)
    assert ends(run_dry(engine)) == {0: 10.0, 1: 14.0, 2: 21.0}  # two at once are too much from 6.0 on


def test_a_killed_engine_has_forgotten_everything():
    engine = BatchingEngine(attrs.evolve(PLAIN, kv_tokens=50))
    for request_id in range(3):
        engine.submit(request_id, 10, 20, 0.0, session=str(request_id))
    engine.advance(10.0)
    assert engine.preemptions
    engine.kill(10.0)
    assert engine.load() == ServerLoad(0, 0, 0.0, 50, 4, 0, 0.0, 0.0)
    assert engine.next_event_at() is None
    engine.submit(0, 10, 2, 11.0, session="0")
    assert run_dry(engine)[-1] == Progress(0, 2, True, 13.0, cached_tokens=0)


def test_noise_moves_the_time_of_steps_and_the_seed_decides_it():
    settings = attrs.evolve(PLAIN, noise=0.2)

    def end(seed):
        engine = BatchingEngine(settings, random.Random(seed))
        engine.submit(1, 1, 10, 0.0)
        return ends(run_dry(engine))[1]

    assert end(1) == end(1) != end(2)
    assert 8.0 <= end(3) <= 12.0


@pytest.mark.parametrize(
    "misuse",
    [
        lambda engine: engine.submit(1, 1, 1, 0.0),
        lambda engine: engine.submit(2, 1, 0, 0.0),
        lambda engine: engine.submit(2, -1, 1, 0.0),
        lambda engine: engine.set_speed(-1.0, 0.0),
        lambda engine: engine.set_speed(math.inf, 0.0),
        lambda engine: engine.set_slots(0, 0.0),
        lambda engine: engine.set_kv(0.0, 0.0),
        lambda engine: engine.advance(-1.0),
    ],
)
def test_what_makes_no_sense_is_refused(misuse):
    engine = BatchingEngine(PLAIN)
    engine.submit(1, 1, 1, 0.0)
    with pytest.raises(ValueError, match=r".+"):
        misuse(engine)


def test_settings_that_no_server_has_are_refused():
    for wrong in ({"weights_s": 0.0}, {"gemm_s": -1.0}, {"overhead_s": math.inf}, {"slots": 0}, {"noise": 1.0}):
        with pytest.raises(ValueError, match=r".+"):
            BatchingSettings(**wrong)


def test_looking_on_changes_nothing():
    def play(look: bool) -> list[Progress]:
        engine = BatchingEngine(BatchingSettings(kv_tokens=3000, slots=8))
        chance, events = random.Random(5), []
        for request_id in range(60):
            now = 0.05 * request_id
            engine.submit(request_id, chance.randint(1, 400), chance.randint(1, 300), now)
            if look:
                for part in (0.011, 0.017, 0.03):
                    engine.tokens(request_id, now + part)
                    engine.load()
                    events += engine.advance(now + part)
        return events + run_dry(engine)

    watched, alone = play(look=True), play(look=False)
    assert [attrs.evolve(event, at=0.0) for event in watched] == [attrs.evolve(event, at=0.0) for event in alone]
    assert [event.at for event in watched] == pytest.approx([event.at for event in alone])


class Twin:
    """The same server, written down one step at a time, for whole seconds and steps of a second."""

    def __init__(self, pool: int, slots: int, budget: int) -> None:
        self.pool, self.slots, self.budget = pool, slots, budget
        self.waiting: list[list[int]] = []  # id, prompt, output, generated, unread
        self.running: list[list[int]] = []
        self.ended: dict[int, int] = {}
        self.preemptions = 0

    def used(self) -> int:
        return sum(prompt + got + (1 if unread else 0) for _, prompt, _, got, unread in self.running)

    def decoding(self) -> list[list[int]]:
        return [one for one in self.running if not one[4]]

    def settle(self) -> None:
        while len(self.running) > 1 and self.used() + len(self.decoding()) > self.pool:
            one = self.running.pop()
            one[4] = 0
            self.waiting.insert(0, one)
            self.preemptions += 1
        while self.waiting and len(self.running) < self.slots:
            one = self.waiting[0]
            need = one[1] + one[3] + 1
            if self.running and self.used() + len(self.decoding()) + need > self.pool:
                break
            one[4] = one[1] + one[3]
            self.running.append(self.waiting.pop(0))

    def step(self, ends_at: int) -> None:
        left, decoding = max(1, self.budget - len(self.decoding())), self.decoding()
        for one in self.running:
            if one[4]:
                read = min(left, one[4])
                left -= read
                one[4] -= read
                if not one[4]:
                    one[3] += 1
        for one in decoding:
            one[3] += 1
        for one in [one for one in self.running if not one[4] and one[3] >= one[2]]:
            self.running.remove(one)
            self.ended[one[0]] = ends_at
        self.settle()


class EngineMachine(RuleBasedStateMachine):
    """Whatever is done to it, the engine agrees with its twin, and keeps its promises."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = attrs.evolve(PLAIN, kv_tokens=120, slots=4, prefill_tokens=25)
        self.engine = BatchingEngine(self.settings)
        self.twin = Twin(120, 4, 25)
        self.now = 0
        self.next_id = 0
        self.taken: dict[int, int] = {}
        self.ended: dict[int, float] = {}

    @rule(prompt=st.integers(1, 60), output=st.integers(1, 90))
    def submit(self, prompt: int, output: int) -> None:
        self.next_id += 1
        assert self.engine.submit(self.next_id, prompt, output, float(self.now))
        self.twin.waiting.append([self.next_id, prompt, output, 0, 0])
        self.twin.settle()
        self.taken[self.next_id] = output

    @precondition(lambda self: self.taken)
    @rule(which=st.integers(0, 1000))
    def cancel(self, which: int) -> None:
        request_id = sorted(self.taken)[which % len(self.taken)]
        there = request_id not in self.ended
        assert self.engine.cancel(request_id, float(self.now)) == there
        for place in (self.twin.waiting, self.twin.running):
            place[:] = [one for one in place if one[0] != request_id]
        self.twin.settle()
        if there:
            del self.taken[request_id]

    @rule(slots=st.integers(1, 6))
    def set_slots(self, slots: int) -> None:
        self.engine.set_slots(slots, float(self.now))
        self.twin.slots = slots
        self.twin.settle()

    @rule()
    def kill(self) -> None:
        self.engine.kill(float(self.now))
        self.twin = Twin(self.twin.pool, self.twin.slots, self.twin.budget)
        self.taken = {request_id: self.taken[request_id] for request_id in self.ended}

    @rule(seconds=st.integers(1, 12), at_once=st.booleans())
    def pass_time(self, seconds: int, at_once: bool) -> None:
        for second in range(self.now + 1, self.now + seconds + 1):
            self.twin.step(second)
            if not at_once or second == self.now + seconds:
                for event in self.engine.advance(float(second)):
                    if event.finished:
                        assert event.request_id not in self.ended
                        assert event.tokens == self.taken[event.request_id]
                        self.ended[event.request_id] = event.at
        self.now += seconds
        for request_id, at in self.twin.ended.items():
            assert self.ended[request_id] == at

    @invariant()
    def they_agree(self) -> None:
        for one in (*self.twin.running, *self.twin.waiting):
            assert self.engine.tokens(one[0], float(self.now)) == one[3]
        assert self.engine.preemptions == self.twin.preemptions

    @invariant()
    def everybody_is_in_one_place(self) -> None:
        alive = set(self.taken) - set(self.ended)
        assert self.engine.running + self.engine.waiting == len(alive)
        assert {one[0] for one in (*self.twin.running, *self.twin.waiting)} == alive

    @invariant()
    def the_pool_is_not_exceeded_but_by_one_alone(self) -> None:
        load = self.engine.load()
        held = self.twin.used()
        assert load.kv_usage == min(1.0, held / 120)
        assert held <= 120 or load.running == 1


TestEngineMachine = EngineMachine.TestCase
