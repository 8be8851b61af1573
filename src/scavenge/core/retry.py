"""What becomes of one request after each attempt: done, sent again, or given up. Pure; takes no lease and never waits.

The table of outcomes, one line each: ``ok`` ends it; ``rejected`` ends it; ``lost`` and ``busy`` cost nothing, but a
request that was lost more than ``max_lost`` times on endpoints that were neither removed nor draining is poison;
``failed`` and ``timeout`` use up ``max_retries`` and back off; ``misrouted`` goes elsewhere while it can.
A loss through this machine's own fault backs off too, since no endpoint is taken out of the way by it.
"""

from __future__ import annotations

from random import Random
from typing import TypeAlias, assert_never

import attrs

from scavenge.core.backoff import full_jitter_s
from scavenge.types import Busy, Failed, Lost, LostCause, Misrouted, Ok, Outcome, Rejected, Reply, TimedOut, Url

FIRST_BACKOFF_S = 0.5
BACKOFF_MAX_S = 30.0
BLAMELESS = frozenset({LostCause.LOCAL, LostCause.LATE, LostCause.NAMES})
"""Losses that are free of any limit: nothing is known against the endpoint or the request."""


@attrs.frozen
class RetrySettings:
    """How often one request is tried again."""

    max_retries: int = 3
    max_lost: int = 20
    """0: no limit."""


@attrs.frozen
class Done:
    """The request was answered."""

    reply: Reply


@attrs.frozen
class Again:
    """Send the request again after ``wait_s``, avoiding ``avoid`` while another endpoint exists."""

    avoid: frozenset[Url]
    wait_s: float = 0.0


@attrs.frozen
class GiveUp:
    """The request cannot be answered; ``poison`` when it was lost too often."""

    outcome: Outcome
    poison: bool = False


NextStep: TypeAlias = "Done | Again | GiveUp"


@attrs.define
class RequestHistory:
    """The attempts of one request so far."""

    settings: RetrySettings
    random: Random = attrs.field(repr=False)
    failures: int = 0
    losses: int = 0
    local_losses: int = 0
    tried: frozenset[Url] = frozenset()

    def after(self, outcome: Outcome, url: Url, *, leaving: bool, elsewhere: bool) -> NextStep:
        """Decide what follows an attempt on *url*.

        *leaving*: the endpoint was removed or draining. *elsewhere*: some endpoint may serve the request now or later.
        """
        match outcome:
            case Ok():
                return Done(outcome.reply)
            case Rejected():
                return GiveUp(outcome)
            case Lost():
                return self._after_loss(outcome, url, leaving)
            case Busy():
                return self._again(url)
            case Misrouted():
                return self._again(url) if elsewhere else GiveUp(outcome)
            case Failed() | TimedOut():
                return self._after_failure(outcome, url)
            case _:
                assert_never(outcome)

    def _after_loss(self, outcome: Lost, url: Url, leaving: bool) -> NextStep:
        if outcome.cause in BLAMELESS:
            self.local_losses += 1
            return Again(self.tried, self._backoff_s(self.local_losses))
        self.losses += not leaving
        if self.settings.max_lost and self.losses > self.settings.max_lost:
            return GiveUp(outcome, poison=True)
        return self._again(url)

    def _after_failure(self, outcome: Failed | TimedOut, url: Url) -> NextStep:
        self.failures += 1
        if self.failures > self.settings.max_retries:
            return GiveUp(outcome)
        return self._again(url, self._backoff_s(self.failures))

    def _again(self, url: Url, wait_s: float = 0.0) -> Again:
        self.tried |= {url}
        return Again(self.tried, wait_s)

    def _backoff_s(self, times: int) -> float:
        return full_jitter_s(times, FIRST_BACKOFF_S, BACKOFF_MAX_S, self.random)
