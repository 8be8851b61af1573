"""Counts what happens in a run, from its events; also what earlier parts of a resumed run left. Pure.

``now`` is in seconds of a clock that does not jump. Of an earlier part, results come from its ``results.jsonl``
(:class:`History`), times and endpoint figures from its last ``summary.json``, which knows nothing after it was written.

Invariants: a rollout counts once, by its last record; a rollout whose last record is an error is in ``errors`` and
nowhere else; tokens count for every record, since they were spent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from scavenge.core.digests import DigestSet, digest
from scavenge.core.endpoint_tally import EndpointTallies, number
from scavenge.core.estimates import PASS_REWARD, Moments, Passes
from scavenge.core.plan import key_digest
from scavenge.core.records import Brief
from scavenge.core.summary import EvalSummary, Summary
from scavenge.core.workers_view import DEATHS, NOT_SPAWNED
from scavenge.events import (
    AttemptStarted,
    Event,
    LeasesRevoked,
    RolloutFinished,
    RolloutStarted,
    WorkerEnded,
    WorkerStarting,
)
from scavenge.rollouts import RolloutKey, RolloutRecord


@attrs.define(eq=False)
class EvalTally:
    """The counts of one evaluation."""

    eval: str
    env_id: str
    rollouts_per_example: int = 1
    ok: int = attrs.field(default=0, init=False)
    ok_here: int = attrs.field(default=0, init=False)
    """Those of this part alone."""
    errors: DigestSet = attrs.field(factory=DigestSet, init=False)
    rewards: Moments = attrs.field(factory=Moments, init=False)
    prompt_tokens: int = attrs.field(default=0, init=False)
    completion_tokens: int = attrs.field(default=0, init=False)
    earlier_wall_s: float = attrs.field(default=0.0, init=False)
    workers_started: int = attrs.field(default=0, init=False)
    workers_died: int = attrs.field(default=0, init=False)
    _timed_tokens: float = attrs.field(default=0.0, init=False)
    """Completion tokens made in the wall time that is known."""
    _passes: Passes = attrs.field(factory=Passes, init=False)
    _began_at: float | None = attrs.field(default=None, init=False)
    _last_at: float = attrs.field(default=0.0, init=False)

    def tick(self, now: float) -> None:
        """Something of this evaluation happened."""
        self._began_at = now if self._began_at is None else self._began_at
        self._last_at = now

    def finished(self, record: RolloutRecord) -> None:
        """Count a record that is on disk."""
        self.spent(record.usage.prompt_tokens or 0, record.usage.completion_tokens or 0)
        self._timed_tokens += record.usage.completion_tokens or 0
        if record.error is not None:
            self.errors.add(key_digest(record.key))
            return
        if self.errors:
            self.errors.discard(key_digest(record.key))
        self.ok_here += 1
        self.succeeded(record.key, record.reward)

    def spent(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Count tokens."""
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens

    def succeeded(self, key: RolloutKey, reward: float | None) -> None:
        """Count a rollout that is ok."""
        self.ok += 1
        if reward is None:
            return
        self.rewards.add(reward)
        if self.rollouts_per_example > 1:
            self._passes.add(digest(key.example_id), reward >= PASS_REWARD)

    def carry_over(self, earlier: Mapping[str, Any]) -> None:
        """Add the times and the workers of an earlier part, from its entry in the summary."""
        self.workers_started += int(number(earlier.get("workers_started")))
        self.workers_died += int(number(earlier.get("workers_died")))
        self.earlier_wall_s += number(earlier.get("wall_s"))
        self._timed_tokens += number(earlier.get("tokens_per_s")) * number(earlier.get("wall_s"))

    def summary(self, owed_at_start: int | None) -> EvalSummary:
        """The figures now, ``owed_at_start`` being the rollouts that this part had to do, where that is known."""
        wall_s = self.earlier_wall_s + (0.0 if self._began_at is None else self._last_at - self._began_at)
        several = self.rollouts_per_example > 1
        return EvalSummary(
            eval=self.eval,
            env_id=self.env_id,
            ok=self.ok,
            error=len(self.errors),
            owed=None if owed_at_start is None else owed_at_start - self.ok_here,
            mean_reward=self.rewards.mean if self.rewards.count else None,
            mean_reward_stderr=self.rewards.stderr,
            mean_reward_errors_as_0=self._mean_errors_as_0(),
            pass_at_k=self._passes.estimates(self.rollouts_per_example) if several else None,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            wall_s=wall_s,
            tokens_per_s=self._timed_tokens / wall_s if wall_s > 0 else None,
            workers_started=self.workers_started,
            workers_died=self.workers_died,
        )

    def _mean_errors_as_0(self) -> float | None:
        """Rollouts that are ok but have no reward are left out, as in the mean."""
        scored = self.rewards.count + len(self.errors)
        if scored == 0 or (self.ok and not self.rewards.count):
            return None
        return self.rewards.mean * self.rewards.count / scored


@attrs.define(eq=False)
class Tally:
    """The counts of a run. Its :meth:`observe` hears every event."""

    evals: dict[str, EvalTally]
    endpoints: EndpointTallies = attrs.field(factory=EndpointTallies, init=False)
    retries: int = attrs.field(default=0, init=False)
    revocations: int = attrs.field(default=0, init=False)

    @classmethod
    def of(cls, evals: Iterable[EvalTally]) -> Tally:
        """A tally of these evaluations."""
        return cls({each.eval: each for each in evals})

    def observe(self, event: Event, now: float) -> None:
        """Count an event."""
        match event:
            case RolloutFinished(record):
                self.evals[record.key.eval].tick(now)
                self.evals[record.key.eval].finished(record)
            case RolloutStarted(name):
                self.evals[name].tick(now)
            case LeasesRevoked():
                self.revocations += event.leases
            case WorkerStarting(name):
                self.evals[name].workers_started += 1
            case WorkerEnded(name, how=how):
                self.evals[name].workers_died += how in DEATHS
                self.evals[name].workers_started -= how == NOT_SPAWNED
            case _:
                self.retries += isinstance(event, AttemptStarted) and event.again
                self.endpoints.observe(event, now)

    def carry_over(self, earlier: Mapping[str, Any]) -> None:
        """Add what only the last summary of an earlier part knows. What cannot be read in it is left out."""
        self.retries += int(number(earlier.get("retries")))
        self.revocations += int(number(earlier.get("revocations")))
        for entry in tables(earlier.get("evals")):
            if (mine := self.evals.get(str(entry.get("eval")))) is not None:
                mine.carry_over(entry)
        for entry in tables(earlier.get("endpoints")):
            self.endpoints.carry_over(entry)

    def summary(self, owed_at_start: Mapping[str, int | None], now: float) -> Summary:
        """The figures now, with the :attr:`scavenge.core.plan.Plan.owed_at_start` of each evaluation."""
        evals = tuple(each.summary(owed_at_start.get(name)) for name, each in self.evals.items())
        return Summary(evals, self.endpoints.summary(now), self.retries, self.revocations)


@attrs.define(eq=False)
class History:
    """What the results of an earlier part say. Hand it the lines' short forms **newest first**."""

    tally: Tally
    done: DigestSet = attrs.field(factory=DigestSet, init=False)
    """The keys whose last record is ok: these are not played again."""
    foreign: int = attrs.field(default=0, init=False)
    """Lines of evaluations that the run does not have."""

    def add(self, brief: Brief) -> None:
        """Take in the next older line."""
        counts = self.tally.evals.get(brief.key.eval)
        if counts is None:
            self.foreign += 1
            return
        counts.spent(brief.prompt_tokens, brief.completion_tokens)
        key = key_digest(brief.key)
        if key in self.done or key in counts.errors:
            return
        if not brief.ok:
            counts.errors.add(key)
            return
        self.done.add(key)
        counts.succeeded(brief.key, brief.reward)


def tables(value: object) -> list[Mapping[str, Any]]:
    """The tables in a list of an earlier summary."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
