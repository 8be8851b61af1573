"""What ``tide`` is made of: the lines through its windows, the windows, and what makes it step back."""

from __future__ import annotations

import math

import attrs
import pytest

from scavenge.core.limits.tide_brakes import Refusals, ServerWord, Timeouts
from scavenge.core.limits.tide_course import Course
from scavenge.core.limits.tide_fit import REMEMBERED, History, Point
from scavenge.core.limits.tide_room import Room
from scavenge.core.limits.tide_served import Served
from scavenge.core.limits.tide_windows import PROMPT_WEIGHT, Reading, Span, Window
from scavenge.signals import Ended, Ending, Flow, ServerLoad

SPAN = Span(settle_s=1.0, measure_s=4.0, done_needed=2.0, longest_s=10.0, whole_needed=3.0)
FLOW = Flow(span_s=4.0, in_flight=8.0, output_tokens=400.0, in_flight_now=8)


def history(*points: tuple[float, float]) -> History:
    made = History()
    for in_flight, goodput in points:
        made.add(Point(in_flight, goodput))
    return made


def batching(in_flight: float, a: float = 0.01, b: float = 0.0001) -> tuple[float, float]:
    return in_flight, in_flight / (a + b * in_flight)


def done(admitted_at: float = 0.0, duration_s: float = 2.0, *, streamed: bool = True, tokens: float = 100.0) -> Ended:
    return Ended(Ending.OK, admitted_at, 8, duration_s, streamed=streamed, output_tokens=tokens, prompt_tokens=0.0)


# --- the fit


def test_a_power_law_is_found_exactly():
    slope = history(*((n, 50.0 * n**0.4) for n in (20.0, 22.0, 25.0, 24.0))).slope_at(22.0)
    assert slope is not None
    assert slope.elasticity == pytest.approx(0.4)
    assert slope.error < 0.01
    assert slope.goodput_at(23.0) == pytest.approx(50.0 * 23.0**0.4)


def test_nothing_is_said_from_two_windows_or_from_windows_that_are_alike():
    assert history((8.0, 100.0), (16.0, 180.0)).slope_at(16.0) is None
    assert history((8.0, 100.0), (8.0, 110.0), (8.0, 90.0)).slope_at(8.0) is None
    assert history((8.0, 100.0), (16.0, 180.0)).half_load() is None
    assert history((8.0, 100.0), (8.0, 110.0), (8.0, 90.0)).half_load() is None


def test_nothing_is_said_from_windows_that_are_all_far_away():
    assert history(*(batching(n) for n in (1.0, 2.0, 3.0))).slope_at(1e12) is None


def test_nothing_is_predicted_far_from_what_was_seen():
    slope = history(*(batching(n) for n in (20.0, 25.0, 30.0))).slope_at(25.0)
    assert slope is not None
    assert slope.goodput_at(250.0) is None


def test_the_half_load_of_a_batching_server_is_where_it_gives_half():
    assert history(*(batching(n) for n in (8.0, 16.0, 32.0))).half_load() == pytest.approx(100.0)


def test_a_server_that_gets_better_with_load_has_no_half_load():
    assert history((8.0, 80.0), (16.0, 200.0), (32.0, 600.0)).half_load() is None


def test_a_server_that_was_full_from_the_start_has_no_half_load():
    assert history((8.0, 80.0), (16.0, 60.0), (32.0, 50.0)).half_load() is None


def test_a_step_is_told_only_where_there_was_one():
    assert history().last_step() is None
    assert history((8.0, 100.0)).last_step() is None
    assert history((8.0, 100.0), (8.1, 120.0)).last_step() is None
    assert history((8.0, 100.0), (16.0, 200.0)).last_step() == pytest.approx(1.0)
    assert history().step_to(Point(8.0, 100.0)) is None
    assert history((8.0, 100.0)).step_to(Point(16.0, 100.0)) == pytest.approx(0.0)


def test_old_windows_are_forgotten():
    made = history(*(batching(float(n)) for n in range(1, 60)))
    assert len(made.points) == REMEMBERED
    made.forget()
    assert not made.points


# --- windows


def window(span: Span = SPAN) -> Window:
    return Window(100.0, span, limit_since=90.0)


def test_a_window_leaves_out_what_came_while_it_settled():
    it = window()
    assert it.wake_at == 101.0
    it.on_done(done())
    assert it.on_flow(attrs.evolve(FLOW, output_tokens=9e9), 101.0)
    assert it.wake_at == 105.0
    assert it.on_flow(FLOW, 105.0)
    assert not it.is_over
    for _ in range(2):
        it.on_done(done())
    assert it.is_over
    assert it.reading() == Reading(in_flight=8.0, goodput=100.0, awaiting=0.0, stalled=0.0, done_per_s=0.5)


def test_a_window_that_hears_too_early_waits_for_what_is_left():
    it = window()
    assert it.on_flow(FLOW, 100.5)
    assert it.wake_at == 101.0
    assert it.on_flow(FLOW, 101.0)
    assert it.on_flow(attrs.evolve(FLOW, span_s=3.0), 104.0)
    assert it.wake_at == 105.0


def test_a_window_without_completions_is_over_in_the_end():
    it = window()
    now = 101.0
    it.on_flow(FLOW, now)
    for seconds in (4.0, 1.0, 1.0, 1.0, 1.0, 1.0):
        now += seconds
        it.on_flow(attrs.evolve(FLOW, span_s=seconds), now)
        assert not it.is_over
        assert it.wake_at == now + 1.0
    it.on_flow(attrs.evolve(FLOW, span_s=1.0), now + 1.0)
    assert it.is_over


def test_prompts_are_work_too():
    it = window()
    it.on_flow(FLOW, 101.0)
    it.on_flow(attrs.evolve(FLOW, prompt_tokens=1000.0), 105.0)
    reading = it.reading()
    assert reading is not None
    assert reading.goodput == pytest.approx(100.0 + PROMPT_WEIGHT * 250.0)


def test_a_window_has_patience_with_first_tokens_but_not_for_ever():
    waiting = attrs.evolve(FLOW, awaiting=4.0)
    it = window(attrs.evolve(SPAN, patience_s=3.0))
    it.on_flow(waiting, 101.0)
    assert it.wake_at == 102.0
    it.on_flow(waiting, 102.0)
    assert it.wake_at == 103.0
    it.on_flow(waiting, 103.0)
    assert it.wake_at == 107.0


def test_a_window_may_be_over_without_completions_only_where_that_is_allowed():
    for blind_s, allowed in ((4.0, True), (5.0, False)):
        it = window(attrs.evolve(SPAN, blind_s=blind_s))
        it.on_flow(FLOW, 101.0)
        assert not it.may_be_over
        it.on_flow(FLOW, 105.0)
        assert it.may_be_over is allowed


def test_a_pause_makes_a_window_void():
    assert not window().on_flow(attrs.evolve(FLOW, in_flight_now=0), 101.0)
    assert not window().on_flow(FLOW, 106.5)
    assert not window().on_flow(FLOW, 99.0)


@pytest.mark.parametrize("what", ["span_s", "in_flight", "awaiting", "stalled", "output_tokens", "prompt_tokens"])
@pytest.mark.parametrize("figure", [math.nan, math.inf, -1.0])
def test_what_cannot_be_makes_a_window_void(what, figure):
    assert not window().on_flow(attrs.evolve(FLOW, **{what: figure}), 101.0)
    assert not window().on_flow(attrs.evolve(FLOW, streamed=figure), 101.0)


def test_whole_replies_count_when_they_were_admitted_after_the_last_change():
    it = window()
    whole = attrs.evolve(FLOW, streamed=0.0, output_tokens=0.0)
    it.on_flow(whole, 101.0)
    it.on_flow(whole, 105.0)
    it.on_done(done(89.0, streamed=False))
    it.on_done(done(91.0, streamed=False, duration_s=math.nan))
    it.on_done(done(91.0, streamed=False, tokens=math.nan))
    for _ in range(2):
        it.on_done(done(91.0, streamed=False))
    assert not it.is_over
    assert not it.may_be_over
    it.on_done(done(91.0, streamed=False))
    assert it.is_over
    reading = it.reading()
    assert reading is not None
    assert reading.goodput == pytest.approx(8.0 * 300.0 / 6.0)


def test_a_window_without_work_says_nothing():
    it = window()
    it.on_flow(FLOW, 101.0)
    it.on_flow(attrs.evolve(FLOW, output_tokens=0.0), 105.0)
    assert it.reading() is None


def test_the_next_look_lies_in_the_future_even_at_the_end_of_time():
    far = 1e18
    it = Window(far, SPAN, limit_since=0.0)
    assert it.wake_at > far
    it.on_flow(FLOW, it.wake_at)
    assert it.wake_at > far


# --- the course


def reading(in_flight: float, goodput: float, awaiting: float = 0.0) -> Reading:
    return Reading(in_flight, goodput, awaiting, 0.0, 1.0)


def test_the_first_step_is_clear_and_one_that_hardly_pays_is_not():
    course = Course(0.1)
    assert course.is_clear(reading(8.0, 100.0))
    assert not course.is_clear(reading(8.0, 100.0, awaiting=4.0))
    course.follow(reading(8.0, 100.0), 8.0, 0.0, 0.0)
    assert course.is_clear(reading(16.0, 190.0))
    assert not course.is_clear(reading(16.0, 130.0))


def test_the_ramp_leaps_to_where_the_next_step_would_not_pay():
    course, centre = Course(0.1), 8.0
    for _ in range(7):
        centre, reason = course.follow(reading(*batching(centre)), centre, 0.0, 0.0)
    assert (round(centre), reason, course.ramping) == (300, "flat", False)


def test_the_ramp_ends_with_a_step_that_brings_nothing():
    course = Course(0.1)
    assert course.follow(reading(8.0, 100.0), 8.0, 0.0, 0.0) == (12.0, "ramp")
    assert course.follow(reading(12.0, 105.0), 12.0, 0.0, 0.0) == (12.0, "flat")
    assert not course.ramping


def test_a_long_queue_takes_it_back_to_what_is_being_worked_on():
    course = Course(0.1)
    centre, reason = course.follow(reading(100.0, 1000.0), 100.0, 40.0, 0.4)
    assert (centre, reason) == (pytest.approx(62.8), "queue")
    assert course.follow(reading(100.0, 1000.0), 100.0, 90.0, 0.9)[0] == 50.0


def test_a_short_queue_takes_a_little():
    assert Course(0.1).follow(reading(100.0, 1000.0), 100.0, 11.0, 0.11)[0] == pytest.approx(0.89 * 103.0 + 1.0)
    assert Course(0.1).follow(reading(100.0, 1000.0), 100.0, 24.0, 0.24)[0] == pytest.approx(90.0)


def test_two_requests_are_no_queue_however_few_the_rest():
    assert Course(0.1).follow(reading(4.0, 100.0), 4.0, 2.0, 0.5) == (6.0, "ramp")


def test_no_ramp_goes_on_while_most_wait_for_their_first_token():
    assert Course(0.1).follow(reading(4.0, 100.0, awaiting=3.0), 4.0, 0.0, 0.0) == (4.0, "flat")


def test_a_step_that_has_paid_is_followed_by_a_bigger_one():
    course = Course(0.1)
    course.follow(reading(8.0, 100.0), 8.0, 0.0, 0.0)
    assert course.follow(reading(12.0, 150.0), 12.0, 0.0, 0.0) == (24.0, "ramp")


def test_what_is_on_its_way_out_leads_to_no_second_cut():
    course = Course(0.1)
    assert course.follow(reading(100.0, 1000.0), 60.0, 0.0, 1.0)[0] == 60.0
    assert course.follow(reading(60.0, 1000.0), 60.0, 0.0, 1.0)[0] == pytest.approx(57.6)


def test_an_edge_counts_less_with_every_window_without_a_queue():
    course = cruising(*power(0.3))
    centre, _ = course.follow(reading(50.0, 100.0 * 50.0**0.3), 50.0, 10.0, 0.2)
    grown = []
    for _ in range(8):
        new, _ = course.follow(reading(50.0, 100.0 * 50.0**0.3), centre, 0.0, 0.0)
        grown.append(new / centre)
    assert grown == sorted(grown)
    assert grown[0] < 1.01
    assert grown[-1] == 1.25


def test_a_ramp_that_has_to_wait_begins_anew_and_a_cruise_does_not():
    course = Course(0.1)
    course.follow(reading(8.0, 100.0), 8.0, 0.0, 0.0)
    course.wait()
    assert not course.history.points
    cruise = cruising(*power(0.3))
    cruise.wait()
    assert cruise.history.points


def test_streams_that_stand_still_are_clear():
    course = Course(0.1)
    assert course.is_clear(Reading(16.0, 100.0, 8.0, 4.0, 1.0))
    assert not course.is_clear(Reading(16.0, 100.0, 8.0, 3.0, 1.0))


def test_a_server_that_preempts_is_given_a_little_less_without_any_queue():
    centre, reason = Course(0.1).follow(reading(100.0, 1000.0), 100.0, 0.0, 1.0)
    assert (centre, reason) == (96.0, "queue")


def test_after_a_queue_it_feels_its_way_up():
    course = Course(0.1)
    centre, _ = course.follow(reading(100.0, 1000.0), 100.0, 40.0, 0.4)
    course.ramping = True
    assert course.follow(reading(64.0, 1000.0), centre, 0.0, 0.0)[0] == pytest.approx(centre)


def cruising(*points: tuple[float, float]) -> Course:
    course = Course(0.1, ramping=False)
    for in_flight, goodput in points:
        course.history.add(Point(in_flight, goodput))
    return course


def power(e: float) -> list[tuple[float, float]]:
    return [(n, 100.0 * n**e) for n in (45.0, 55.0, 46.0, 54.0)]


@pytest.mark.parametrize(
    ("e", "factor", "reason"),
    [
        (0.95, 1.5, "gain"),
        (0.3, 1.25, "gain"),
        (0.13, math.sqrt(0.13 / 0.87 * 9.0), "gain"),
        (0.08, 1.0, "flat"),
        (0.0, 0.93, "flat"),
        (-0.4, 0.9, "flat"),
    ],
)
def test_the_elasticity_decides_where_it_cruises(e, factor, reason):
    course = cruising(*power(e))
    assert course.follow(reading(50.0, 100.0 * 50.0**e), 50.0, 0.0, 0.0) == (pytest.approx(50.0 * factor), reason)
    assert course.elasticity == pytest.approx(e)


def test_it_tries_a_little_more_while_it_knows_nothing():
    assert cruising().follow(reading(50.0, 1000.0), 50.0, 0.0, 0.0) == (54.0, "gain")


def test_an_elasticity_that_is_not_sure_moves_nothing():
    course = cruising((45.0, 900.0), (55.0, 1100.0), (46.0, 1100.0), (54.0, 900.0))
    assert course.follow(reading(50.0, 1000.0), 50.0, 0.0, 0.0) == (50.0, "flat")


def test_half_the_goodput_twice_is_another_server_and_once_is_not():
    course = cruising(*power(0.1))
    expected = 100.0 * 50.0**0.1
    assert course.follow(reading(50.0, expected / 2), 50.0, 0.0, 0.0)[1] != "shift"
    again = cruising(*power(0.1))
    again.follow(reading(50.0, expected / 2), 50.0, 0.0, 0.0)
    centre, reason = again.follow(reading(50.0, expected / 2.5), 50.0, 0.0, 0.0)
    assert (centre, reason) == (50.0, "shift")
    assert again.ramping
    assert len(again.history.points) == 1


def test_twice_the_goodput_is_another_server_to_climb_on():
    course = cruising(*power(0.1))
    expected = 100.0 * 50.0**0.1
    course.follow(reading(50.0, expected * 2), 50.0, 0.0, 0.0)
    assert course.follow(reading(50.0, expected * 3), 50.0, 0.0, 0.0) == (50.0, "shift")
    assert course.follow(reading(50.0, expected * 3), 50.0, 0.0, 0.0) == (75.0, "ramp")


def test_another_server_with_a_queue_is_given_less():
    course = cruising(*power(0.1))
    expected = 100.0 * 50.0**0.1
    course.follow(reading(50.0, expected / 2), 50.0, 0.0, 0.0)
    assert course.follow(reading(50.0, expected / 2), 50.0, 20.0, 0.4) == (pytest.approx(30.0 * 1.03 + 1.0), "queue")
    assert not course.ramping


def test_another_server_has_no_edge_yet():
    course = cruising(*power(0.1))
    expected = 100.0 * 50.0**0.1
    course.follow(reading(50.0, expected / 2), 50.0, 20.0, 0.4)
    course.follow(reading(50.0, expected / 2), 50.0, 0.0, 0.0)
    assert course.follow(reading(50.0, expected / 2), 50.0, 0.0, 0.0) == (75.0, "ramp")


def test_where_each_more_brings_as_much_again_the_ramp_takes_over():
    course = cruising(*power(0.9))
    course.follow(reading(50.0, 100.0 * 50.0**0.9), 50.0, 0.0, 0.0)
    assert course.ramping


# --- what is served, and the room for it


def room(*, streamed: bool = True, tokens: float = 100.0, ended: int = 9) -> Room:
    made = Room()
    made.on_flow(attrs.evolve(FLOW, output_tokens=1000.0 if streamed else 0.0, streamed=float(streamed)))
    for _ in range(ended):
        made.on_done(attrs.evolve(done(streamed=streamed, tokens=tokens), prompt_tokens=50.0, cached_tokens=25.0))
    return made


def test_room_is_for_replies_that_have_grown():
    assert room().requests(10_000, math.inf) == pytest.approx(10_000 / (25 + 0.75 * 100))
    assert room().requests(10_000, held_now=5.0) == pytest.approx(10_000 / (5 + 0.75 * 100))


def test_as_long_as_no_reply_has_ended_all_that_came_may_be_one():
    assert room(ended=0).requests(10_000, math.inf) == pytest.approx(10_000 / 750)


def test_of_replies_in_one_piece_the_time_so_far_tells_the_length():
    assert room(streamed=False).requests(10_000, math.inf) == pytest.approx(10_000 / (25 + 0.75 * 32 * 50 / 10))


def test_of_what_nothing_is_known_there_is_room_without_end():
    assert Room().requests(10_000, math.inf) == math.inf


def test_what_cannot_be_takes_no_room():
    made = Room()
    made.on_done(done(tokens=math.nan))
    made.on_done(done(tokens=-5.0))
    made.on_done(done(duration_s=0.0))
    assert made.requests(10_000, math.inf) == math.inf


def test_room_follows_work_that_changes():
    made = room(tokens=1e4)
    for _ in range(30):
        made.on_flow(attrs.evolve(FLOW, output_tokens=100.0))
        for _ in range(10):
            made.on_done(done(tokens=10.0))
    assert made.requests(10_000, math.inf) == pytest.approx(10_000 / 7.5, rel=0.2)


def test_a_server_tells_the_room_unless_it_shows_another():
    word = ServerWord()
    assert word.room(room(), settled=False) == math.inf
    for load in (ServerLoad(kv_usage=0.3), ServerLoad(kv_usage=0.3, kv_tokens=-1), ServerLoad(kv_tokens=10_000)):
        word.on_load(load, 0.0)
        assert word.room(room(), settled=False) == math.inf
    word.on_load(ServerLoad(kv_usage=0.3, kv_tokens=10_000, running=600), 0.0)
    assert word.room(room(), settled=False) == pytest.approx(10_000 / (5 + 75))
    assert word.room(room(), settled=True) == math.inf
    word.on_load(ServerLoad(kv_usage=0.6, kv_tokens=10_000), 0.0)
    assert word.room(room(), settled=True) == pytest.approx(100.0)


def test_a_server_is_known_when_an_eighth_of_what_is_in_flight_has_been_served():
    served = Served()
    assert not served.is_too_few(23.0)
    assert served.is_too_few(24.0)
    for _ in range(3):
        served.on_done(done())
    assert not served.is_too_few(24.0)
    assert served.is_too_few(25.0)


def test_a_first_token_that_queued_behind_others_tells_nothing_of_an_empty_server():
    served = Served()
    served.on_done(attrs.evolve(done(), first_token_s=1.5, in_flight=8))
    assert served.first_token_s == 0.0
    served.on_done(attrs.evolve(done(), first_token_s=0.5, in_flight=4))
    assert served.first_token_s == 0.5


# --- the brakes


def refused(admitted_at: float, in_flight: int = 100) -> Ended:
    return Ended(Ending.RATE_LIMITED, admitted_at, in_flight, 0.01, retry_after_s=89.0)


def test_a_burst_of_refusals_is_one_cut():
    refusals = Refusals()
    assert refusals.on_refused(refused(10.0), 120.0, 10.0) == pytest.approx(85.0)
    assert refusals.on_refused(refused(10.0), 85.0, 11.0) is None
    assert refusals.on_refused(refused(9.0), 85.0, 30.0) is None
    assert refusals.on_refused(refused(30.0, 50), 85.0, 30.0) == pytest.approx(42.5)


def test_a_ceiling_rises_slowly_and_is_forgotten_with_the_server():
    refusals = Refusals()
    ceiling = refusals.ceiling
    assert ceiling.highest(0.0) == math.inf
    refusals.on_refused(refused(0.0), 100.0, 0.0)
    assert ceiling.highest(119.0) == pytest.approx(97.0)
    assert ceiling.highest(120.0) == pytest.approx(106.7)
    assert ceiling.highest(130.0) == pytest.approx(106.7)
    assert ceiling.highest(240.0) == pytest.approx(1.2 * 106.7)
    ceiling.put(1.0, 240.0)
    assert ceiling.highest(360.0) == pytest.approx(1.5 * 0.97)
    ceiling.forget()
    assert ceiling.highest(1e9) == math.inf


def ended(ending: Ending, admitted_at: float) -> Ended:
    return Ended(ending, admitted_at, 8, 1.0)


def test_timeouts_cut_when_they_are_many_among_what_was_admitted_since():
    timeouts = Timeouts()
    timeouts.on_cut(100.0, 60.0)
    for _ in range(10):
        assert not timeouts.on_ended(ended(Ending.TIMEOUT, 99.0), 200.0)
    for _ in range(30):
        assert not timeouts.on_ended(ended(Ending.OK, 101.0), 200.0)
    told = [timeouts.on_ended(ended(Ending.TIMEOUT, 101.0), 200.0) for _ in range(4)]
    assert told == [False, False, False, True]


def test_timeouts_rest_for_half_a_residence_after_a_cut():
    timeouts = Timeouts()
    timeouts.on_cut(100.0, 60.0)
    assert not any(timeouts.on_ended(ended(Ending.TIMEOUT, 101.0), 129.0) for _ in range(9))
    assert timeouts.on_ended(ended(Ending.TIMEOUT, 101.0), 130.0)


def test_a_server_that_says_nothing_holds_nothing():
    word = ServerWord()
    assert (word.holds(1e9), word.highest(), word.waiting()) == ("", math.inf, 0.0)
    word.on_load(ServerLoad(), 0.0)
    assert (word.holds(15.0), word.highest(), word.waiting()) == ("", math.inf, 0.0)


def test_a_full_cache_and_a_silent_server_hold():
    word = ServerWord()
    word.on_load(ServerLoad(kv_usage=0.93, waiting=7, slots=4), 0.0)
    assert (word.holds(15.0), word.highest(), word.waiting()) == ("kv", 6, 7.0)
    assert word.holds(15.1) == "stale"


def test_no_slots_at_all_are_no_bound():
    word = ServerWord()
    word.on_load(ServerLoad(slots=0), 0.0)
    assert word.highest() == math.inf


def test_preemptions_are_counted_once_and_a_restart_is_none():
    word = ServerWord()
    for preemptions in (None, 500, 510, 4, 8):
        word.on_load(ServerLoad(preemptions=preemptions), 0.0)
    assert word.preempted == 14
    assert word.take_thrashing(done=100)
    assert not word.take_thrashing(done=100)
    word.on_load(ServerLoad(preemptions=10), 0.0)
    assert not word.take_thrashing(done=200)
