"""How a policy's run compares with the best fixed limit of each phase, for benchmarks/gates.py."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import attrs
from gate_cases import Case

from scavenge.testing.closed_loop_report import LoopReport

SETTLED = 0.4
"""The part of a phase after which a fixed limit's goodput counts."""
KNEE = 0.95


@attrs.frozen
class Best:
    """The best fixed limit of a phase, and the lowest that gives 95 % of it."""

    goodput: float
    limit: int
    knee: int


@attrs.frozen
class Score:
    """One run in figures; parts are of the best fixed limit's goodput. What never came is infinite."""

    whole: float
    second_half: float | None
    """``None``: the halves of the phase are not alike."""
    reached_s: float
    """From the start to 90 % of the best."""
    reached_moves: float
    peak: float
    """The highest limit as a multiple of the phase's knee, in the worst phase."""
    recovered_s: float | None
    """From the halving to 95 % of the new best; ``None``: the case has none."""
    recovered_moves: float | None
    timeouts: float
    refused: float
    preemptions: float


def fixed_goodputs(case: Case, report: LoopReport) -> list[float]:
    """What a fixed limit gave in each phase."""
    settled = 0.0 if case.varies else SETTLED
    return [report.goodput(since + settled * (until - since), until) for since, until in case.spans]


def best_of(goodputs: Mapping[int, Sequence[float]]) -> list[Best]:
    """The best of each phase, from what each limit gave."""
    phases = len(next(iter(goodputs.values())))
    bests = []
    for phase in range(phases):
        limit = max(goodputs, key=lambda limit: goodputs[limit][phase])
        most = goodputs[limit][phase]
        bests.append(Best(most, limit, min(n for n, phase_s in goodputs.items() if phase_s[phase] >= KNEE * most)))
    return bests


def score(case: Case, bests: Sequence[Best], report: LoopReport) -> Score:
    """Compare a run with the best."""
    spans = case.spans
    due = sum(best.goodput * (until - since) for best, (since, until) in zip(bests, spans, strict=True))
    done = sum(report.goodput(since, until) * (until - since) for since, until in spans)
    late = sum(report.goodput((since + until) / 2, until) * (until - since) for since, until in spans)
    (since, until), halved = spans[0], case.halved
    reached_at = report.reaches_at(0.9 * bests[0].goodput, since, until)
    recovered_at = None if halved is None else report.reaches_at(0.95 * bests[halved].goodput, *spans[halved])
    return Score(
        whole=done / due,
        second_half=None if case.varies else late / due,
        reached_s=math.inf if reached_at is None else reached_at,
        reached_moves=report.moves_between(-1.0, until if reached_at is None else reached_at),
        peak=max(report.peak_limit(*span) / best.knee for best, span in zip(bests, spans, strict=True)),
        recovered_s=None if halved is None else _since(recovered_at, spans[halved][0]),
        recovered_moves=None if halved is None else report.moves_between(spans[halved][0], recovered_at or math.inf),
        timeouts=report.timeouts / max(1, report.requests),
        refused=report.refused,
        preemptions=report.preemptions,
    )


def _since(at: float | None, since: float) -> float:
    return math.inf if at is None else at - since


def mean_score(scores: Sequence[Score]) -> Score:
    """The mean of several seeds' scores; of times the mean, too, so that one that never came makes it infinite."""
    first = scores[0]
    means: dict[str, Any] = {
        field.name: None if getattr(first, field.name) is None else fmean(getattr(one, field.name) for one in scores)
        for field in attrs.fields(Score)
    }
    return Score(**means)


class Oracles:
    """What fixed limits gave, by case and seed, kept in a file if there is one; a case that changed is forgotten."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, dict[str, list[float]]] = {}
        if path is not None and path.exists():
            self._known = json.loads(path.read_text(encoding="utf-8"))

    def missing(self, case: Case, seed: int) -> list[int]:
        """The limits of the case's grid that were not run yet."""
        known = self._known.get(_key(case, seed), {})
        return [limit for limit in case.grid if str(limit) not in known]

    def put(self, case: Case, seed: int, limit: int, goodputs: list[float]) -> None:
        """Note a run."""
        self._known.setdefault(_key(case, seed), {})[str(limit)] = goodputs

    def bests(self, case: Case, seed: int) -> list[Best]:
        """The best limit of each phase."""
        known = self._known[_key(case, seed)]
        return best_of({limit: known[str(limit)] for limit in case.grid})

    def save(self) -> None:
        """Write the file."""
        if self._path is not None:
            self._path.write_text(json.dumps(self._known, indent=0, sort_keys=True), encoding="utf-8")


def _key(case: Case, seed: int) -> str:
    return f"{seed} {case.loop} {case.phases} {case.varies}"


def worst(values: Iterable[tuple[float, str]], *, low: bool) -> str:
    """The worst of values with their case's name, as text."""
    value, name = (min if low else max)(values)
    return f"{value:.3g} ({name.split()[0]})"
