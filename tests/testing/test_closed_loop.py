"""A closed loop does to a policy what a real endpoint would, and counts what comes of it."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.signals import Ended, Ending, Flow, ServerLoad
from scavenge.testing.agents import Spread
from scavenge.testing.batching import BatchingSettings
from scavenge.testing.closed_loop import BUSY_PAUSE_S, PROBE_EVERY_S, ClosedLoop
from scavenge.testing.closed_loop_case import Change, LoopCase, RequestKind, Tells, Workload
from scavenge.testing.closed_loop_report import LimitMove, LoopReport, LoopRow
from scavenge.types import CapChanged

STEADY = BatchingSettings(
    weights_s=0.1, gemm_s=0.0, kv_read_s=0.0, attention_s=0.0, overhead_s=0.0, stream_s=0.0, slots=8
)
"""Ten tokens a second for everybody."""
SAME = Workload((RequestKind(Spread(100), Spread(20)),))


class Listener:
    """A policy of a fixed limit that notes what it hears, and wants to know of the flow every second."""

    wants_load = True

    def __init__(self, limit: int) -> None:
        self.set_limit = limit
        self.heard: list[tuple[float, object]] = []
        self.told_at = 0.0

    def observe(self, event: object, now: float) -> None:
        self.heard.append((now, event))
        if isinstance(event, Flow):
            self.told_at = now

    def limit(self, now: float) -> int:
        return self.set_limit

    def next_wake_at(self, now: float) -> float:
        return self.told_at + 1.0

    def of(self, kind: type) -> list:
        return [event for _, event in self.heard if isinstance(event, kind)]

    def endings(self) -> list[tuple[float, Ending]]:
        return [(at, event.ending) for at, event in self.heard if isinstance(event, Ended)]


def loop(policy, seed: int = 1, **changes) -> LoopReport:
    case = attrs.evolve(LoopCase(STEADY, SAME, 60.0, delay_s=0.0), **changes)
    return ClosedLoop(case, policy, random.Random(seed)).run()


def test_the_limit_is_in_flight_all_the_time_and_every_token_is_told_of():
    policy = Listener(4)
    report = loop(policy)
    flows = policy.of(Flow)
    assert [row.in_flight for row in report.rows] == pytest.approx([4.0] * 12)
    assert report.goodput(0, 60) == pytest.approx(40.0, rel=0.05)
    assert {round(flow.in_flight, 6) for flow in flows} == {4.0}
    assert max(flow.output_tokens for flow in flows) <= 48  # each told of when it came
    assert sum(flow.span_s for flow in flows) == pytest.approx(report.flows)
    assert sum(flow.output_tokens for flow in flows) == pytest.approx(40 * report.flows, abs=40)
    assert report.finished == len(policy.of(Ended)) == pytest.approx(120, abs=4)
    ended = policy.of(Ended)[0]
    assert (ended.prompt_tokens, ended.output_tokens, ended.first_token_s) == (100, 20, pytest.approx(0.1))


def test_a_policy_hears_of_its_cap_first_and_is_held_to_it():
    policy = Listener(50)
    report = loop(policy, max_concurrent=3)
    assert policy.heard[0] == (0.0, CapChanged(3))
    assert max(row.in_flight for row in report.rows) == pytest.approx(3.0)


def test_replies_in_one_piece_give_no_tokens_while_they_are_made():
    policy = Listener(4)
    loop(policy, streamed=False)
    assert {flow.output_tokens for flow in policy.of(Flow)} == {0.0}
    assert {flow.streamed for flow in policy.of(Flow)} == {0.0}
    assert {ended.first_token_s for ended in policy.of(Ended)} == {None}
    assert {ended.output_tokens for ended in policy.of(Ended)} == {20}


def test_a_refusal_is_a_pause_and_the_request_is_the_next_one_to_be_sent():
    policy = Listener(8)
    report = loop(policy, server=attrs.evolve(STEADY, max_in_flight=5))
    refused = [at for at, ending in policy.endings() if ending is Ending.RATE_LIMITED]
    assert refused[:3] == [0.0, 0.0, 0.0]
    assert refused[3] == pytest.approx(BUSY_PAUSE_S)
    assert report.refused == len(refused)
    assert report.requests == report.finished + report.refused + 5


def test_a_lost_server_loses_what_is_in_flight_and_opens_step_by_step_when_its_probe_succeeds():
    policy = Listener(8)
    report = loop(policy, changes=(Change(20.05, down_s=12.0),), sample_s=1.0)
    down = [at for at, ending in policy.endings() if ending is Ending.DOWN]
    assert down == [20.05] * 8
    assert report.lost == 8
    next_end = min(at for at, ending in policy.endings() if at > 20.05)
    assert next_end == pytest.approx(20.05 + 3 * PROBE_EVERY_S + 2.0)
    in_flight = {row.at: row.in_flight for row in report.rows}
    assert (in_flight[30.0], in_flight[37.0]) == (0.0, pytest.approx(4.0))
    assert in_flight[50.0] == pytest.approx(8.0)
    assert not any(20.05 < at < 35.0 for at, event in policy.heard if isinstance(event, Flow))


def served_in_turn(**changes) -> list[tuple[int, int]]:
    """The sizes of what a server with one slot completes, in order."""
    sizes = Workload((RequestKind(Spread(100, 1.0), Spread(20, 1.0)),))
    policy = Listener(4)
    loop(policy, workload=sizes, server=attrs.evolve(STEADY, slots=1), **changes)
    return [(one.prompt_tokens, one.output_tokens) for one in policy.of(Ended) if one.ending is Ending.OK]


def test_what_was_lost_is_asked_for_again_in_its_old_order():
    disturbed = served_in_turn(changes=(Change(0.05, down_s=1.0),))
    assert len(disturbed) > 10
    assert disturbed == served_in_turn()[: len(disturbed)]


def test_what_failed_is_asked_for_again_before_anything_new():
    disturbed = served_in_turn(error_rate=0.4)
    assert set(served_in_turn()[: len(disturbed) - 4]) <= set(disturbed)


def test_what_was_on_its_way_to_a_server_that_died_never_arrives():
    report = loop(Listener(3), delay_s=0.5, changes=(Change(0.25, down_s=1.0),))
    assert (report.lost, report.requests - report.finished) == (3, 6)


def test_a_request_that_times_out_is_given_up():
    policy = Listener(1)
    report = loop(policy, request_timeout_s=1.5)
    assert (report.timeouts, report.finished) == (39, 0)  # the last would at the very end
    assert policy.endings()[0] == (1.5, Ending.TIMEOUT)


def test_a_case_that_cannot_be_is_refused():
    for wrong in ({"request_timeout_s": 0.0}, {"error_rate": 1.0}, {"seconds": 0.0}, {"delay_s": -1.0}):
        with pytest.raises(ValueError, match=r".+"):
            attrs.evolve(LoopCase(STEADY, SAME, 60.0), **wrong)
    assert loop(Listener(1), request_timeout_s=None).timeouts == 0


def test_some_requests_fail_as_the_seed_says_and_are_asked_for_again():
    def errors(seed):
        return loop(Listener(4), seed, error_rate=0.3)

    assert errors(1) == errors(1)
    assert errors(1).errors != errors(3).errors
    assert 0.1 < errors(1).errors / errors(1).requests < 0.5


def test_a_request_is_on_its_way_before_it_arrives():
    policy = Listener(1)
    loop(policy, delay_s=0.5)
    assert policy.of(Ended)[0].first_token_s == pytest.approx(0.6)


def test_a_new_server_opens_slowly_if_the_case_says_so():
    report = loop(Listener(8), opens_slowly=True, sample_s=1.0)
    assert report.rows[0].in_flight == pytest.approx(4.0)
    assert report.rows[10].in_flight == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("tells", "slots", "kv_tokens"), [(Tells.VLLM, None, 400_000), (Tells.LLAMA_CPP, 8, None), (Tells.NOTHING, 0, 0)]
)
def test_a_policy_that_wants_them_hears_the_figures_that_its_server_tells(tells, slots, kv_tokens):
    policy = Listener(12)
    loop(policy, tells=tells)
    loads = policy.of(ServerLoad)
    assert len(loads) == (0 if tells is Tells.NOTHING else 11)
    assert {(load.slots, load.kv_tokens) for load in loads} <= {(slots, kv_tokens)}
    assert {(load.running, load.waiting) for load in loads} <= {(8, 4), (4, 0)}  # between a reply and the next request


def test_the_server_and_the_requests_change_when_the_case_says_so():
    changes = (
        Change(20, speed=0.5), Change(40, speed=1.0, slots=2, workload=Workload((RequestKind(Spread(9), Spread(5)),))),
    )  # fmt: skip
    policy = Listener(8)
    report = loop(policy, changes=changes)
    assert report.goodput(5, 20) == pytest.approx(80, rel=0.1)
    assert report.goodput(25, 40) == pytest.approx(40, rel=0.2)
    assert report.goodput(50, 60) == pytest.approx(20, rel=0.2)
    assert policy.of(Ended)[-1].output_tokens == 5


def test_a_smaller_pool_preempts_and_preemptions_of_a_dead_process_are_kept():
    changes = (Change(10, kv=0.0008), Change(50, down_s=1.0))
    report = loop(Listener(8), changes=changes)
    assert 0 < loop(Listener(8), changes=changes[:1], seconds=49.0).preemptions <= report.preemptions


def test_a_policy_that_asks_to_be_told_again_at_once_cannot_stop_the_clock():
    policy = Listener(1)
    policy.next_wake_at = lambda now: now  # type: ignore[method-assign]
    assert loop(policy, seconds=2.0).flows <= 100


def test_kinds_of_requests_come_as_often_as_their_shares_say():
    work = Workload((RequestKind(Spread(100), Spread(1), share=3.0), RequestKind(Spread(200), Spread(1))))
    chance = random.Random(3)
    drawn = [work.draw(chance)[0] for _ in range(4000)]
    assert drawn.count(100) / 4000 == pytest.approx(0.75, abs=0.03)


def test_a_report_tells_means_moves_and_when_a_speed_was_reached():
    rows = [LoopRow(5.0 * i, 10.0 * i, 10.0 * i, float(i), 1.0, 0) for i in range(1, 7)]
    report = LoopReport(rows, [LimitMove(0.0, 1, ""), LimitMove(12.0, 2, "ramp")])
    assert report.goodput(5, 15) == 25.0
    assert report.goodput(50, 60) == 0.0
    assert report.peak_limit(0, 20) == 4.0
    assert (report.moves_between(-1, 12), report.moves_between(0, 11)) == (2, 0)
    assert report.reaches_at(30.0, 0, 30) == 15.0
    assert report.reaches_at(59.0, 0, 30) is None


@settings(max_examples=25, deadline=None)
@given(
    limit=st.integers(1, 12),
    seed=st.integers(0, 5),
    changes=st.lists(
        st.builds(
            Change,
            at=st.floats(0, 30),
            speed=st.none() | st.sampled_from([0.0, 0.3, 2.0]),
            kv=st.none() | st.sampled_from([0.0005, 1.0]),
            slots=st.none() | st.integers(1, 9),
            down_s=st.none() | st.floats(0.1, 20),
        ),
        max_size=5,
    ),
    error_rate=st.sampled_from([0.0, 0.4]),
    max_in_flight=st.none() | st.integers(1, 10),
    delay_s=st.sampled_from([0.0, 0.3]),
)
def test_whatever_happens_each_request_ends_once_and_the_run_ends(
    limit, seed, changes, error_rate, max_in_flight, delay_s
):
    policy = Listener(limit)
    server = attrs.evolve(STEADY, max_in_flight=max_in_flight, noise=0.1)
    report = loop(
        policy,
        seed,
        seconds=30.0,
        server=server,
        changes=tuple(changes),
        error_rate=error_rate,
        request_timeout_s=5.0,
        delay_s=delay_s,
    )
    ended = policy.of(Ended)
    assert len(ended) == report.finished + report.lost + report.refused + report.errors + report.timeouts
    assert 0 <= report.requests - len(ended) <= limit
    assert report.rows[-1].at == 30.0
    assert all(row.in_flight <= limit + 1e-9 for row in report.rows)
    assert [at for at, _ in policy.heard] == sorted(at for at, _ in policy.heard)


def test_a_fixed_limit_notes_its_only_move():
    report = loop(Fixed(FixedSettings(6)))
    assert [(move.at, move.limit) for move in report.moves] == [(0.0, 6)]
