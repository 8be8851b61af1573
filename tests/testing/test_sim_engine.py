"""The model of a batching server against its formula, a naive simulation, and itself."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scavenge.signals import ServerLoad
from scavenge.testing.engine import Engine, EngineSettings, Progress


def run_dry(engine: Engine) -> list[Progress]:
    events = []
    while (at := engine.next_event_at()) is not None:
        events += engine.advance(at)
    return events


@pytest.mark.parametrize("streams", [1, 2, 8, 32])
def test_the_aggregate_speed_is_n_over_a_plus_b_n(streams):
    engine = Engine(EngineSettings(token_s=0.02, load_s=0.003, slots=64))
    for request_id in range(streams):
        engine.submit(request_id, 10, 500, now=5.0)
    events = run_dry(engine)
    assert len([event for event in events if event.finished]) == streams
    assert streams * 500 / (events[-1].at - 5.0) == pytest.approx(streams / (0.02 + 0.003 * streams))


def test_what_does_not_fit_the_slots_waits_and_is_served_in_order():
    engine = Engine(EngineSettings(token_s=1.0, load_s=0.0, slots=2))
    for request_id in range(5):
        engine.submit(request_id, 0, 10, now=0.0)
    assert (engine.running, engine.waiting) == (2, 3)
    finished = [(event.request_id, event.at) for event in run_dry(engine) if event.finished]
    assert finished == [(0, 10.0), (1, 10.0), (2, 20.0), (3, 20.0), (4, 30.0)]


def test_a_full_queue_turns_the_next_one_away_and_nothing_changes():
    engine = Engine(EngineSettings(slots=1, max_waiting=1))
    assert engine.submit(1, 0, 5, now=0.0)
    assert engine.submit(2, 0, 5, now=0.0)
    assert not engine.submit(3, 0, 5, now=0.0)
    assert (engine.running, engine.waiting) == (1, 1)
    assert [event.request_id for event in run_dry(engine) if event.finished] == [1, 2]


def test_without_a_queue_the_slots_are_still_usable():
    engine = Engine(EngineSettings(slots=1, max_waiting=0))
    assert engine.submit(1, 0, 5, now=0.0)
    assert not engine.submit(2, 0, 5, now=0.0)


def test_the_speed_changes_when_a_stream_joins():
    engine = Engine(EngineSettings(token_s=1.0, load_s=1.0, slots=8))
    engine.submit(1, 0, 10, now=0.0)  # alone: 2 s a token
    engine.submit(2, 0, 10, now=10.0)  # 5 of the first are there; now 3 s a token
    ends = {event.request_id: event.at for event in run_dry(engine) if event.finished}
    assert ends == {1: pytest.approx(10 + 5 * 3), 2: pytest.approx(10 + 5 * 3 + 5 * 2)}


def test_a_prompt_token_costs_what_it_says_on_an_idle_server():
    engine = Engine(EngineSettings(token_s=0.2, load_s=0.3, prefill_s=0.01))
    engine.submit(1, 200, 3, now=0.0)
    assert [event.at for event in run_dry(engine)] == [pytest.approx(2.0 + 0.5), pytest.approx(2.0 + 1.5)]


def test_events_come_for_the_first_token_each_so_many_and_the_last():
    engine = Engine(EngineSettings(tokens_per_event=4))
    engine.submit(1, 0, 11, now=0.0)
    assert [(event.tokens, event.finished) for event in run_dry(engine)] == [
        (1, False), (5, False), (9, False), (11, True)
    ]  # fmt: skip


def test_with_more_slots_who_waits_starts_at_once_and_with_fewer_nobody_starts_until_it_is_so_again():
    engine = Engine(EngineSettings(token_s=1.0, load_s=0.0, slots=1))
    for request_id, tokens in enumerate((3, 3, 4, 1)):
        engine.submit(request_id, 0, tokens, 0.0)
    engine.set_slots(3, 1.0)
    assert (engine.running, engine.waiting) == (3, 1)
    engine.set_slots(1, 2.0)
    assert (engine.running, engine.waiting) == (3, 1)
    ends = {event.request_id: event.at for event in run_dry(engine) if event.finished}
    assert ends == {0: 3.0, 1: 4.0, 2: 5.0, 3: 6.0}


def test_an_engine_cannot_be_left_without_slots():
    engine = Engine(EngineSettings(slots=2))
    with pytest.raises(ValueError, match="slots: expected at least 1, got 0"):
        engine.set_slots(0, 0.0)
    assert engine.slots == 2


def test_a_frozen_engine_has_no_next_event_and_goes_on_where_it_stopped():
    engine = Engine(EngineSettings(token_s=1.0, load_s=0.0))
    engine.submit(1, 0, 10, now=0.0)
    engine.set_speed(0.0, now=4.5)
    assert engine.advance(4.5) == [Progress(1, 1, finished=False, at=1.0)]
    assert engine.next_event_at() is None
    assert engine.step_s == math.inf
    assert engine.advance(1000.0) == []
    engine.set_speed(0.5, now=1000.0)
    assert engine.next_event_at() == pytest.approx(1000 + 5.5 * 2)


def test_news_that_a_call_left_behind_are_due_at_once():
    engine = Engine(EngineSettings(token_s=1.0, load_s=0.0))
    engine.submit(1, 0, 1, now=0.0)
    engine.submit(2, 0, 9, now=3.0)
    assert engine.next_event_at() == 3.0
    assert engine.advance(3.0) == [Progress(1, 1, finished=True, at=1.0)]


def test_cancelling_frees_the_slot_at_once():
    engine = Engine(EngineSettings(slots=1))
    engine.submit(1, 0, 100, now=0.0)
    engine.submit(2, 0, 100, now=0.0)
    engine.submit(3, 0, 100, now=0.0)
    assert engine.cancel(3, now=0.1)
    assert engine.cancel(1, now=0.1)
    assert (engine.running, engine.waiting) == (1, 0)
    assert not engine.cancel(1, now=0.1)
    assert [event.request_id for event in engine.advance(0.1)] == [1]  # its first token, before it was cancelled
    assert {event.request_id for event in run_dry(engine)} == {2}


def test_entries_of_cancelled_streams_do_not_pile_up():
    engine = Engine(EngineSettings(slots=4))
    engine.submit(-1, 0, 10**9, now=0.0)
    for request_id in range(5000):
        engine.submit(request_id, 0, 10**6, now=0.0)
        engine.cancel(request_id, now=0.0)
    assert len(engine._heap) < 200


def test_the_same_seed_gives_the_same_noise_and_another_seed_another():
    def end(seed: int) -> float:
        engine = Engine(EngineSettings(noise=0.3), random.Random(seed))
        engine.submit(1, 0, 100, now=0.0)
        engine.submit(2, 0, 50, now=0.1)
        return run_dry(engine)[-1].at

    assert end(1) == end(1) != end(2)


def test_noise_stays_within_its_bounds():
    for seed in range(50):
        engine = Engine(EngineSettings(token_s=0.1, load_s=0.0, noise=0.2), random.Random(seed))
        engine.submit(1, 0, 100, now=0.0)
        assert 8.0 <= run_dry(engine)[-1].at <= 12.0


@pytest.mark.parametrize(
    "use",
    [
        lambda engine: engine.submit(1, 0, 5, now=1.0),
        lambda engine: engine.submit(2, 0, 0, now=1.0),
        lambda engine: engine.submit(2, -1, 5, now=1.0),
        lambda engine: engine.set_speed(-1.0, now=1.0),
        lambda engine: engine.set_speed(math.inf, now=1.0),
        lambda engine: engine.advance(0.5),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(use):
    engine = Engine(EngineSettings(token_s=1.0, load_s=0.0))
    engine.submit(1, 0, 5, now=1.0)
    with pytest.raises(ValueError):
        use(engine)
    assert [event.at for event in run_dry(engine)] == [2.0, 6.0]


@attrs.define
class NaiveStream:
    request_id: int
    left: float


class EngineMachine(RuleBasedStateMachine):
    """The engine beside a simulation that moves every stream by hand, from one end to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(EngineSettings(token_s=0.5, load_s=0.25, slots=3, max_waiting=4, tokens_per_event=2))
        self.now, self.speed, self.next_id = 0.0, 1.0, 0
        self.streams: list[NaiveStream] = []  # the first so many run
        self.slots, self.running = 3, 0
        self.asked: dict[int, int] = {}
        self.heard: dict[int, int] = {}
        self.ends: dict[int, float] = {}
        self.expected_ends: dict[int, float] = {}

    @rule(tokens=st.integers(1, 12))
    def submit(self, tokens):
        self.next_id += 1
        taken = self.engine.submit(self.next_id, 7, tokens, self.now)
        assert taken == (self.running < self.slots or len(self.streams) < self.running + 4)
        if taken:
            self.streams.append(NaiveStream(self.next_id, tokens))
            self.asked[self.next_id] = tokens
            self.fill()

    def fill(self):
        self.running = max(self.running, min(len(self.streams), self.slots))

    def remove(self, stream):
        self.running -= stream in self.streams[: self.running]
        self.streams.remove(stream)
        self.fill()

    @precondition(lambda self: self.streams)
    @rule(data=st.data())
    def cancel(self, data):
        stream = data.draw(st.sampled_from(self.streams))
        assert self.engine.cancel(stream.request_id, self.now)
        self.remove(stream)

    @rule(slots=st.integers(1, 5))
    def change_slots(self, slots):
        self.engine.set_slots(slots, self.now)
        self.slots = slots
        self.fill()

    @rule(speed=st.sampled_from([0.0, 0.5, 1.0]))
    def change_speed(self, speed):
        self.engine.set_speed(speed, self.now)
        self.speed = speed

    @rule(seconds=st.floats(0.001, 9))
    def let_time_pass(self, seconds):
        end = self.now + seconds
        while self.speed and self.streams:
            running = self.streams[: self.running]
            step_s = (0.5 + 0.25 * len(running)) / self.speed
            soonest = min(stream.left for stream in running)
            if self.now + soonest * step_s > end:
                for stream in running:
                    stream.left -= (end - self.now) / step_s
                break
            self.now += soonest * step_s
            for stream in running:
                stream.left -= soonest
                if stream.left < 1e-9:
                    self.remove(stream)
                    self.expected_ends[stream.request_id] = self.now
        self.now = end
        self.hear(self.engine.advance(end))

    def hear(self, events):
        for event in events:
            before = self.heard.get(event.request_id, 0)
            assert before < event.tokens <= self.asked[event.request_id]
            assert event.request_id not in self.ends
            assert event.finished == (event.tokens == self.asked[event.request_id])
            self.heard[event.request_id] = event.tokens
            if event.finished:
                self.ends[event.request_id] = event.at
        assert all(a.at <= b.at for a, b in pairwise(events))

    @invariant()
    def agrees(self):
        if any(stream.left < 1e-6 for stream in self.streams):
            return  # an end on the very edge of the interval: either side may be right
        assert (self.engine.running, self.engine.waiting) == (self.running, len(self.streams) - self.running)
        assert self.ends == pytest.approx(self.expected_ends)

    @invariant()
    def is_due_in_time(self):
        due = self.engine.next_event_at()
        assert (due is None) == (not self.speed or not self.streams) or due == self.now
        assert due is None or due >= self.now


TestEngineMachine = EngineMachine.TestCase


def test_tokens_tells_how_far_a_stream_has_come_between_its_events():
    engine = Engine(EngineSettings(token_s=1.0, load_s=0.0, slots=2, prefill_s=0.5))
    for request_id, prompt_tokens in ((1, 0), (2, 4), (3, 0)):
        engine.submit(request_id, prompt_tokens, 5, now=0.0)
    told = [[engine.tokens(request_id, now) for request_id in (1, 2, 3, 9)] for now in (0.0, 1.5, 3.25, 6.0)]
    assert told == [[0, 0, 0, 0], [1.5, 0, 0, 0], [3.25, 1.25, 0, 0], [0, 4.0, 1.0, 0]]
    assert [event.request_id for event in engine.advance(6.0) if event.finished] == [1], "asking loses no event"


def test_a_killed_engine_has_forgotten_everything():
    engine = Engine(EngineSettings(token_s=1.0, load_s=0.0, slots=2))
    for request_id in range(3):
        engine.submit(request_id, 0, 5, now=0.0)
    engine.kill(2.5)
    assert (engine.running, engine.waiting, engine.next_event_at()) == (0, 0, None)
    assert engine.submit(0, 0, 1, now=3.0)
    assert run_dry(engine) == [Progress(0, 1, finished=True, at=4.0)]


def test_an_engine_tells_its_load():
    engine = Engine(EngineSettings(slots=2))
    for request_id in range(5):
        engine.submit(request_id, 0, 5, now=0.0)
    assert engine.load() == ServerLoad(running=2, waiting=3, slots=2)
