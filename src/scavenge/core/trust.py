"""How much an endpoint's record speaks for it: whether it keeps failing, and how long it stays away for it. Pure.

Knows no states and no probes: health says what counts. Some prompts fail everywhere, and failing them is no endpoint's
fault: only one that fails clearly more than the best of the others is doubted. A server that fails fast gets through
more requests than one that serves, so a success now and then must not wipe its record clean. Doubt is therefore a
cumulative sum (CUSUM; Page, Biometrika 41, 1954) of what goes beyond a third above the best's share of failures. Where
the best fails nothing, a failure adds two and a request that was served takes one away: to the limit in five requests
where all fail, in about twenty where half do. While nobody else is known, doubt is noted as if the best failed nothing,
so that it is there when somebody is, but it counts only against an endpoint that fails nearly all. Doubt is kept across
ejections, so that one more failure is enough for the next; setbacks are forgiven one by one.

Invariants: ``doubt`` is in [0, :data:`MOST_DOUBT`]; ``setbacks`` never exceeds what makes the back-off longest, so
that forgiving has an end.
"""

from __future__ import annotations

from random import Random

import attrs

from scavenge.core.backoff import equal_jitter_s

MARGIN = 1 / 3
"""How much more than the best of the others an endpoint may fail."""
MOST_ALLOWED = 0.9
"""The share of failures that is allowed where there is nobody to compare with, and the most there is."""
OUTCOME_WEIGHT = 3.0
"""Makes doubt count in requests: where a third is allowed, a failure adds two and a success takes one away."""
FAILING_DOUBT = 10
"""So much doubt is enough to take an endpoint out of work that fails more than is allowed."""
FAILING_ROW = 5
"""So many failures in a row are too many, whatever others do."""
MOST_DOUBT = 14
"""Doubt goes no further: after seven served in a row, one more failure does not take an endpoint out of work again."""
SOUND_DOUBT = 5
"""Less doubt than this, and fewer setbacks than :data:`SOUND_SETBACKS`, are in the way of nothing."""
SOUND_SETBACKS = 2
FORGIVEN_AFTER = 10
"""Requests served in a row that make good one setback. At 20 % failures that takes 41 requests, at 50 % 2046."""
SHARE_WINDOW = 30
"""Outcomes that make a recent share: the plain mean of the first ones, then weighted exponentially."""
SHARE_KNOWN_AFTER = 5
SHORTAGE_PAUSE_MAX_S = 5.0
"""The longest pause for what this machine lacks: descriptors or names come back at any moment."""
FAILING_PAUSE_MAX_S = 2.0
"""The longest pause for failures alone: where all fail, the user should hear of it soon."""
FIRST_BACKOFF_S = 1.0
SETBACK_STEPS = 2
"""Each setback doubles the back-off twice: 1, 4, 16 ... seconds."""


@attrs.frozen
class Others:
    """What the other endpoints of a pool do, which an endpoint that fails is compared with."""

    served_at: float = float("-inf")
    """When one of them last completed an attempt."""
    best_share: float | None = None
    """The smallest share of failures among those that take work; ``None`` where none is known well enough."""


NOBODY = Others()


@attrs.define
class Trust:
    """The record of one endpoint."""

    doubt: float = 0.0
    best_share: float | None = None
    """The share of failures of the best of the others, as of the last failure; see :class:`Others`."""
    lost_in_row: int = 0
    failed_in_row: int = 0
    served_in_row: int = 0
    setbacks: int = 0
    """How often it was taken out of work for what it did, less what was forgiven: the exponent of the back-off."""
    _outcomes: int = 0
    _failing: float = 0.0

    @property
    def share(self) -> float | None:
        """The recent share of failures; ``None`` before enough is known."""
        return self._failing if self._outcomes >= SHARE_KNOWN_AFTER else None

    @property
    def fails_more(self) -> bool:
        """Whether it has failed more of late than is allowed, however little is known."""
        return self._failing > (MOST_ALLOWED if self.best_share is None else self._expected)

    @property
    def doubted(self) -> bool:
        """Whether it fails clearly more than others do."""
        return self.doubt >= FAILING_DOUBT and self.fails_more

    @property
    def keeps_failing(self) -> bool:
        """Whether it is time to take it out of work, be it for a moment."""
        return self.doubted or self.failed_in_row >= FAILING_ROW

    @property
    def sound(self) -> bool:
        """Whether little speaks against it."""
        return self.doubt < SOUND_DOUBT and self.setbacks < SOUND_SETBACKS

    def on_served(self) -> None:
        """Count a request that was served."""
        self._count(0.0)
        self.doubt = max(0.0, self.doubt - OUTCOME_WEIGHT * self._expected)
        self.lost_in_row = self.failed_in_row = 0
        self.served_in_row += 1
        if self.served_in_row % FORGIVEN_AFTER == 0 and self.setbacks:
            self.setbacks -= 1

    def on_failed(self, best_share: float | None) -> None:
        """Count a request that it answered with a fault of its own; *best_share*: see :class:`Others`."""
        self._count(1.0)
        self.best_share = best_share
        self.doubt = min(MOST_DOUBT, self.doubt + OUTCOME_WEIGHT * (1.0 - self._expected))
        self.failed_in_row += 1
        self.lost_in_row = self.served_in_row = 0

    def on_lost(self, best_share: float | None) -> None:
        """Count a request under which it went away."""
        lost_in_row = self.lost_in_row + 1
        self.on_failed(best_share)
        self.lost_in_row = lost_in_row

    @property
    def _expected(self) -> float:
        return min(MOST_ALLOWED, (self.best_share or 0.0) + MARGIN)

    def _count(self, failed: float) -> None:
        self._outcomes = min(SHARE_WINDOW, self._outcomes + 1)
        self._failing += (failed - self._failing) / self._outcomes

    def begin_row(self) -> None:
        """Let what is lost next be the first of its row."""
        self.lost_in_row = 0

    def set_back_s(self, backoff_max_s: float, random: Random) -> float:
        """How long it stays out of work for what it did this time; the next time it is longer."""
        wait_s = equal_jitter_s(SETBACK_STEPS * self.setbacks, FIRST_BACKOFF_S, backoff_max_s, random)
        if FIRST_BACKOFF_S * 2.0 ** (SETBACK_STEPS * self.setbacks) < backoff_max_s:
            self.setbacks += 1
        return wait_s
