"""The gate ``tide`` as a whole: against a little model of a server, and against everything that can go wrong."""

from __future__ import annotations

from itertools import groupby

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.limits.tide import Tide, TideSettings
from scavenge.signals import Ended, Ending, Flow, ServerLoad, WarmStart
from scavenge.types import CapChanged

REPLY_TOKENS = 100.0


@attrs.define
class Toy:
    """A batching server that always has all it may have: ``N/(A + B*N)`` tokens a second, from so many slots."""

    gate: Tide
    a: float = 0.01
    b: float = 0.0001
    slots: int = 10_000
    now: float = 0.0
    offered: float = 1e9
    """More than this is never in flight."""
    streamed: float = 1.0
    heard_at: float = 0.0
    due: float = 0.0
    limits: list[int] = attrs.Factory(list)

    @property
    def in_flight(self) -> float:
        return min(float(self.gate.limit(self.now)), self.offered)

    def goodput(self) -> float:
        running = min(self.in_flight, self.slots)
        return running / (self.a + self.b * running)

    def run(self, seconds: float) -> int:
        """Live for so long; the limit after it."""
        until = self.now + seconds
        self.gate.observe(self._flow(), self.now)
        while (wake_at := self.gate.next_wake_at(self.now)) < until:
            assert wake_at > self.now
            self._serve(wake_at - self.now)
            self.now = wake_at
            self.gate.observe(self._flow(), self.now)
            self.limits.append(self.gate.limit(self.now))
        self._serve(until - self.now)
        self.now = until
        return self.gate.limit(self.now)

    def end(self, ending: Ending, *, age_s: float = 1.0, times: int = 1, in_flight: int = 0) -> int:
        for _ in range(times):
            count = in_flight or int(self.in_flight)
            self.gate.observe(Ended(ending, self.now - age_s, count, age_s, retry_after_s=89.0), self.now)
        return self.gate.limit(self.now)

    def _serve(self, seconds: float) -> None:
        self.due += seconds * self.goodput() / REPLY_TOKENS
        duration_s = REPLY_TOKENS * self.in_flight / self.goodput()
        while self.due >= 1.0:
            self.due -= 1.0
            first_s = 0.05 if self.streamed else None
            done = Ended(Ending.OK, self.now - duration_s, int(self.in_flight), duration_s, first_s)
            self.gate.observe(
                attrs.evolve(done, streamed=self.streamed > 0.5, output_tokens=REPLY_TOKENS, prompt_tokens=10.0),
                self.now,
            )

    def _flow(self) -> Flow:
        span_s, self.heard_at = self.now - self.heard_at, self.now
        return Flow(
            span_s=span_s,
            in_flight=self.in_flight,
            awaiting=self.streamed * max(0.0, self.in_flight - self.slots),
            output_tokens=self.streamed * span_s * self.goodput(),
            streamed=self.streamed,
            in_flight_now=int(self.in_flight),
        )


def toy(**keys: object) -> Toy:
    settings = {key: keys.pop(key) for key in ("start", "min", "max", "target_elasticity") if key in keys}
    return Toy(Tide(TideSettings(**settings)), **keys)


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="max: expected at least min"):
        TideSettings(min=8, max=4)
    with pytest.raises(ValueError, match="target_elasticity"):
        TideSettings(target_elasticity=1.0)


def test_it_begins_where_it_is_told_within_its_bounds():
    assert Tide(TideSettings(start=5)).limit(0.0) == 5
    assert Tide(TideSettings(start=5, max=3)).limit(0.0) == 3
    assert Tide(TideSettings(start=5, min=9)).limit(0.0) == 9


def test_it_wants_the_servers_figures_and_is_woken_at_once():
    gate = Tide(TideSettings())
    assert gate.wants_load
    assert gate.next_wake_at(7.0) == 7.0


def test_it_finds_most_of_a_batching_servers_goodput_within_half_a_minute():
    server = toy()
    server.run(30.0)
    assert server.goodput() > 0.7 / server.b
    server.run(270.0)
    assert server.goodput() > 0.8 / server.b
    assert server.gate.view(server.now).settled


def test_it_stays_near_the_slots_of_a_server_that_has_few():
    server = toy(slots=8, start=4)
    server.run(600.0)
    assert max(server.limits) <= 16
    assert all(7 <= limit <= 13 for limit in server.limits[-20:])


def test_limit_1_moves_up():
    server = toy(start=1)
    server.run(60.0)
    assert server.gate.limit(server.now) > 20
    cruising = toy(start=1)
    cruising.end(Ending.RATE_LIMITED)
    assert cruising.run(400.0) > 1


def test_small_limits_take_steps_of_whole_requests():
    server = toy(slots=3, start=3)
    server.run(300.0)
    assert len(set(server.limits[-10:])) > 1


def test_small_limits_take_steps_of_whole_requests_where_nothing_pays():
    server = toy(min=5, start=5, a=0.0001, b=0.01)
    server.run(300.0)
    assert set(server.limits[-10:]) == {5, 6}


@pytest.mark.parametrize("ending", [Ending.RATE_LIMITED, Ending.TIMEOUT])
def test_a_ceiling_is_forgotten_with_the_server_that_had_it(ending):
    server = toy(max=4096, a=0.02, b=0.0002)
    server.run(10.0)
    server.end(ending, times=500, in_flight=40)
    server.run(40.0)
    below = server.gate.limit(server.now)
    server.a, server.b = 0.005, 0.00005
    assert server.run(60.0) > 1.5 * below


def test_a_queue_that_the_server_tells_counts_with_the_one_that_is_seen():
    for waiting, reason in ((0, "ramp"), (20, "queue")):
        server = toy(start=50, slots=46)
        server.gate.observe(ServerLoad(waiting=waiting), 0.0)
        server.run(5.0)
        assert server.gate.view(server.now).reason == reason


def test_a_server_of_half_the_slots_is_noticed_within_three_windows():
    server = toy(slots=200)
    server.run(300.0)
    server.a, server.b, server.slots = 2 * server.a, 2 * server.b, 100
    server.limits.clear()
    server.run(60.0)
    assert max(server.limits[3:]) <= 130


def test_work_that_brings_less_and_wants_more_at_once_is_not_cut_but_ramped():
    server = toy(a=0.005, b=0.0005)
    server.run(300.0)
    before = server.gate.limit(server.now)
    server.a, server.b = 0.1, 0.0002
    server.limits.clear()
    server.run(120.0)
    assert min(server.limits) >= 0.8 * before
    assert server.goodput() > 0.6 / server.b


def test_work_that_wants_fewer_leaves_a_queue_and_is_followed_down():
    server = toy(a=0.02, b=0.0001)
    server.run(200.0)
    server.a, server.b, server.slots = 0.02, 0.001, 30
    server.run(200.0)
    assert server.gate.limit(server.now) <= 40


def test_a_cut_that_was_too_deep_is_undone_within_a_minute():
    server = toy()
    server.run(300.0)
    before = server.gate.limit(server.now)
    server.slots = 20
    server.run(120.0)
    assert server.gate.limit(server.now) < 30
    server.slots = 10_000
    server.run(90.0)
    assert server.gate.limit(server.now) > 0.4 * before


def test_a_storm_of_refusals_is_made_up_for_once_it_is_over():
    """A front door that was shut for minutes: the ceiling it left is doubted faster and faster."""
    server = toy()
    server.run(120.0)
    before = server.gate.limit(server.now)
    for _ in range(20):
        server.end(Ending.RATE_LIMITED, age_s=0.0)
        server.run(16.0)
    assert server.gate.limit(server.now) < 0.6 * before
    server.run(600.0)
    assert server.gate.limit(server.now) > 0.9 * before


def test_many_timeouts_are_remembered():
    server = toy()
    server.run(120.0)
    cut = server.end(Ending.TIMEOUT, times=100)
    server.limits.clear()
    server.run(100.0)
    assert max(server.limits) == cut


def test_a_ramp_waits_while_nothing_is_known_of_the_length_of_replies():
    server = toy(due=-1e9)
    server.run(90.0)
    assert server.gate.limit(server.now) == 24
    assert server.gate.view(server.now).reason == "young"


def test_growth_stops_where_the_cache_would_be_full_of_replies_that_have_grown():
    load = ServerLoad(kv_usage=0.6, kv_tokens=3_000, running=10)
    server = toy()
    limits = tell(server, load, 300.0)
    assert max(limits) <= 48
    assert server.gate.view(server.now).reason == "kv"
    assert server.gate.view(server.now).settled


def test_a_reckoning_that_the_cache_refutes_is_not_believed():
    """Shared prefixes, windows of attention: what requests hold may be far less than their tokens."""
    server = toy()
    assert max(tell(server, ServerLoad(kv_usage=0.05, kv_tokens=3_000, running=10), 300.0)) > 200


def test_a_ramp_that_waits_for_room_keeps_no_old_step():
    """Streams get slower while contexts grow: beside what was seen before, one more would seem to bring nothing."""
    server = toy(a=0.05)
    tell(server, ServerLoad(kv_usage=0.1), 15.0)
    assert server.gate.view(server.now).half_load is not None
    tell(server, ServerLoad(kv_usage=0.95), 15.0)
    assert server.gate.view(server.now).reason == "kv"
    assert server.gate.view(server.now).half_load is None


def test_requests_that_have_not_grown_yet_refute_nothing():
    server = toy(a=1.0)
    assert max(tell(server, ServerLoad(kv_usage=0.05, kv_tokens=3_000, running=10), 100.0)) <= 48


def test_a_pause_of_first_tokens_ends_the_ramp():
    server = toy(slots=4)
    server.run(120.0)
    assert max(server.limits) <= 10


def test_streams_that_stand_still_end_a_ramps_window_at_once():
    gate, now = Tide(TideSettings()), 0.0
    gate.observe(Flow(0.0, 8.0, in_flight_now=8), now)
    while gate.view(now).reason != "queue" and now < 60.0:
        now = gate.next_wake_at(now)
        gate.observe(Flow(1.0, 8.0, stalled=4.0, output_tokens=10.0, in_flight_now=8), now)
    assert now < 12.0


def test_a_new_cap_is_used_at_once_where_the_old_one_had_bound():
    gate = Tide(TideSettings())
    gate.observe(CapChanged(1), 0.0)
    assert gate.limit(0.0) == 1
    gate.observe(CapChanged(5), 1.0)
    assert gate.limit(1.0) == 5
    gate.observe(CapChanged(None), 2.0)
    assert gate.limit(2.0) == 8


def test_a_doubled_server_is_climbed_on():
    server = toy(a=0.02, b=0.0002)
    server.run(300.0)
    server.a, server.b = 0.005, 0.00005
    server.run(120.0)
    assert server.goodput() > 0.8 / server.b


def test_replies_in_one_piece_are_enough():
    server = toy(streamed=0.0)
    server.run(300.0)
    assert server.goodput() > 0.7 / server.b


def test_a_limit_that_does_not_bind_never_grows():
    server = toy(offered=5.0)
    assert server.run(300.0) == 8
    assert server.gate.view(server.now).goodput is None


def test_a_limit_that_does_not_bind_never_grows_on_slow_streams():
    server = toy(offered=5.0, a=10.0)
    assert server.run(300.0) == 8


@pytest.mark.parametrize(
    "ending",
    [Ending.CACHED, Ending.CLIENT_ERROR, Ending.CANCELLED, Ending.SERVER_ERROR, Ending.DOWN],
)
def test_what_is_no_work_of_the_server_moves_nothing(ending):
    """inspect_ai (cached answers grew the cap), prime-rl#2908 (episodes that failed did), 2 % of 5xx (halved it)."""
    gate = Tide(TideSettings())
    twin = toy()
    server = Toy(gate)
    for _ in range(30):
        server.end(ending, times=20)
        assert server.run(5.0) == twin.run(5.0)


def test_retry_after_does_not_freeze_it():
    """inspect_ai#5137, #5138: hints longer than the pause between two tries kept the limit where it was for ever."""
    server = toy()
    server.run(60.0)
    cut = server.end(Ending.RATE_LIMITED, in_flight=20)
    assert cut == 17
    for _ in range(60):
        server.end(Ending.RATE_LIMITED, age_s=server.now - 59.0)
        server.run(10.0)
    assert server.gate.limit(server.now) > cut


def test_a_burst_of_refusals_cuts_once_and_is_remembered():
    """NeMo DataDesigner: one cut a burst, and growth stops below what was refused."""
    server = toy()
    server.run(60.0)
    assert server.end(Ending.RATE_LIMITED, times=50, in_flight=100, age_s=0.0) == 85
    assert server.gate.view(server.now).reason == "429"
    server.limits.clear()
    server.run(100.0)
    assert 85 <= max(server.limits) <= 97


def test_failures_from_before_a_cut_do_not_cascade():
    """prime-rl#3285, where stale signals took the cap from 1024 to 8: what was admitted before a cut is not heard."""
    server = toy()
    server.run(120.0)
    before = server.gate.limit(server.now)
    after = server.end(Ending.TIMEOUT, age_s=1.0, times=200)
    assert 0.7 * before < after < before
    assert server.gate.view(server.now).reason == "timeout"
    for _ in range(10):
        server.now += 20.0
        server.end(Ending.TIMEOUT, age_s=400.0, times=20)
        assert server.gate.limit(server.now) == after


def test_one_timeout_in_twenty_cuts_nothing():
    server = toy()
    server.run(120.0)
    for _ in range(20):
        server.end(Ending.TIMEOUT)
        server.end(Ending.OK, times=19)
    assert server.gate.view(server.now).reason != "timeout"


def test_a_cap_is_kept_to_at_once_and_what_lies_above_it_is_not_learnt():
    server = toy()
    server.gate.observe(CapChanged(20), 0.0)
    server.run(300.0)
    assert max(server.limits) == 20
    server.gate.observe(CapChanged(6), server.now)
    assert server.gate.limit(server.now) == 6
    server.gate.observe(CapChanged(12), server.now)
    server.limits.clear()
    server.run(60.0)
    assert max(server.limits) == 12
    server.gate.observe(CapChanged(None), server.now)
    assert server.gate.limit(server.now) <= 12
    assert server.run(12.0) >= 48


def test_a_cap_that_rises_above_what_was_found_changes_nothing():
    server = toy(slots=100)
    server.gate.observe(CapChanged(400), 0.0)
    server.run(300.0)
    found = server.gate.limit(server.now)
    server.gate.observe(CapChanged(800), server.now)
    assert server.gate.limit(server.now) == found
    assert server.gate.view(server.now).settled


def test_a_warm_start_begins_there_and_climbs_only_if_that_pays():
    server = toy(slots=40)
    server.gate.observe(WarmStart(40), 0.0)
    assert server.gate.limit(0.0) == 40
    assert server.gate.view(0.0).reason == "warm"
    server.run(120.0)
    assert max(server.limits) < 60
    late = toy()
    late.run(30.0)
    before = late.gate.limit(late.now)
    late.gate.observe(WarmStart(900), late.now)
    assert late.gate.limit(late.now) == before


def test_slots_that_the_server_tells_bound_it():
    """llama.cpp#3478: requests beyond its slots only wait, and it never refuses any."""
    server = toy(start=16)
    server.gate.observe(ServerLoad(slots=4), 0.0)
    assert server.gate.limit(0.0) == 6
    assert server.gate.view(0.0).reason == "slots"
    server.gate.observe(ServerLoad(slots=4), 14.0)
    server.run(10.0)
    assert max(server.limits) <= 6


def tell(server: Toy, load: ServerLoad, seconds: float) -> list[int]:
    server.limits.clear()
    for _ in range(int(seconds / 5.0)):
        server.gate.observe(load, server.now)
        server.run(5.0)
    return server.limits


def test_a_full_cache_blocks_growth():
    server = toy()
    assert max(tell(server, ServerLoad(kv_usage=0.95), 60.0)) <= 9
    assert server.gate.view(server.now).reason == "kv"
    assert max(tell(server, ServerLoad(kv_usage=0.5), 60.0)) > 9


def test_a_server_that_stopped_telling_blocks_growth_and_loses_nothing():
    """vllm#49538: figures that are old say nothing; a blackout of the metrics is no reason to collapse either."""
    server = toy()
    tell(server, ServerLoad(kv_usage=0.1), 25.0)
    server.run(16.0)
    before = server.gate.limit(server.now)
    server.limits.clear()
    server.run(120.0)
    assert before * 0.8 <= min(server.limits)
    assert max(server.limits) <= before * 1.23
    assert server.gate.view(server.now).reason == "stale"


def test_a_wedged_engine_whose_cache_is_empty_is_not_fed():
    """vllm-metal#479: waiting requests with usage 0 are no invitation; only goodput that rises is."""
    server = toy(slots=1, start=8)
    server.gate.observe(ServerLoad(kv_usage=0.0, waiting=7), 0.0)
    assert max(tell(server, ServerLoad(kv_usage=0.0, waiting=7, running=1), 120.0)) <= 8


def test_no_goodput_at_all_moves_nothing():
    gate = Tide(TideSettings())
    for second in range(200):
        gate.observe(Flow(1.0, 8.0, awaiting=8.0, in_flight_now=8), float(second))
    assert gate.limit(200.0) == 8


def test_a_server_that_preempts_is_given_no_more():
    server = toy()
    server.gate.observe(ServerLoad(preemptions=0), 0.0)
    for step in range(1, 30):
        server.gate.observe(ServerLoad(preemptions=100 * step), server.now)
        server.run(5.0)
    assert max(server.limits) <= 17


def test_an_outage_leaves_the_limit_where_it_was():
    server = toy()
    server.run(200.0)
    before = server.gate.limit(server.now)
    server.end(Ending.DOWN, times=before)
    server.now += 60.0
    assert server.gate.limit(server.now) == before
    server.run(60.0)
    assert server.gate.limit(server.now) > 0.8 * before


def test_what_it_does_not_know_is_ignored():
    gate = Tide(TideSettings())
    gate.observe("weather", 0.0)
    assert gate.limit(0.0) == 8


@pytest.mark.parametrize("duration_s", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_duration_that_cannot_be_teaches_it_nothing(duration_s):
    server = toy()
    for _ in range(100):
        server.gate.observe(Ended(Ending.OK, 0.0, 8, duration_s, duration_s), 0.0)
    server.run(30.0)
    twin = toy()
    twin.run(30.0)
    assert server.limits == twin.limits


def test_one_reply_that_took_hours_does_not_make_it_blind_for_hours():
    server = toy()
    server.end(Ending.RATE_LIMITED)
    server.end(Ending.OK, age_s=40_000.0)
    server.run(600.0)
    assert server.gate.view(server.now).goodput is not None


def test_windows_are_as_short_as_requests_have_become():
    server = toy()
    server.end(Ending.RATE_LIMITED)
    server.end(Ending.OK, age_s=500.0)
    server.run(60.0)
    assert server.gate.view(server.now).goodput is not None


def test_it_says_what_it_knows():
    server = toy()
    server.run(200.0)
    view = server.gate.view(server.now)
    assert view.limit == server.gate.limit(server.now)
    assert view.goodput == pytest.approx(server.goodput(), rel=0.1)
    assert view.half_load == pytest.approx(100.0, rel=0.1)
    assert view.elasticity is not None
    assert 0.0 < view.elasticity < 1.0


FIGURES = st.one_of(st.floats(), st.sampled_from([0.0, 1.0, 8.0, 100.0, 1e9]))
COUNTS = st.integers(0, 2000)
EVENTS = st.one_of(
    st.builds(Flow, FIGURES, FIGURES, FIGURES, FIGURES, FIGURES, FIGURES, FIGURES, st.integers(-1, 2000)),
    st.builds(
        Ended, st.sampled_from(Ending), FIGURES, COUNTS, FIGURES, st.none() | FIGURES, st.booleans(),
        st.none() | FIGURES, st.none() | FIGURES,
    ),
    st.builds(ServerLoad, COUNTS, COUNTS, st.none() | FIGURES, COUNTS, st.none() | st.integers(-5, 50), COUNTS),
    st.builds(CapChanged, st.none() | st.integers(1, 50)),
    st.builds(WarmStart, st.integers(-5, 5000)),
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 1.0, 5.0, 1e5, -7.0]), EVENTS), max_size=60))
def test_nothing_that_it_hears_takes_it_out_of_its_bounds(history):
    gate, now, cap = Tide(TideSettings(min=2, max=300)), 0.0, None
    for seconds, event in history:
        now += seconds
        gate.observe(event, now)
        cap = event.max_concurrent if isinstance(event, CapChanged) else cap
        assert 1 <= gate.limit(now) <= min(300, cap or 300)
        assert not isinstance(event, Flow) or gate.next_wake_at(now) > now
        assert gate.view(now).limit == gate.limit(now)


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0, 5.0, 100.0]), EVENTS), max_size=40))
def test_after_whatever_it_heard_a_good_server_is_climbed_on_again(history):
    gate, now = Tide(TideSettings()), 0.0
    for seconds, event in history:
        now += seconds
        gate.observe(event, now)
    gate.observe(CapChanged(None), now)
    gate.observe(ServerLoad(kv_usage=0.1), now)
    server = Toy(gate, a=0.1, b=0.001, now=now, heard_at=now)
    for _ in range(1000):
        gate.observe(ServerLoad(kv_usage=0.1), server.now)
        if server.run(5.0) > 8:
            break
    else:
        pytest.fail(f"stuck at {gate.view(server.now)}")


@given(st.sampled_from([2.0**10, 2.0**20, -(2.0**16)]), st.sampled_from([3, 40, 10_000]))
def test_where_time_begins_makes_no_difference(origin, slots):
    here, there = toy(slots=slots), toy(slots=slots, now=origin, heard_at=origin)
    here.run(120.0)
    there.run(120.0)
    assert [limit for limit, _ in groupby(here.limits)] == [limit for limit, _ in groupby(there.limits)]
