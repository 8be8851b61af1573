"""When Consul may be asked next, and what a blocking query waits on. Pure: now is an argument.

Indexes follow what Consul asks of clients: one that goes backwards starts anew, and requests pass a token bucket, for
services that change all the time (https://developer.hashicorp.com/consul/api-docs/features/blocking).
"""

from __future__ import annotations

from random import Random

import attrs

BURST = 2
"""So many requests may follow each other at once."""
SPACING_S = 1.0
"""After a burst, one request in this time."""

BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 30.0
"""Also the longest ``Retry-After`` that is kept, since a source has 60 seconds for an answer."""


@attrs.define
class Pace:
    """A token bucket, and a back-off that doubles with each failure in a row."""

    random: Random
    spacing_s: float = SPACING_S
    backoff_first_s: float = BACKOFF_FIRST_S
    _spent_until: float = float("-inf")
    """When the bucket is full again."""
    _not_before: float = float("-inf")
    _failures: int = 0

    def next_at(self, now: float) -> float:
        """Take the place of the next request, and tell when it may go."""
        at = max(now, self._spent_until - (BURST - 1) * self.spacing_s, self._not_before)
        self._spent_until = max(self._spent_until, at) + self.spacing_s
        return at

    def on_failure(self, now: float, retry_after_s: float) -> None:
        """Note a failure: the next request waits, half of that time by chance."""
        self._failures += 1
        longest_s = min(BACKOFF_MAX_S, self.backoff_first_s * 2.0 ** min(self._failures - 1, 10))
        delay_s = longest_s / 2 + self.random.random() * longest_s / 2
        self._not_before = now + max(delay_s, min(retry_after_s, BACKOFF_MAX_S))

    def on_answer(self) -> None:
        """Note that Consul answered."""
        self._failures = 0


@attrs.define
class Watch:
    """What the next query waits on."""

    index: int = 0
    """0: the next query does not block."""
    _last: int = 0

    def take(self) -> int:
        """The index for a query that is sent now; whatever becomes of it, the one after does not block."""
        index, self.index = self.index, 0
        return index

    def note(self, index: int) -> bool:
        """Note the index of an answer; tell whether it went backwards, after which the next query does not block."""
        back, self._last = index < self._last, index
        self.index = 0 if back else index
        return back
