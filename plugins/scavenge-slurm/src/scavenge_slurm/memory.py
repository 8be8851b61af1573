"""What a source remembers from one listing to the next, of the jobs that are still there. No I/O.

Invariant: after :meth:`Memory.see`, nothing is remembered of a run of a job that the last answer lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import attrs

from scavenge_slurm.jobs import Job
from scavenge_slurm.statefiles import FileSays

STEADY_S = 30.0
"""An end that is counted from "time left" and moves by less has not moved: both the count and the answer take time."""

_Run: TypeAlias = tuple[int, float | None]
"""A job and when it began: a job that is started anew keeps its number."""


@attrs.define(eq=False)
class Memory:
    """Ends, contents of state files, and what was told, by run of a job."""

    _ends: dict[_Run, float] = attrs.field(factory=dict)
    _files: dict[_Run, dict[str, str]] = attrs.field(factory=dict)
    _told: dict[_Run, str] = attrs.field(factory=dict)

    def see(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs, with the ends they had where those have not moved; other jobs are forgotten."""
        seen = [self._steadied(job) for job in jobs]
        runs = {_run(job) for job in seen}
        self._ends = {_run(job): job.ends_at for job in seen if job.ends_at is not None}
        self._files = {run: pairs for run, pairs in self._files.items() if run in runs}
        self._told = {run: text for run, text in self._told.items() if run in runs}
        return seen

    def kept(self, jobs: Iterable[Job], files: Mapping[int, FileSays]) -> dict[int, dict[str, str]]:
        """What each job's file says, or said last where it says nothing now: only the job's end takes that away."""
        for job in jobs:
            says = files.get(job.job_id)
            if says is not None and says.pairs is not None:
                self._files[_run(job)] = says.pairs
        return {job_id: pairs for (job_id, _), pairs in self._files.items()}

    def news(self, jobs: Iterable[Job], left_out: Mapping[int, str], files: Mapping[int, FileSays]) -> Iterator[str]:
        """What to tell of jobs that are there and have no row, once for each reason."""
        for job in jobs:
            if job.job_id not in left_out:
                self._told.pop(_run(job), None)
                continue
            says = files.get(job.job_id)
            why = left_out[job.job_id] + (f"; {says.trouble}" if says is not None and says.trouble else "")
            if why != self._told.get(_run(job)):
                self._told[_run(job)] = why
                yield f"job {job.job_id} ({job.name[:60]!r}) has no row: {why}"

    def _steadied(self, job: Job) -> Job:
        before = self._ends.get(_run(job)) if job.ends_about else None
        if before is None or job.ends_at is None or abs(job.ends_at - before) >= STEADY_S:
            return job
        return attrs.evolve(job, ends_at=before)


def _run(job: Job) -> _Run:
    return job.job_id, job.started_at
