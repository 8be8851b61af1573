"""Stories of servers, each of a report of a limit that collapsed, froze or ran away, told to an admission policy.

The server of a story takes a fixed time for a reply and gives more tokens per second the more requests it has, so that
more always pays. It is told by its figures; no request exists.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from scavenge.signals import Ended, Ending, Flow, WarmStart
from scavenge.testing.policy_histories import Driven, MakePolicy
from scavenge.types import CapChanged

STEP_S = 0.5
REPLY_S = 4.0
"""How long a reply takes, whoever else is served."""
TOKENS = 100.0
HOUR_S = 3600.0
NO_WORK = (Ending.CACHED, Ending.CANCELLED, Ending.SERVER_ERROR, Ending.CLIENT_ERROR, Ending.DOWN)


@attrs.define
class Endpoint:
    """The server of a story, with the policy that bounds what is in flight there."""

    driven: Driven
    ending: Ending = Ending.OK
    """How its requests end."""
    in_flight: Callable[[int], int] = lambda limit: limit
    """How many are in flight under a limit."""
    _flow_at: float = attrs.field(default=0.0, init=False)
    _over: float = attrs.field(default=0.0, init=False)
    """Replies, and parts of one, that are due."""

    @classmethod
    def begun(cls, make: MakePolicy, most: int, level: int, ending: Ending = Ending.OK) -> Endpoint:
        """An endpoint whose policy begins at a level, if it can be told one."""
        endpoint = cls(Driven(make(), most), ending)
        endpoint.driven.tell(CapChanged(None))
        endpoint.driven.tell(WarmStart(level))
        return endpoint

    @property
    def limit(self) -> int:
        """What the policy allows now."""
        return self.driven.policy.limit(self.driven.now)

    def serve(self, seconds: float, until: Callable[[int], bool] = lambda limit: False) -> bool:
        """Go on for so long, or until a limit that fulfils *until*; whether there was one."""
        ends_at = self.driven.now + seconds
        while self.driven.now < ends_at:
            if until(self.limit):
                return True
            self.driven.now += STEP_S
            in_flight = self.in_flight(self.limit)
            self._over += in_flight * STEP_S / REPLY_S
            while self._over >= 1:
                self._over -= 1
                self.end(self.ending, REPLY_S, in_flight)
            self._flow(in_flight)
        return until(self.limit)

    def end(self, ending: Ending, admitted_s: float, in_flight: int, retry_after_s: float | None = None) -> int:
        """A request that was let in so long ago ends; the limit then."""
        tokens = TOKENS if ending is Ending.OK else None
        admitted_at = self.driven.now - admitted_s
        ended = Ended(ending, admitted_at, in_flight, admitted_s, 0.25, True, TOKENS, tokens, None, retry_after_s)
        return self.driven.tell(ended)

    def _flow(self, in_flight: int) -> None:
        wake_at = self.driven.policy.next_wake_at(self.driven.now)
        if wake_at is None or wake_at > self.driven.now:
            return
        span_s, self._flow_at = self.driven.now - self._flow_at, self.driven.now
        served = float(in_flight) if self.ending is Ending.OK else 0.0
        tokens = served * TOKENS / REPLY_S * span_s
        self.driven.tell(Flow(span_s, float(in_flight), in_flight - served, 0.0, tokens, tokens, 1.0, in_flight))


@attrs.frozen
class Story:
    """One story. ``moves``: it is about a policy that adapts, and one that does not cannot do what it asks for."""

    play: Callable[[MakePolicy, int], None]
    moves: bool = False


def an_endpoint_with_little_to_do(make: MakePolicy, most: int) -> None:
    """A limit that is not reached may not grow (Netflix' concurrency-limits: "application limited")."""
    endpoint = Endpoint.begun(make, most, min(40, most))
    begun = endpoint.limit
    endpoint.in_flight = lambda limit: max(1, begun // 4)
    grown = begun >= 4 and endpoint.serve(HOUR_S / 2, lambda limit: limit > begun)
    assert not grown, f"its limit grew from {begun} to {endpoint.limit} with {begun // 4} in flight"


def replies_that_are_no_work(make: MakePolicy, most: int) -> None:
    """What is cached, cancelled, refused as wrong or lost says nothing for a higher limit (prime-rl, Inspect AI)."""
    for ending in (*NO_WORK, Ending.TIMEOUT, Ending.RATE_LIMITED):
        endpoint = Endpoint.begun(make, most, min(40, most), ending)
        begun = endpoint.limit
        grown = endpoint.serve(HOUR_S / 6, lambda limit, begun=begun: limit > begun)  # type: ignore[misc]  # bound now
        assert not grown, f"its limit grew from {begun} to {endpoint.limit} with nothing but {ending.value}"


def noise(make: MakePolicy, most: int) -> None:
    """Errors that are not of congestion cost no more than themselves: no cut follows them."""
    for ending in NO_WORK:
        endpoint = Endpoint.begun(make, most, min(40, most))
        endpoint.in_flight = lambda limit: min(limit, 40)
        for _ in range(50):
            endpoint.serve(REPLY_S)
            before = endpoint.limit
            after = endpoint.end(ending, 1.0, before)
            assert after == before, f"its limit went from {before} to {after} for one {ending.value}"


def failures_from_before_the_cut(make: MakePolicy, most: int) -> None:
    """Requests let in before a cut cut no more when they fail after it (prime-rl, which went from 1024 to 8)."""
    for ending in (Ending.RATE_LIMITED, Ending.TIMEOUT):
        endpoint = Endpoint.begun(make, most, min(200, most))
        endpoint.serve(30.0)
        limit, falls, age_s = endpoint.limit, 0, REPLY_S
        for _ in range(300):
            before, limit = limit, endpoint.end(ending, age_s, 200)
            falls += limit < before
            endpoint.driven.now += 2.0
            age_s += 2.0
        assert falls <= 1, f"its limit fell {falls} times for what was let in before the first fall ({ending.value})"


def a_refusal_with_a_long_retry_after(make: MakePolicy, most: int) -> None:
    """One burst of refusals is no end: the limit grows again (inspect_ai 5137, where it stayed for the whole run)."""
    endpoint = Endpoint.begun(make, most, min(40, most))
    endpoint.serve(30.0)
    in_flight = endpoint.limit
    for _ in range(in_flight):
        endpoint.end(Ending.RATE_LIMITED, 1.0, in_flight, retry_after_s=89.0)
    cut = endpoint.limit
    assert cut < in_flight or in_flight == 1, f"its limit stayed at {cut} when all in flight were refused"
    assert endpoint.serve(HOUR_S, lambda limit: limit > cut), f"its limit stayed at {cut} for an hour after one cut"


def a_limit_of_one(make: MakePolicy, most: int) -> None:
    """A limit of 1 is reached by one request, and grows when that pays (prime-rl, where caps below 10 never bound)."""
    endpoint = Endpoint.begun(make, most, 1)
    assert endpoint.serve(HOUR_S, lambda limit: limit > 1) or most == 1, "its limit stays at 1 although more would pay"


STORIES = (
    Story(an_endpoint_with_little_to_do),
    Story(replies_that_are_no_work),
    Story(noise),
    Story(failures_from_before_the_cut),
    Story(a_refusal_with_a_long_retry_after, moves=True),
    Story(a_limit_of_one, moves=True),
)
