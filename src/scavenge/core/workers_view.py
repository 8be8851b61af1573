"""What is said of the worker processes of evaluations: in log lines, in the progress, of a quiet run. Pure.

Knows no worker. All instants are Unix epoch seconds (``_time``).

Invariant: the state does not grow with the workers that an evaluation starts; an evaluation that wants none any more is
forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from scavenge.core.figures import duration
from scavenge.core.naming import one_line
from scavenge.core.supervision import How
from scavenge.events import WorkerEnded
from scavenge.status import WorkersStatus

WHY_CHARACTERS = 160
SHOWN_MOST = 3
NOT_SPAWNED = How.NOT_SPAWNED.value
FAILURES = frozenset(how.value for how in How)
DEATHS = FAILURES - {NOT_SPAWNED}
"""The ends of a worker, in :attr:`WorkerEnded.how`, that are deaths."""


def ended_text(event: WorkerEnded) -> str:
    """How a worker ended and what follows, without the name of its evaluation."""
    why = one_line(event.why, WHY_CHARACTERS)
    if event.how not in FAILURES:
        return f"worker {event.worker} is {event.how}" + (f" ({why})" if why else "")
    said = "cannot be started" if event.how == NOT_SPAWNED else event.how
    lost = f", {_rollouts(event.displaced)} played elsewhere" if event.displaced else ""
    return f"worker {event.worker} {said} ({why}){lost}" + (f"; see {event.log}" if event.log else "")


def state_text(status: WorkersStatus) -> str:
    """How the workers of an evaluation are, without its name: how many are ready, and what is wrong."""
    why = f": {one_line(status.why, WHY_CHARACTERS)}" if status.why else ""
    return f"{_ready(status)}{why}"


def _ready(status: WorkersStatus) -> str:
    if not status.ready:
        return f"no worker is ready, {_loading(status.starting)}" if status.starting else "no worker"
    wanted = max(status.wanted, status.ready)
    starting = f", {status.starting} starting" if status.starting else ""
    return f"{status.ready} of {wanted} worker{'s' * (wanted != 1)} ready{starting}"


def _loading(count: int) -> str:
    return f"{'one is' if count == 1 else f'{count} are'} loading"


def _rollouts(count: int) -> str:
    return f"{count} rollouts are" if count != 1 else "1 rollout is"


def wait_text(status: WorkersStatus) -> str:
    """How the workers of an evaluation are and how many rollouts wait for one, for the line of a quiet run."""
    parked = f", {status.parked} rollout{'s wait' if status.parked != 1 else ' waits'} for one" if status.parked else ""
    playing = f", {status.playing} rollout{'s' * (status.playing != 1)} in them" if status.playing else ""
    why = f": {one_line(status.why, WHY_CHARACTERS)}" if status.why else ""
    return f"{status.eval}: {_ready(status)}{playing}{parked}{why}"


@attrs.frozen
class _Told:
    """A status, and since when the evaluation has been with a worker, or without one."""

    status: WorkersStatus
    since_time: float


@attrs.define
class WorkersView:
    """The workers of a run as far as the progress shows them."""

    _told: dict[str, _Told] = attrs.field(factory=dict)

    def changed(self, status: WorkersStatus, now_time: float) -> None:
        """The workers of an evaluation are another way."""
        if not status.wanted:
            self.forget(status.eval)
            return
        before = self._told.get(status.eval)
        as_before = before is not None and _kind(before.status) == _kind(status)
        self._told[status.eval] = _Told(status, before.since_time if before and as_before else now_time)

    def forget(self, name: str) -> None:
        """An evaluation is over."""
        self._told.pop(name, None)

    def figures(self) -> str:
        """How many are ready, of how many; empty where no evaluation has workers."""
        every = [told.status for told in self._told.values()]
        if not every:
            return ""
        ready, wanted = sum(one.ready for one in every), sum(max(one.wanted, one.ready) for one in every)
        starting = sum(one.starting for one in every)
        return f"workers {ready}/{wanted}" + (f" ({starting} starting)" if starting else "")

    def notes(self, now_time: float) -> Iterator[str]:
        """What holds an evaluation up, one line each; of many, the first ones and how many there are."""
        troubled = [told for told in self._told.values() if _kind(told.status)]
        for told in troubled[:SHOWN_MOST]:
            yield _note(told.status, duration(now_time - told.since_time))
        if len(troubled) > SHOWN_MOST:
            yield f"evals with too few workers: {len(troubled)} in all"

    def without(self) -> tuple[str, ...]:
        """The evaluations that have no worker now."""
        return tuple(name for name, told in self._told.items() if not told.status.ready)


def _kind(status: WorkersStatus) -> str:
    """What holds an evaluation up, in one word; empty where nothing does."""
    if not status.ready:
        return "none"
    return "few" if status.state == "degraded" else ""


def _note(status: WorkersStatus, lasted: str) -> str:
    why = one_line(status.why, WHY_CHARACTERS)
    if status.ready:
        wanted = max(status.wanted, status.ready)
        return f"eval {status.eval} has had too few workers for {lasted} ({status.ready} of {wanted}): {why}"
    loading = _loading(status.starting) if status.starting else ""
    return f"eval {status.eval} has had no worker for {lasted}: {'; '.join(filter(None, (why, loading)))}"
