"""One endpoint's health: what its attempts and probes say about giving it work. Pure; knows no slots and sends nothing.

What the states mean and what moves between them stands at :class:`State`; how a live one opens up in ``core/ramp.py``,
whether it keeps failing in ``core/trust.py``.

Invariants: what was this machine's fault, or the request's own, ejects nobody; losses, failures or refusals of one
moment count once, since they count only against what takes work; something is due at some instant in every state but an
incurable ``misconfigured`` and, without probes, ``live`` and ``probation``.
"""

from __future__ import annotations

import math
from random import Random
from typing import assert_never

import attrs

from scavenge.core.backoff import equal_jitter_s
from scavenge.core.health_settings import SHORTEST_PAUSE_S, UNDECIDED_S, HealthSettings
from scavenge.core.health_state import OPEN, UNANSWERED_WHY, WORKING, State
from scavenge.core.ramp import Ramp
from scavenge.core.trust import FAILING_PAUSE_MAX_S, FIRST_BACKOFF_S, NOBODY, SHORTAGE_PAUSE_MAX_S, Others, Trust
from scavenge.types import Busy, Failed, Healthy, Lost, LostCause, Misrouted, Ok, Outcome, Rejected, TimedOut


@attrs.define
class EndpointHealth:
    """The health of one endpoint; the caller says what happened and when, and asks what follows."""

    settings: HealthSettings
    random: Random = attrs.field(repr=False)
    state: State = State.PROBING
    why: str = UNANSWERED_WHY
    entered_at: float = 0.0
    """When it came into its state."""
    curable: bool = True
    """False once it is misconfigured in a way that only new settings end."""
    paused_until: float = 0.0
    after_pause: State = State.LIVE
    ramp: Ramp = attrs.field(factory=lambda: Ramp.begun(0.0))
    """How far it has opened up since it last became live."""
    trust: Trust = attrs.field(factory=Trust)
    next_probe_at: float | None = None
    """When the next probe is due; ``None`` while none is wanted."""
    unready: int = 0
    """Probes in a row that did not find it ready: the exponent of their back-off."""
    opens_anew: bool = True
    """Whether it begins with a few requests when it becomes live next, rather than go on where it was."""
    pauses: int = 0
    """Pauses since it last served: the exponent of the next one."""
    served_at: float = float("-inf")
    """When it last completed an attempt."""
    sound_at: float = float("-inf")
    """When it last served a request with few failures around it."""
    ejected_at: float = float("-inf")
    removed: bool = False
    """No longer listed, while leases on it still run: only whether it answers matters."""
    let_in_at: float = 0.0
    """When it may be let back in at the earliest: one that answers probes and fails its work may not spin."""

    @classmethod
    def listed(cls, settings: HealthSettings, random: Random, now: float) -> EndpointHealth:
        """The health of an endpoint that has just been listed, or whose settings have just changed."""
        health = cls(settings, random, entered_at=now, next_probe_at=now if settings.probe else None)
        if not settings.probe:
            health._go_live("probes are off", now)
        return health

    def room(self, now: float) -> int | None:
        """How many requests its health lets it have in flight; ``None``: as many as its gate says."""
        match self.state:
            case State.LIVE:
                return self.ramp.room(now)
            case State.PROBATION:
                return 1
            case _:
                return 0

    def next_wake_at(self) -> float | None:
        """When :meth:`wake` has something to do."""
        match self.state:
            case State.PAUSED:
                return self.paused_until
            case State.LIVE:
                return self.ramp.next_wake_at()
            case State.EJECTED | State.MISCONFIGURED if not self.settings.probe and self.curable:
                return self.let_in_at
            case _:
                return None

    def wake(self, now: float) -> None:
        """Let time pass: a pause ends, a live endpoint opens up; without probes, the back-off ends an ejection."""
        due = self.next_wake_at()
        if due is None or now < due:
            return
        match self.state:
            case State.LIVE:
                self.ramp.wake(now)
            case State.PAUSED:
                self._enter(self.after_pause, "the pause has passed", now)
                self.ramp.resume(now)
            case _:
                self._enter(State.PROBATION, "the back-off has passed", now)

    def on_outcome(self, outcome: Outcome, now: float, others: Others = NOBODY, since: float = math.inf) -> None:
        """Hear how an attempt ended that began at *since*; what fails is compared with what *others* of the pool do."""
        match outcome:
            case Ok():
                self._on_served(now, since)
            case Rejected():
                self._on_worked("answered a request", now, since)
            case Lost(cause=LostCause.LATE | LostCause.REVOKED):
                pass
            case Lost(cause=LostCause.LOCAL | LostCause.NAMES):
                self._on_shortage(outcome.message, now)
            case Lost():
                self._on_lost(outcome.message, now, others)
            case Busy():
                self._on_busy(outcome, now)
            case Failed() | TimedOut():
                self._on_failed(outcome.message, now, others)
            case Misrouted():
                if self._misconfigure(outcome, now):
                    self.let_in_at = now + self.trust.set_back_s(self.settings.backoff_max, self.random)
                    self._probe_at(self.let_in_at)
            case _:
                assert_never(outcome)

    def _on_served(self, now: float, since: float) -> None:
        if self.state is State.LIVE or self._on_trial(since):
            self.trust.on_served()
            self.ramp.on_served()
            self.pauses = 0
        if self.trust.sound:
            self.sound_at = now
            self.ramp.relax(now)
        self._on_worked("served a request", now, since)

    def _on_trial(self, since: float) -> bool:
        """Whether a request that was sent at *since* tells about a probation: an older one was sent before it."""
        return self.state is State.PROBATION and since >= self.entered_at

    def _on_worked(self, what: str, now: float, since: float) -> None:
        self.served_at = now
        self.trust.lost_in_row = 0
        if self._on_trial(since):
            self._go_live(what, now)

    def on_reply_coming(self, now: float) -> None:
        """Hear that a reply which it was asked for has been coming for a while."""
        if self.state is State.PROBATION:
            self.pauses = 0
            self._go_live("a reply is coming", now)

    def _on_lost(self, message: str, now: float, others: Others) -> None:
        if self.state not in OPEN:
            return
        self.trust.on_lost(others.best_share)
        self.ramp.on_failed(now, allowed=not self.trust.fails_more)
        if self.state is State.PROBATION or self.trust.doubted or self.trust.lost_in_row >= self.settings.eject_after:
            self._eject(message, now)

    def _on_shortage(self, message: str, now: float) -> None:
        if self.state in WORKING:
            self._pause(self._backoff_s(self.pauses, SHORTAGE_PAUSE_MAX_S), self.state, message, now)

    def _on_busy(self, outcome: Busy, now: float) -> None:
        asked_s = outcome.retry_after_s
        if self.state in WORKING:
            wait_s = self._backoff_s(self.pauses) if asked_s is None else max(asked_s, SHORTEST_PAUSE_S)
            self._pause(wait_s, State.PROBATION if self.pauses else self.state, outcome.message, now)
        elif self.state is State.PAUSED and asked_s is not None:
            self.paused_until = max(self.paused_until, now + asked_s)

    def _on_failed(self, message: str, now: float, others: Others) -> None:
        if self.state not in WORKING:
            return
        self.trust.on_failed(others.best_share)
        self.ramp.on_failed(now, allowed=not self.trust.fails_more)
        if self.state is State.LIVE and not self.trust.keeps_failing:
            return
        why = f"keeps failing: {message}" if self.trust.keeps_failing else f"failed on probation: {message}"
        if self.trust.doubted and others.served_at > self.sound_at:
            self._eject(why, now)
        else:
            self.opens_anew |= self.trust.fails_more
            self._pause(self._backoff_s(self.pauses, FAILING_PAUSE_MAX_S), State.PROBATION, why, now)

    def _pause(self, wait_s: float, after: State, why: str, now: float) -> None:
        self.pauses += 1
        self.paused_until, self.after_pause = now + wait_s, after
        self._enter(State.PAUSED, why, now)

    def _misconfigure(self, outcome: Misrouted, now: float) -> bool:
        """Set it aside; tell whether that is news."""
        if self.state is State.MISCONFIGURED and (outcome.curable or not self.curable):
            return False
        self.curable = outcome.curable
        self._enter(State.MISCONFIGURED, outcome.message, now)
        return True

    def _eject(self, why: str, now: float) -> None:
        self._enter(State.EJECTED, why, now)
        self.ejected_at = now
        self.let_in_at = now + self.trust.set_back_s(self.settings.backoff_max, self.random)
        self._probe_at(now)

    def probe_due(self, now: float) -> bool:
        """Whether a probe should be sent now."""
        return self.next_probe_at is not None and self.next_probe_at <= now

    def on_removed(self, now: float) -> None:
        """It is no longer listed: find out at once whether what runs there can still end well."""
        self.removed = True
        self._probe_at(now)

    def on_probe_sent(self) -> None:
        """A probe is under way: none is due until it has ended."""
        self.next_probe_at = None

    def on_probe(self, result: Healthy | Outcome, now: float) -> bool:
        """Hear how a probe ended; true when the endpoint is lost, so that the leases on it have to be revoked."""
        match result:
            case _ if not (self.curable or self.removed):
                pass  # asked as a witness; only new settings change anything
            case TimedOut() | Lost(cause=LostCause.SERVER | LostCause.SILENT | LostCause.NETWORK):
                return self._on_silence(result.message, now)
            case _ if self.removed:
                self._probe_at(now + self.settings.interval)
            case Healthy() | Ok():
                self._on_answered(isinstance(result, Ok) or result.listed, now)
            case Misrouted():
                self._misconfigure(result, now)
                self._probe_again(now)
            case _ if self.state in OPEN:
                self._probe_at(now + self.settings.interval)
            case _:
                self.why = result.message
                self._probe_again(now)
        return False

    def undecided(self, now: float) -> None:
        """Whose fault a silence is shows only later, or an answer tells nothing: ask again soon, and change nothing."""
        if self.settings.probe:
            self.next_probe_at = min(now + UNDECIDED_S, math.inf if self.next_probe_at is None else self.next_probe_at)

    def ask_soon(self, now: float) -> None:
        """Have it probed now, unless a probe is under way; also one that only new settings could put to work."""
        if self.settings.probe and (self.next_probe_at is not None or not self.curable):
            self.next_probe_at = now

    def absolve(self, now: float) -> None:
        """This machine's network was lost and is back: forget the setbacks that came of it, and ask at once."""
        self.trust.setbacks = self.unready = 0
        self.let_in_at = now
        self._probe_at(now)

    def _on_answered(self, listed: bool, now: float) -> None:
        self.unready = 0
        match self.state:
            case State.EJECTED | State.MISCONFIGURED if now < self.let_in_at:
                self._probe_at(self.let_in_at)
                return
            case State.PROBING if listed:
                self._go_live("answered its probe", now)
            case state if state not in OPEN:
                self._enter(State.PROBATION, "answered its probe", now)
        self._probe_at(now + self.settings.interval)

    def _on_silence(self, message: str, now: float) -> bool:
        if not self.removed and self.state in OPEN:
            self._eject(message, now)
            return False
        self.why = message
        self._probe_again(now)
        return self.removed or (self.state is State.EJECTED and self.served_at <= self.ejected_at)

    def _probe_again(self, now: float) -> None:
        self._probe_at(now + self._backoff_s(self.unready))
        self.unready += 1

    def _backoff_s(self, steps: int, longest_s: float = math.inf) -> float:
        return equal_jitter_s(steps, FIRST_BACKOFF_S, min(longest_s, self.settings.backoff_max), self.random)

    def _probe_at(self, at: float) -> None:
        self.next_probe_at = at if self.settings.probe and (self.removed or self.curable) else None

    def _go_live(self, why: str, now: float) -> None:
        self._enter(State.LIVE, why, now)
        if self.opens_anew:
            self.ramp = Ramp.begun(now, careful=not self.trust.sound)
            self.opens_anew = False

    def _enter(self, state: State, why: str, now: float) -> None:
        self.state = state
        self.why = why
        self.entered_at = now
        self.opens_anew |= state not in OPEN
        self.trust.begin_row()
