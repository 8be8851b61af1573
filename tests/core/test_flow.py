"""What flows on an endpoint: each instant and each token is told once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.flow import STALLED_AFTER_S, FlowMeter, Stream

STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "whole", "chunk", "end", "take"]), st.floats(0, 10), st.integers(0, 5)),
    max_size=60,
)


def test_requests_in_flight_are_a_mean_over_the_time_since_the_last_telling():
    meter = FlowMeter(0.0)
    first = meter.begin(0.0)
    meter.begin(5.0)
    meter.end(first, 8.0)
    flow = meter.take(10.0)
    assert (flow.span_s, flow.in_flight, flow.in_flight_now) == (10.0, pytest.approx((8 + 5) / 10), 1)
    assert meter.take(12.0).in_flight == pytest.approx(1.0)


def test_a_request_waits_for_its_first_token_until_that_comes():
    meter = FlowMeter(0.0)
    stream = meter.begin(0.0, prompt_tokens=100.0)
    assert meter.take(1.0).awaiting == 1.0
    stream.came(1.5)
    flow = meter.take(2.0)
    assert (flow.awaiting, flow.output_tokens, flow.prompt_tokens) == (0.5, 1.0, 100.0)
    assert meter.take(3.0).prompt_tokens == 0.0


def test_a_first_token_before_the_last_telling_waits_no_more():
    meter = FlowMeter(0.0)
    stream = meter.begin(0.0)
    stream.came(0.5)
    assert meter.take(1.0).awaiting == 0.5
    assert meter.take(2.0).awaiting == 0.0


def test_a_reply_in_one_piece_neither_waits_nor_counts_as_streamed():
    meter = FlowMeter(0.0)
    meter.begin(0.0, streamed=False)
    meter.begin(0.0)
    flow = meter.take(2.0)
    assert (flow.awaiting, flow.streamed, flow.in_flight) == (1.0, 0.5, 2.0)


def test_a_stream_that_falls_silent_is_stalled_from_its_last_token():
    meter = FlowMeter(0.0)
    stream = meter.begin(0.0)
    for tenth in range(11):
        stream.came(tenth / 10)
    assert meter.take(2.0).stalled == 0.0
    assert meter.take(2.0 + STALLED_AFTER_S).stalled == 1.0
    stream.came(5.0)
    assert meter.take(6.0).stalled == 0.0


def test_a_slow_stream_may_be_silent_for_longer():
    stream = Stream(0.0, 1)
    for second in range(5):
        stream.came(float(second))
    assert not stream.is_stalled(4.0 + 19.0)
    assert stream.is_stalled(4.0 + 21.0)


def test_a_stream_whose_reader_waits_for_somebody_else_is_not_stalled():
    meter = FlowMeter(0.0)
    stream = meter.begin(0.0)
    stream.came(0.0)
    stream.hold_back()
    assert meter.take(100.0).stalled == 0.0
    stream.read_on(100.0)
    assert not stream.is_stalled(100.0 + STALLED_AFTER_S)
    assert meter.take(110.0).stalled == 1.0


def test_that_it_is_read_on_is_no_token():
    stream = Stream(0.0, 1)
    stream.hold_back()
    stream.read_on(5.0)
    assert (stream.first_at, stream.last_at, stream.chunks) == (None, -math.inf, 0)


def test_a_stream_that_has_not_begun_is_not_stalled():
    assert not Stream(0.0, 1).is_stalled(1e6)


def test_chunks_of_several_tokens_are_learnt_from_replies_whose_tokens_were_counted():
    meter = FlowMeter(0.0)
    for number in range(60):
        stream = meter.begin(float(number))
        stream.came(number + 0.5, 10)
        meter.end(stream, number + 1.0, 40.0)
    meter.take(60.0)
    stream = meter.begin(60.0)
    stream.came(60.5, 10)
    assert meter.take(61.0).output_tokens == pytest.approx(40.0, rel=0.01)


def test_a_count_that_cannot_be_right_moves_the_tokens_of_a_chunk_little():
    meter = FlowMeter(0.0)
    stream = meter.begin(0.0)
    stream.came(0.5, 2)
    meter.end(stream, 1.0, 1e12)
    assert meter.tokens_a_chunk < 10


def test_a_telling_without_time_tells_what_is_there_now():
    meter = FlowMeter(5.0)
    meter.begin(5.0)
    flow = meter.take(5.0)
    assert (flow.span_s, flow.in_flight, flow.in_flight_now, flow.streamed) == (0.0, 0.0, 1, 1.0)


def test_a_reader_that_does_not_look_at_each_chunk_is_asked_when_it_matters():
    meter = FlowMeter(0.0)
    stream = meter.begin(0.0)
    stream.refresh = lambda now: stream.came(now, 3)
    assert meter.take(1.0).output_tokens == 3.0
    meter.end(stream, 2.0)
    assert meter.take(3.0).output_tokens == 3.0


@given(STEPS)
def test_each_instant_and_each_chunk_is_told_once(steps: list[tuple[str, float, int]]):
    now, meter = 0.0, FlowMeter(0.0)
    alive: list[Stream] = []
    spent_s = chunks = told_s = told_chunks = told_awaiting = 0.0
    for action, wait_s, number in steps:
        now += wait_s
        spent_s += wait_s * len(alive)
        if action in ("begin", "whole"):
            alive.append(meter.begin(now, streamed=action == "begin"))
            assert alive[-1].in_flight == len(alive) == meter.in_flight
        elif action == "chunk" and alive:
            alive[number % len(alive)].came(now, number)
            chunks += number
        elif action == "end" and alive:
            meter.end(alive.pop(number % len(alive)), now)
        elif action == "take":
            flow = meter.take(now)
            assert 0 <= flow.awaiting <= flow.in_flight + 1e-9
            assert 0 <= flow.stalled <= flow.in_flight + 1e-9
            assert 0 <= flow.streamed <= 1 + 1e-9
            told_s += flow.in_flight * flow.span_s
            told_chunks += flow.output_tokens
            told_awaiting += flow.awaiting * flow.span_s
    flow = meter.take(now)
    assert math.isclose(told_s + flow.in_flight * flow.span_s, spent_s, abs_tol=1e-6)
    assert told_chunks + flow.output_tokens == chunks
    assert told_awaiting <= spent_s + 1e-6
