"""Multi-turn sessions on a simulated server: the workload, the loop that runs it, and what comes out."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from random import Random
from statistics import mean

import attrs
import pytest

from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.core.limits.tide import Tide, TideSettings
from scavenge.core.sessions.fixed import FixedSessions, FixedSessionsSettings
from scavenge.core.sessions.policy import Capacity, SessionEvent, SlotsChanged, TurnEnded
from scavenge.core.sessions.table import SESSION_POLICIES
from scavenge.signals import Flow, ServerLoad
from scavenge.testing.agent_loop import AgentCase, AgentLoop
from scavenge.testing.agent_report import AgentReport, Moment
from scavenge.testing.agents import AgentWorkload, Spread
from scavenge.testing.batching import BatchingSettings
from scavenge.testing.closed_loop_case import Change, RequestKind, Tells, Workload

SMALL = AgentWorkload(
    first_prompt_tokens=500,
    turns=Spread(10, 0.3),
    output_tokens=Spread(60, 0.5),
    tool_tokens=Spread(400, 0.5),
    tool_s=Spread(3, 0.5),
    max_context_tokens=20_000,
)
"""Contexts from 500 to some 5 000 tokens: about ten sessions fit the cache of the small server."""
SERVER = BatchingSettings(gemm_s=300e-6, attention_s=1e-8, kv_tokens=40_000)
CASE = AgentCase(SERVER, SMALL, seconds=450, sample_s=10)
BEST = 10
WARM_S = 150.0


@cache
def run(
    case: AgentCase = CASE, policy: str = "fixed", requests: int = 64, seed: int = 1, **settings: int
) -> AgentReport:
    kind = SESSION_POLICIES[policy]
    return AgentLoop(case, kind.create(kind.config(**settings)), Fixed(FixedSettings(requests)), seed).run()


def rate(report: AgentReport) -> float:
    return report.stretch(WARM_S).sessions_per_h


# --- the workload


def test_a_session_is_the_same_whoever_asks_for_it():
    assert SMALL.session(3, 5) == SMALL.session(3, 5)
    assert SMALL.session(3, 5) != SMALL.session(3, 6)
    assert SMALL.session(3, 5) != SMALL.session(4, 5)


def test_each_prompt_is_all_that_came_before_and_something_new():
    for index in range(50):
        turns = SMALL.session(1, index)
        assert turns[0].prompt_tokens == SMALL.first_prompt_tokens
        assert turns[0].known_tokens == 0
        for turn, following in pairwise(turns):
            assert following.known_tokens == turn.context_tokens < following.prompt_tokens


def test_a_session_has_two_turns_at_least_and_no_tool_after_its_last():
    short = attrs.evolve(SMALL, turns=Spread(0.5))
    assert {len(short.session(1, index)) for index in range(10)} == {2}
    assert all(session[-1].tool_s == 0 < session[0].tool_s for session in (SMALL.session(1, 0), short.session(1, 0)))


def test_a_session_ends_with_the_reply_that_takes_its_context_beyond_the_most():
    for index in range(20):
        *before, last = attrs.evolve(SMALL, turns=Spread(100), max_context_tokens=3000).session(1, index)
        assert last.context_tokens > 3000
        assert all(turn.context_tokens <= 3000 for turn in before)


def test_a_spread_has_its_mean_and_without_variation_nothing_else():
    random = Random(1)
    wide = Spread(100, 1.0)
    assert mean(wide.draw(random) for _ in range(20_000)) == pytest.approx(100, rel=0.05)
    assert {Spread(7.5).draw(random) for _ in range(5)} == {7.5}


# --- the report


def moment(at: float, finished: int, live: int, prompt: int = 0, cached: int = 0) -> Moment:
    return Moment(
        at, finished + live, finished, finished, 2 * finished, prompt, cached, live, 0, live, live, 100 * live
    )


def test_a_stretch_tells_what_was_finished_between_its_ends():
    report = AgentReport((moment(0, 0, 2), moment(60, 1, 4, 100, 50), moment(120, 5, 8, 200, 140)))
    later = report.stretch(60)
    assert (later.span_s, later.sessions_per_h, later.hit_ratio, later.live) == (60, 240, 0.9, 8)
    assert report.stretch().live == 6
    assert report.stretch(0, 60).sessions_per_h == 60
    assert (report.started, report.finished, report.live) == (13, 5, 8)


def test_a_stretch_without_prompts_has_no_hits():
    assert AgentReport((moment(0, 0, 2), moment(60, 0, 2))).stretch().hit_ratio == 0


def test_a_stretch_of_one_moment_is_an_error():
    with pytest.raises(ValueError, match="at least two moments, got 1"):
        AgentReport((moment(0, 0, 2),)).stretch()


# --- what sessions do to a cache


def test_twice_the_best_number_of_sessions_finishes_far_fewer():
    best, twice = run(limit=BEST), run(limit=2 * BEST)
    assert rate(twice) < 0.5 * rate(best)
    assert twice.stretch(WARM_S).hit_ratio < 0.2 < 0.8 < best.stretch(WARM_S).hit_ratio


def test_the_oldest_first_is_far_better_than_first_come_first_served_at_the_same_limit():
    oldest = run(limit=96, requests=4)
    fifo = run(attrs.evolve(CASE, oldest_first=False), limit=96, requests=4)
    assert rate(oldest) > 2 * rate(fifo)
    assert fifo.stretch(WARM_S).in_flight == oldest.stretch(WARM_S).in_flight == 4


@pytest.mark.parametrize("seed", [1, 2])
def test_the_default_gate_is_near_the_best_fixed_number_where_the_server_tells_its_capacity(seed: int):
    assert rate(run(policy="budget", requests=16, seed=seed)) > 0.75 * rate(run(limit=BEST, seed=seed))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("requests", "tells_cached"), [(16, True), (64, True), (16, False)])
def test_the_default_gate_finds_the_capacity_by_itself_however_many_may_start(
    seed: int, requests: int, tells_cached: bool
):
    case = attrs.evolve(CASE, tells=Tells.NOTHING, tells_cached=tells_cached)
    report = run(case, "budget", requests, seed)
    assert rate(report) > 0.75 * rate(run(limit=BEST, seed=seed))
    assert report.moments[-1].budget_tokens == pytest.approx(0.9 * SERVER.kv_tokens, rel=0.3)


def test_without_a_gate_everybody_is_let_in_and_nobody_gets_on():
    everybody = run(attrs.evolve(CASE, sessions=200), policy="off")
    assert everybody.live > 150
    assert rate(everybody) < 0.5 * rate(run(limit=BEST))


def test_paused_sessions_are_live_and_not_in_flight():
    stretch = run(policy="budget", requests=32).stretch(WARM_S)
    assert stretch.paused > 0
    assert stretch.in_flight + stretch.paused < stretch.live


# --- nobody is lost


TROUBLE = (
    Change(60, kv=0.5),
    Change(120, down_s=30),
    Change(200, speed=0.5),
    Change(240, slots=2),
    Change(300, kv=1.0),
)


@pytest.mark.parametrize("policy", [name for name in SESSION_POLICIES if name != "fixed"])
@pytest.mark.parametrize("tells", [Tells.VLLM, Tells.NOTHING])
def test_whatever_happens_who_started_is_finished_or_live(policy: str, tells: Tells):
    case = attrs.evolve(CASE, changes=TROUBLE, tells=tells, tells_cached=tells is Tells.VLLM, sessions=200)
    kind = SESSION_POLICIES[policy]
    report = AgentLoop(case, kind.create(kind.config()), Tide(TideSettings()), 1).run()
    for one in report.moments:
        assert one.started == one.finished + one.live
        assert one.in_flight + one.paused <= one.live
    assert report.finished > 0


@pytest.mark.parametrize("requests", [1, 3, 64])
def test_every_turn_is_answered_once_though_the_server_dies_under_it(requests: int):
    sessions = 12
    case = attrs.evolve(CASE, seconds=3600, sessions=sessions, changes=(Change(20, down_s=15), Change(50, down_s=5)))
    report = run(case, "budget", requests)
    scripts = [SMALL.session(1, index) for index in range(sessions)]
    assert (report.started, report.finished, report.live) == (sessions, sessions, 0)
    assert report.moments[-1].turns == sum(map(len, scripts))
    assert report.moments[-1].output_tokens == sum(turn.output_tokens for script in scripts for turn in script)


def test_nothing_is_in_flight_while_the_server_is_down_and_its_cache_is_gone_after():
    report = run(attrs.evolve(CASE, changes=(Change(200, down_s=60),)), limit=BEST)
    assert all(one.in_flight == 0 for one in report.moments if 200 <= one.at < 260)
    assert report.stretch(200, 250).turns_per_s == 0
    assert report.stretch(250, 270).hit_ratio < report.stretch(100, 200).hit_ratio - 0.2
    assert report.stretch(300).hit_ratio == pytest.approx(report.stretch(100, 200).hit_ratio, abs=0.1)


def test_half_of_the_cache_makes_the_best_number_too_many():
    halved = run(attrs.evolve(CASE, changes=(Change(200, kv=0.5),)), limit=BEST)
    assert halved.stretch(250).sessions_per_h < 0.6 * run(limit=BEST).stretch(250).sessions_per_h


def test_the_same_arguments_make_the_same_run():
    case = attrs.evolve(CASE, server=attrs.evolve(SERVER, noise=0.2))
    assert run(case, limit=BEST) == run.__wrapped__(case, limit=BEST) != run(case, limit=BEST, seed=2)


# --- what is told


@attrs.define
class Curious:
    """An admission policy that keeps what it is told of the server."""

    wants_load: bool
    loads: list[ServerLoad] = attrs.field(factory=list)
    flows: list[Flow] = attrs.field(factory=list)

    def observe(self, event: object, now: float) -> None:
        if isinstance(event, ServerLoad):
            self.loads.append(event)
        elif isinstance(event, Flow):
            self.flows.append(event)

    def limit(self, now: float) -> int:
        return 16

    def next_wake_at(self, now: float) -> float:
        return 5.0 * (len(self.flows) + 1)


@pytest.mark.parametrize(
    ("wants", "tells", "heard"), [(True, Tells.VLLM, 7), (False, Tells.VLLM, 0), (True, Tells.NOTHING, 0)]
)
def test_a_policy_hears_the_figures_of_a_server_that_tells_them_if_it_wants_to(wants: bool, tells: Tells, heard: int):
    curious = Curious(wants)
    kind = SESSION_POLICIES["off"]
    AgentLoop(attrs.evolve(CASE, seconds=30, tells=tells, sessions=50), kind.create(kind.config()), curious).run()
    assert len(curious.loads) == heard
    assert all(load.kv_tokens == SERVER.kv_tokens for load in curious.loads)


def test_the_flow_counts_what_of_the_prompts_has_to_be_read():
    curious, few = Curious(False), FixedSessions(FixedSessionsSettings(BEST // 2))  # so that all of them hit
    last = AgentLoop(CASE, few, curious, 1).run().moments[-1]
    read = sum(flow.prompt_tokens for flow in curious.flows)
    assert read == pytest.approx(last.prompt_tokens - last.cached_tokens, rel=0.1)
    assert sum(flow.output_tokens for flow in curious.flows) == pytest.approx(last.output_tokens, rel=0.1)


class Listening(FixedSessions):
    """A session policy that keeps what it hears."""

    def __init__(self) -> None:
        super().__init__(FixedSessionsSettings(BEST))
        self.heard: list[tuple[float, SessionEvent]] = []

    def observe(self, event: SessionEvent, now: float) -> None:
        self.heard.append((now, event))


def listen(case: AgentCase) -> list[tuple[float, SessionEvent]]:
    listening = Listening()
    AgentLoop(case, listening, Fixed(FixedSettings(16)), 1).run()
    return listening.heard


def test_a_server_that_is_down_is_no_endpoint_and_has_no_slots():
    heard = listen(attrs.evolve(CASE, seconds=60, changes=(Change(22, down_s=11),)))
    known = [(now, len(event.loads)) for now, event in heard if isinstance(event, Capacity)]
    assert {count for now, count in known if 22 <= now < 33} == {0}
    assert {count for now, count in known if now < 22 or now >= 33} == {1}
    slots = [(now, event.slots) for now, event in heard if isinstance(event, SlotsChanged)]
    assert slots == [(0, 16), (22, 0), (33, 16)]


def test_after_a_crash_sessions_that_rested_are_not_expected_to_be_in_the_cache():
    heard = listen(attrs.evolve(CASE, seconds=60, changes=(Change(22, down_s=11),)))
    turns = [(now, event) for now, event in heard if isinstance(event, TurnEnded) and not event.first]
    assert all(event.expected_tokens for now, event in turns if now < 22)
    lost = [event for now, event in turns if now >= 33 and not event.cached_tokens]
    assert lost
    assert not any(event.expected_tokens for event in lost), "a call that was asked for before is no miss either"


def test_a_server_that_hides_its_hits_says_nothing_of_them():
    heard = listen(attrs.evolve(CASE, seconds=60, tells_cached=False))
    turns = [event for _, event in heard if isinstance(event, TurnEnded)]
    assert {event.cached_tokens for event in turns} == {None}
    assert all(event.first_token_s is not None and event.first_token_s > 0 for event in turns)


@pytest.mark.parametrize(
    "wrong",
    [
        {"server": attrs.evolve(SERVER, max_waiting=3)},
        {"server": attrs.evolve(SERVER, max_in_flight=3)},
        {"changes": (Change(5, workload=Workload((RequestKind(Spread(5), Spread(5)),))),)},
    ],
)
def test_a_case_that_sessions_have_no_answer_to_is_refused(wrong: dict[str, object]):
    with pytest.raises(ValueError, match=r"^(server|changes): "):
        attrs.evolve(CASE, **wrong)
