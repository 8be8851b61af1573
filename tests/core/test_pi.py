"""The policy that keeps a small queue in the server."""

from __future__ import annotations

import attrs
import pytest

from scavenge.core.limits.pi import Pi, PiSettings
from scavenge.signals import Ended, Ending, Flow, ServerLoad
from scavenge.types import CapChanged


@attrs.define
class Fed:
    """A policy that begins at 100 and is told of the flow each time it asks."""

    policy: Pi = attrs.field(factory=lambda: Pi(PiSettings(start=100)))
    now: float = 1000.0

    def __attrs_post_init__(self) -> None:
        self.policy.observe(CapChanged(None), self.now)

    @property
    def limit(self) -> int:
        return self.policy.limit(self.now)

    def flow(self, queue: float = 0.0, *, in_flight: float | None = None, tokens: float = 500.0, **more: float) -> int:
        self.now = self.policy.next_wake_at(self.now)
        in_flight = self.limit if in_flight is None else in_flight
        now = int(more.pop("in_flight_now", in_flight))
        self.policy.observe(Flow(5.0, in_flight, queue, output_tokens=tokens, in_flight_now=now, **more), self.now)
        return self.limit

    def end(self, ending: Ending = Ending.OK, *, age_s: float = 0.0, in_flight: int = 100, first: float | None = None):
        self.policy.observe(Ended(ending, self.now - age_s, in_flight, 1.0, first), self.now)
        return self.limit


def test_it_grows_by_half_until_the_first_queue_is_seen():
    fed = Fed()
    assert [fed.flow(), fed.flow()] == [150, 225]
    assert fed.policy.view(0.0).reason == "ramp"
    assert not fed.policy.view(0.0).settled
    assert fed.flow(queue=40.0) < 225
    view = fed.policy.view(0.0)
    assert (view.reason, view.settled, view.queue, view.goodput) == ("queue", True, 40.0, 100.0)


def test_it_settles_where_the_queue_is_the_target_and_does_not_swing_prime_rl_3556():
    fed = Fed()
    levels = [fed.flow(queue=max(0.0, fed.limit - 160.0)) for _ in range(120)]
    assert 160 <= min(levels[-30:]) <= max(levels[-30:]) <= 180
    assert fed.policy.view(0.0).reason in ("gain", "queue")


def test_a_queue_of_a_request_or_two_is_none():
    fed = Fed(Pi(PiSettings(start=4)))
    assert fed.flow(queue=2.0) == 6


def test_streams_that_fell_silent_queue():
    fed = Fed()
    assert fed.flow(stalled=60.0) < 100


def test_the_reading_of_prompts_is_no_queue():
    fed, slow = Fed(), Fed()
    for _ in range(50):
        fed.end(in_flight=8, first=1.0)
        slow.end(in_flight=9, first=1.0)
    assert fed.flow(queue=15.0) == 150
    assert slow.flow(queue=15.0) < 100


def test_the_reading_time_is_that_of_the_first_requests_only():
    fed = Fed()
    for _ in range(64):
        fed.end(in_flight=1, first=0.1)
    for _ in range(1000):
        fed.end(in_flight=1, first=60.0)
    assert fed.flow(queue=60.0) < 100


def test_a_server_that_tells_of_more_is_believed_while_that_is_fresh():
    fed = Fed()
    fed.policy.observe(ServerLoad(waiting=60), fed.now)
    assert fed.flow(queue=1.0) < 100
    again = Fed()
    again.policy.observe(ServerLoad(waiting=60), again.now - 10.1)
    assert again.flow(queue=1.0) == 150
    silent = Fed()
    silent.policy.observe(ServerLoad(), silent.now)
    assert silent.flow(queue=1.0) == 150


def test_without_streams_only_the_server_can_tell():
    fed = Fed()
    fed.end()
    assert [fed.flow(streamed=0.0, tokens=0.0) for _ in range(3)] == [100] * 3
    assert fed.policy.view(0.0).queue is None
    fed.policy.observe(ServerLoad(waiting=0), fed.now)
    fed.end()
    assert [fed.flow(streamed=0.0, tokens=0.0) for _ in range(2)] == [150, 150]


def test_it_does_not_grow_while_the_limit_is_not_in_use_or_nothing_comes():
    fed = Fed()
    assert fed.flow(in_flight=79.0) == 100
    assert fed.flow(tokens=0.0) == 100
    assert fed.flow() == 150


def test_it_waits_while_what_is_above_the_limit_drains_prime_rl_2908():
    fed = Fed()
    fed.flow(queue=60.0)
    cut = fed.limit
    assert [fed.flow(queue=60.0, in_flight=100.0) for _ in range(5)] == [cut] * 5
    assert fed.flow(queue=60.0) < cut


def test_a_refusal_is_remembered_as_a_ceiling():
    fed = Fed()
    assert fed.end(Ending.RATE_LIMITED, in_flight=80) == 68
    assert fed.policy.view(0.0).reason == "429"
    assert fed.end(Ending.RATE_LIMITED, in_flight=80) == 68
    assert [fed.flow() for _ in range(20)][-1] == 77


def test_after_a_refusal_it_grows_by_the_error_and_by_its_change():
    fed = Fed()
    assert fed.end(Ending.RATE_LIMITED, in_flight=80) == 68
    assert [fed.flow(), fed.flow()] == [72, 75]


def test_many_timeouts_cut_and_set_no_ceiling():
    fed = Fed()
    assert [fed.end(Ending.TIMEOUT) for _ in range(9)] == [100, 100, *[85] * 7]
    assert [fed.flow() for _ in range(20)][-1] > 100


def test_a_flow_of_no_time_tells_nothing_and_the_next_one_is_an_interval_away():
    fed = Fed()
    fed.policy.observe(Flow(0.0, 100.0, 100.0), 1001.0)
    assert (fed.limit, fed.policy.next_wake_at(1001.0)) == (100, 1006.0)
    assert Pi(PiSettings()).next_wake_at(3.0) == 3.0


@pytest.mark.parametrize("keys", [{"queue": 0.0}, {"queue": 1.5}, {"interval": 0.0}, {"interval": float("inf")}])
def test_its_settings_are_in_their_bounds(keys):
    with pytest.raises(ValueError, match=r"queue|interval"):
        PiSettings(**keys)
