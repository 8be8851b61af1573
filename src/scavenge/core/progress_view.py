"""How far a run is, told from its events: counts, recent rates, endpoints, waits; and the lines that say so. Pure.

Knows no terminal. All instants are Unix epoch seconds (``_time``), because waits are told in these.

Invariants: hearing one event costs O(1), and the state does not grow with the samples. A total is known only when every
evaluation's is.
"""

from __future__ import annotations

from collections import deque

import attrs

from scavenge.core.bounds_view import BoundsView, Place
from scavenge.core.figures import duration
from scavenge.core.health_state import WORKING
from scavenge.core.images_view import ImagesView
from scavenge.core.naming import listed, one_line
from scavenge.core.workers_view import WorkersView
from scavenge.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptStarted,
    EndpointChanged,
    EndpointDraining,
    EndpointJoined,
    EndpointLeft,
    EvalGaveUp,
    EvalSized,
    Event,
    HealthChanged,
    ImageReady,
    ImagesChanged,
    LimitMoved,
    NetworkBack,
    NetworkLost,
    PoolWaiting,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    RunStopping,
    SessionsMoved,
    SourceChanged,
    WorkersChanged,
)
from scavenge.types import EndpointId

TOKENS_WINDOW_S = 30.0
"""Over what time tokens per second are averaged: replies come whole, so a shorter one would jump."""
ROLLOUTS_WINDOW_S = 300.0
"""Over what time the rate behind the estimated end is averaged."""
WHY_CHARACTERS = 160
SOURCES_SHOWN = 3
TAKES_WORK = frozenset(state.value for state in WORKING)
"""Names of the states in which an endpoint is given work."""


@attrs.define
class RecentRate:
    """How much a second, averaged over the last ``window_s`` seconds. Holds at most 31 sums, whatever it is told."""

    window_s: float
    started_time: float
    _sums: deque[tuple[int, float]] = attrs.field(factory=deque)

    def add(self, amount: float, now_time: float) -> None:
        """Count *amount* as done now."""
        step = self._step(now_time)
        if self._sums and self._sums[-1][0] >= step:
            last, total = self._sums.pop()
            self._sums.append((last, total + amount))
        else:
            self._sums.append((step, amount))
        self._forget(step)

    def per_s(self, now_time: float) -> float:
        """The average up to now."""
        self._forget(self._step(now_time))
        passed_s = min(self.window_s, now_time - self.started_time)
        return sum(amount for _, amount in self._sums) / max(passed_s, 1.0)

    def _step(self, now_time: float) -> int:
        return int((now_time - self.started_time) / self.window_s * 30)

    def _forget(self, step: int) -> None:
        while self._sums and self._sums[0][0] <= step - 30:
            self._sums.popleft()


@attrs.frozen
class Wait:
    """What is waited for, or what is wrong, and since when."""

    since_time: float
    why: str


@attrs.define
class ProgressView:
    """The state of a run as far as it is shown."""

    started_time: float
    ok: int = 0
    failed: int = 0
    kept: int = 0
    in_flight: int = 0
    bounds: BoundsView = attrs.field(factory=BoundsView)
    workers: WorkersView = attrs.field(factory=WorkersView)
    images: ImagesView = attrs.field(factory=ImagesView)
    tokens: RecentRate = attrs.field(init=False)
    rollouts: RecentRate = attrs.field(init=False)
    waits: dict[EndpointId, Wait] = attrs.field(factory=dict)
    troubles: dict[str, Wait] = attrs.field(factory=dict)
    """Of sources that cannot say, or whose rows are wrong, by their names."""
    network: Wait | None = None
    """There while this machine's network is lost."""
    stopping: str = ""
    gave_up: list[str] = attrs.field(factory=list)
    _sizes: dict[str, int | None] = attrs.field(factory=dict)
    _listed: set[Place] = attrs.field(factory=set)
    _draining: set[Place] = attrs.field(factory=set)
    _health: dict[Place, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.tokens = RecentRate(TOKENS_WINDOW_S, self.started_time)
        self.rollouts = RecentRate(ROLLOUTS_WINDOW_S, self.started_time)

    # --- what is known

    @property
    def done(self) -> int:
        """Rollouts with a result, good or bad, those of an earlier part included."""
        return self.kept + self.ok + self.failed

    @property
    def total(self) -> int | None:
        """Rollouts there will be; ``None`` until every dataset was read to its end."""
        sizes = list(self._sizes.values())
        known = [size for size in sizes if size is not None]
        return sum(known) if sizes and len(known) == len(sizes) else None

    @property
    def endpoints(self) -> int:
        """Endpoints that are listed, each counted once a pool."""
        return len(self._listed)

    @property
    def live(self) -> int:
        """Endpoints that are given work."""
        return len(self._live())

    def _live(self) -> list[Place]:
        return [one for one in self._listed if one not in self._draining and self._health.get(one) in TAKES_WORK]

    def left_s(self, now_time: float) -> float | None:
        """Seconds to the end at the recent speed; ``None`` where that cannot be told."""
        total, speed = self.total, self.rollouts.per_s(now_time)
        if total is None or speed <= 0:
            return None
        return max(0, total - self.done) / speed

    # --- what happens

    def on_event(self, event: Event, now_time: float) -> None:
        """Hear of an event."""
        match event:
            case AttemptStarted() | AttemptEnded() | AttemptDropped():
                self._on_attempt(event, now_time)
            case LimitMoved() | SessionsMoved() | RolloutStarted():
                self.bounds.on_event(event)
            case RolloutFinished():
                self.bounds.on_event(event)
                self._on_finished(failed=event.record.error is not None, now_time=now_time)
            case WorkersChanged():
                self.workers.changed(event.status, now_time)
            case ImagesChanged() | ImageReady():
                self.images.on_event(event, now_time)
            case NetworkLost() | NetworkBack() | SourceChanged() | PoolWaiting():
                self._on_surroundings(event, now_time)
            case RunStarted() | EvalSized() | EvalGaveUp() | RunStopping():
                self._on_run(event)
            case EndpointJoined() | EndpointLeft() | EndpointDraining() | EndpointChanged() | HealthChanged():
                self._on_endpoint(event)
            case _:
                pass

    def _on_attempt(self, event: AttemptStarted | AttemptEnded | AttemptDropped, now_time: float) -> None:
        if isinstance(event, AttemptStarted):
            self.in_flight += 1
            self._health.setdefault((event.endpoint_id, event.url), "live")
            return
        self.in_flight = max(0, self.in_flight - 1)
        if isinstance(event, AttemptEnded):
            self.tokens.add(event.tokens, now_time)

    def _on_finished(self, *, failed: bool, now_time: float) -> None:
        self.failed += failed
        self.ok += not failed
        self.rollouts.add(1, now_time)

    def _on_surroundings(self, event: NetworkLost | NetworkBack | SourceChanged | PoolWaiting, now_time: float) -> None:
        match event:
            case PoolWaiting(why=""):
                self.waits.pop(event.endpoint_id, None)
            case PoolWaiting():
                self.waits[event.endpoint_id] = Wait(event.since_time, event.why)
            case NetworkLost():
                self.network = Wait(now_time, event.why)
            case NetworkBack():
                self.network = None
            case SourceChanged(ok=True):
                self.troubles.pop(event.source, None)
            case _:
                since_time = self.troubles.get(event.source, Wait(now_time, "")).since_time
                self.troubles[event.source] = Wait(since_time, event.message.removeprefix(f"{event.source}: "))

    def _on_run(self, event: RunStarted | EvalSized | EvalGaveUp | RunStopping) -> None:
        match event:
            case RunStarted():
                self.kept = event.kept
                self._sizes = {name: self._sizes.get(name) for name in event.evals}
            case EvalSized():
                self._sizes[event.eval] = event.rollouts
            case EvalGaveUp():
                self.gave_up.append(event.eval)
                self.workers.forget(event.eval)
            case _:
                self.stopping = event.why

    def _on_endpoint(
        self, event: EndpointJoined | EndpointLeft | EndpointDraining | EndpointChanged | HealthChanged
    ) -> None:
        place = (event.endpoint_id, event.url)
        if isinstance(event, HealthChanged):
            self._health[place] = event.new
            return
        if not isinstance(event, EndpointChanged) or "draining" in event.what.split(", "):
            self._draining.discard(place)
        match event:
            case EndpointJoined():
                self._listed.add(place)
            case EndpointDraining():
                self._draining.add(place)
            case EndpointLeft():
                self._listed.discard(place)
                self._health.pop(place, None)
                self.bounds.forget(place)

    # --- what is said

    def summary_line(self, now_time: float) -> str:
        """Counts, speed, endpoints and times on one line."""
        parts = [self._counts(), f"{self.tokens.per_s(now_time):,.0f} tokens/s"]
        figures = (f"endpoints {self.live}/{self.endpoints}", self.workers.figures(), self.images.figures())
        parts += filter(None, figures)
        elapsed = duration(now_time - self.started_time)
        left_s = None if self._held_up() else self.left_s(now_time)
        parts.append(elapsed if left_s is None else f"{elapsed}, about {duration(left_s)} left")
        return " | ".join(parts)

    def _held_up(self) -> bool:
        """Whether the recent speed says nothing of what comes; images hold a run up while no rollout has its own."""
        without_images = self.images.held_up() and not self.bounds.under_way
        return bool(self.waits or self.network or self.stopping or self.workers.without() or without_images)

    def _counts(self) -> str:
        total = self.total
        known = "?" if total is None else f"{total:,}"
        limit, sessions = self.bounds.limit(self._live()), self.bounds.sessions()
        in_flight = f"{self.in_flight:,} in flight" if limit is None else f"{self.in_flight:,}/{limit:,} in flight"
        return ", ".join(filter(None, (f"{self.done:,}/{known} done", f"{self.failed:,} failed", in_flight, sessions)))

    def notes(self, now_time: float) -> list[str]:
        """What holds the run up, one line each."""
        lines = [f"stopping: {self.stopping}"] if self.stopping else []
        if self.gave_up:
            lines.append(f"given up: {listed(self.gave_up, most=5)}")
        if self.network is not None:
            lines.append(_note("this machine's network has been lost", self.network, now_time))
        for endpoint_id, wait in self.waits.items():
            lines.append(_note(f"{endpoint_id} has been waiting", wait, now_time))
        for source, trouble in list(self.troubles.items())[:SOURCES_SHOWN]:
            lines.append(_note(f"source {source} has been in trouble", trouble, now_time))
        if len(self.troubles) > SOURCES_SHOWN:
            lines.append(f"sources in trouble: {len(self.troubles)} in all")
        return lines if self.stopping else [*lines, *self.workers.notes(now_time), *self.images.notes(now_time)]

    def holdups(self) -> tuple[object, ...]:
        """A value that changes exactly when another kind of note is due, whatever the seconds are."""
        network, workers = self.network is not None, () if self.stopping else self.workers.without()
        images = "" if self.stopping or self.bounds.under_way else self.images.stuck()
        waits = (tuple(self.waits), tuple(self.troubles), workers, images)
        return (bool(self.stopping), len(self.gave_up), network, *waits)


def _note(what: str, wait: Wait, now_time: float) -> str:
    return f"{what} for {duration(now_time - wait.since_time)}: {one_line(wait.why, WHY_CHARACTERS)}"
