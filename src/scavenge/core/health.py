"""One endpoint's health: what its attempts and probes say about giving it work. Pure; knows no slots and sends nothing.

States and what moves between them (``[health]`` of the evaluation file sets the numbers):

- ``probing``: listed, has not answered yet. An answered probe makes it live (``probation`` when the server has no list
  of models to look into).
- ``live``: takes work.
- ``paused``: said it is busy; takes work again when its ``Retry-After`` or the back-off has passed. Or it kept
  failing, and nobody else can tell whether that is its fault: goes on, on probation, after a short while.
- ``ejected``: ``eject_after`` attempts in a row were lost, or it kept failing and others succeeded since it last did.
  It is probed at once (for the sake of the leases on it); an answer after the back-off lets it back in on probation.
- ``probation``: one request at a time until one succeeds, which makes it live; a loss ejects it again, for longer.
- ``misconfigured``: serves something else, or refuses our key. Ends with new settings, or, where ``curable``, with an
  answered probe.

Invariants: an outcome of a request that was this machine's fault, or the request's own, never takes work away; a burst
of losses or refusals from one moment counts as one; every state but ``live``, ``probation`` and an incurable
``misconfigured`` has an instant at which something happens next.
"""

from __future__ import annotations

import enum
from random import Random
from typing import assert_never

import attrs

from scavenge.types import Busy, Failed, Healthy, Lost, LostCause, Misrouted, Ok, Outcome, Rejected, TimedOut

FAILING_AFTER = 5
"""Failures in a row after which an endpoint is ejected or paused: a server that fails fast must not draw the work."""

FAILING_PAUSE_MAX_S = 2.0
"""The longest pause for failures alone: where all fail, the user should hear of it soon."""

FIRST_BACKOFF_S = 1.0


@attrs.frozen
class HealthSettings:
    """``[health]`` of an evaluation file. Times are in seconds."""

    probe: bool = True
    path: str = attrs.field(default="/models", validator=attrs.validators.matches_re("/.*"))
    interval: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    eject_after: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    backoff_max: float = attrs.field(default=60.0, validator=attrs.validators.gt(0))


class State(enum.Enum):
    """Whether an endpoint may be given work."""

    PROBING = "probing"
    LIVE = "live"
    PAUSED = "paused"
    EJECTED = "ejected"
    PROBATION = "probation"
    MISCONFIGURED = "misconfigured"


@attrs.define
class EndpointHealth:
    """The health of one endpoint; the caller says what happened and when, and asks what follows."""

    settings: HealthSettings
    random: Random = attrs.field(repr=False)
    state: State = State.PROBING
    why: str = "has not answered yet"
    curable: bool = True
    """Whether an answered probe ends ``misconfigured``."""
    paused_until: float = 0.0
    after_pause: State = State.LIVE
    next_probe_at: float | None = 0.0
    """When the next probe is due; ``None`` while none is wanted."""
    lost_in_row: int = 0
    failed_in_row: int = 0
    setbacks: int = 0
    """Ejections, pauses and unanswered probes since the endpoint last did its work: the exponent of the back-off."""
    served_at: float = float("-inf")
    """When it last completed an attempt."""
    ejected_at: float = float("-inf")
    removed: bool = False
    """No longer listed, while leases on it still run: only whether it answers matters."""
    let_in_at: float = 0.0
    """When an ejected endpoint may be let back in at the earliest: one that answers probes and fails may not spin."""

    @classmethod
    def listed(cls, settings: HealthSettings, random: Random, now: float) -> EndpointHealth:
        """The health of an endpoint that has just been listed, or whose settings have just changed."""
        if settings.probe:
            return cls(settings, random, next_probe_at=now)
        return cls(settings, random, state=State.LIVE, why="probes are off", next_probe_at=None)

    def room(self) -> int | None:
        """How many requests its health lets it have in flight; ``None``: as many as its gate says."""
        match self.state:
            case State.LIVE:
                return None
            case State.PROBATION:
                return 1
            case _:
                return 0

    def next_wake_at(self) -> float | None:
        """When :meth:`wake` has something to do."""
        if self.state is State.PAUSED:
            return self.paused_until
        if self.state is State.EJECTED and not self.settings.probe:
            return self.next_probe_at
        return None

    def wake(self, now: float) -> None:
        """Let time pass: a pause ends; without probes, an ejection becomes a probation."""
        due = self.next_wake_at()
        if due is None or now < due:
            return
        if self.state is State.PAUSED:
            self._enter(self.after_pause, "the pause has passed")
            self.next_probe_at = now + self.settings.interval if self.settings.probe else None
        else:
            self._enter(State.PROBATION, "the back-off has passed")
            self.next_probe_at = None

    # --- attempts

    def on_outcome(self, outcome: Outcome, now: float, others_served_at: float = float("-inf")) -> None:
        """Hear how an attempt ended; *others_served_at* is when another endpoint of the pool last served one."""
        match outcome:
            case Ok() | Rejected():
                self._on_served(now)
            case Lost(cause=LostCause.SERVER):
                self._on_lost(outcome.message, now)
            case Lost():
                pass
            case Busy():
                self._on_busy(outcome, now)
            case Failed() | TimedOut():
                self._on_failed(outcome.message, now, others_served_at)
            case Misrouted():
                self._on_misrouted(outcome, now)
            case _:
                assert_never(outcome)

    def _on_served(self, now: float) -> None:
        self.served_at = now
        self.lost_in_row = self.failed_in_row = 0
        if self.state is State.PROBATION:
            self._enter(State.LIVE, "served a request")
            self.next_probe_at = now + self.settings.interval if self.settings.probe else None
        if self.state is State.LIVE:
            self.setbacks = 0

    def _on_lost(self, message: str, now: float) -> None:
        self.lost_in_row += 1
        takes_work = self.state in (State.LIVE, State.PROBATION, State.PAUSED)
        if takes_work and (self.lost_in_row >= self.settings.eject_after or self.state is State.PROBATION):
            self._eject(message, now)

    def _on_busy(self, outcome: Busy, now: float) -> None:
        self.lost_in_row = 0
        asked_s = outcome.retry_after_s
        if self.state is State.PAUSED:
            if asked_s is not None:
                self.paused_until = max(self.paused_until, now + asked_s)
        elif self.state in (State.LIVE, State.PROBATION):
            self._pause(outcome.message, now + (self._backoff_s() if asked_s is None else asked_s), State.LIVE)

    def _pause(self, why: str, until: float, after: State) -> None:
        self._enter(State.PAUSED, why)
        self.paused_until = until
        self.after_pause = after

    def _on_failed(self, message: str, now: float, others_served_at: float) -> None:
        self.lost_in_row = 0
        self.failed_in_row += 1
        keeps_failing = self.failed_in_row >= FAILING_AFTER or self.state is State.PROBATION
        if not keeps_failing or self.state not in (State.LIVE, State.PROBATION):
            return
        if others_served_at > self.served_at:
            self._eject(message, now)
        else:
            self._pause(message, now + min(self._backoff_s(), FAILING_PAUSE_MAX_S), State.PROBATION)

    def _on_misrouted(self, outcome: Misrouted, now: float) -> None:
        if self.state is State.MISCONFIGURED and not self.curable:
            return
        known = self.state is State.MISCONFIGURED and self.curable == outcome.curable
        self.curable = outcome.curable
        if known:
            return
        self._enter(State.MISCONFIGURED, outcome.message)
        self.next_probe_at = now + self._backoff_s() if outcome.curable and self.settings.probe else None

    def _eject(self, message: str, now: float) -> None:
        self._enter(State.EJECTED, message)
        self.ejected_at = now
        self.let_in_at = now + self._backoff_s()
        self.next_probe_at = now if self.settings.probe else self.let_in_at

    # --- probes

    def probe_due(self, now: float) -> bool:
        """Whether a probe should be sent now."""
        return self.settings.probe and self.next_probe_at is not None and self.next_probe_at <= now

    def on_removed(self, now: float) -> None:
        """The endpoint is no longer listed: find out at once whether what runs there can still end well."""
        self.removed = True
        self.next_probe_at = now if self.settings.probe else None

    def on_probe_sent(self) -> None:
        """A probe is under way: none is due until it has ended."""
        self.next_probe_at = None

    def on_probe(self, result: Healthy | Outcome, now: float) -> bool:
        """Hear how a probe ended; true when the endpoint is lost, so that the leases on it have to be revoked."""
        match result:
            case Healthy() | Ok():
                self._on_answered(isinstance(result, Ok) or result.listed, now)
            case Misrouted():
                self._on_misrouted(result, now)
                if self.curable and self.next_probe_at is None:
                    self.next_probe_at = now + self._backoff_s()
            case Lost(cause=LostCause.SERVER) | TimedOut():
                return self._on_silence(result.message, now)
            case _:
                self._on_unready(result.message, now)
        return False

    def _on_answered(self, listed: bool, now: float) -> None:
        match self.state:
            case State.EJECTED if now < self.let_in_at:
                self.next_probe_at = self.let_in_at
                return
            case State.PROBING if listed:
                self._enter(State.LIVE, "answered its probe")
            case State.PROBING | State.EJECTED | State.MISCONFIGURED:
                self._enter(State.PROBATION, "answered its probe")
            case _:
                pass
        self.next_probe_at = now + self.settings.interval

    def _on_silence(self, message: str, now: float) -> bool:
        if self.removed:
            self.why = message
            self.next_probe_at = now + self._backoff_s()
            return True
        if self.state in (State.LIVE, State.PROBATION, State.PAUSED):
            self._eject(f"no answer to a probe: {message}", now)
            return False
        lost = self.state is State.EJECTED and self.served_at < self.ejected_at
        self.why = message
        self.next_probe_at = now + self._backoff_s()
        return lost

    def _on_unready(self, message: str | None, now: float) -> None:
        if self.state in (State.PROBING, State.EJECTED, State.MISCONFIGURED):
            self.why = message or self.why
            self.next_probe_at = now + self._backoff_s()
        else:
            self.next_probe_at = now + self.settings.interval

    # --- helpers

    def _enter(self, state: State, why: str) -> None:
        self.state = state
        self.why = why
        self.lost_in_row = self.failed_in_row = 0

    def _backoff_s(self) -> float:
        """Exponential back-off, jittered between a half and the whole ("equal jitter", AWS Architecture Blog, 2015)."""
        whole_s = min(self.settings.backoff_max, FIRST_BACKOFF_S * 2.0 ** min(self.setbacks, 30))
        self.setbacks += 1
        return whole_s * (0.5 + self.random.random() / 2)
