"""Takes in the lines of an event log, one at a time, and keeps what the report tells of a run. Pure.

A line is taken in whole or not at all: what has a value of the wrong type is counted and left out, an event that is not
known here is passed over. Lines may come in any order of time; the order in which they stand decides what is last.

Invariant: memory does not grow with the number of lines (each part has its own bound), nor a line's cost with the time
that it tells of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from scavenge.core.figures import duration
from scavenge.core.report import readings
from scavenge.core.report.endpoints import DRAINING, EndpointStories
from scavenge.core.report.images import ImageStories
from scavenge.core.report.noted import Moments, Noted, Times
from scavenge.core.report.pools import ERROR, OK, PARTS, SERIES_BINS, EvalStory, Named, PoolStory
from scavenge.core.report.readings import BadReading, Table
from scavenge.core.report.sums import Bins
from scavenge.core.workers_view import FAILURES, NOT_SPAWNED, ended_text
from scavenge.events import WorkerEnded
from scavenge.types import Busy, Failed, Lost, Misrouted, Ok, Rejected, TimedOut

OUTCOMES = tuple(kind.name for kind in (Ok, Lost, Busy, Failed, Misrouted, Rejected, TimedOut))
OTHER_OUTCOME = len(OUTCOMES)
"""The column of outcomes that are not known here."""
IMAGES_TOLD = 10
"""Images that no source gives are told one by one up to so many."""
BRIEFEST_S = 0.001
"""Tokens are spread over so long at least."""
Take: TypeAlias = "Callable[[History, Table, float], None]"


@attrs.define(eq=False)
class History:
    """What is known of a run."""

    lines: int = 0
    spoilt: int = 0
    """Lines with a value of the wrong type."""
    dropped: int = 0
    """Lines that the run could not write, as it says itself."""
    parts: int = 0
    """How often the run was begun or gone on with."""
    times: Times = attrs.field(factory=Times)
    moments: Moments = attrs.field(factory=Moments)
    evals: Named[EvalStory] = attrs.field(factory=lambda: Named(EvalStory))
    pools: Named[PoolStory] = attrs.field(factory=lambda: Named(PoolStory))
    endpoints: EndpointStories = attrs.field(factory=EndpointStories)
    images: ImageStories = attrs.field(factory=ImageStories)
    outcomes: Bins = attrs.field(factory=lambda: Bins(OTHER_OUTCOME + 1, SERIES_BINS))
    """Attempts by outcome."""
    made_of: Bins = attrs.field(factory=lambda: Bins(1 + len(PARTS), SERIES_BINS))
    """Rollouts that finished, and the sums of the parts of their time."""
    stopped: str = ""
    """Why the run stopped early; empty where it did not, or was resumed."""

    def observe(self, table: Table) -> None:
        """Take in a line."""
        self.lines += 1
        try:
            time, name = readings.moment(table), readings.name(table, "event")
            if (take := TAKES.get(name)) is not None:
                take(self, table, time)
        except BadReading:
            self.spoilt += 1
            return
        self.times.met(time)

    # --- the run

    def started(self, table: Table, time: float) -> None:
        """A part of the run begins: nothing of the part before goes on."""
        kept = readings.count(table, "kept") if "kept" in table else 0
        if self.parts:
            self._end_part(self.times.ends[-1])
            self.moments.add(Noted(time, "resumed", f"{kept} results were there"))
            self.times.began(time)
        self.parts += 1
        self.stopped = ""

    def _end_part(self, end: float) -> None:
        for pool in self.pools:
            pool.ended(end)
        for endpoint in self.endpoints:
            if endpoint.listed:
                endpoint.left(end, "the run ended")

    def stopping(self, table: Table, time: float) -> None:
        """The run stops early."""
        self.stopped = readings.text(table, "why")
        self.moments.add(Noted(time, "stopping", self.stopped))

    def gave_up(self, table: Table, time: float) -> None:
        """An evaluation no longer waits."""
        told = f"{readings.text(table, 'eval')}: {readings.text(table, 'why')}"
        self.moments.add(Noted(time, "gave up", told))

    def warned(self, table: Table, time: float) -> None:
        """Something is wrong."""
        self.moments.add(Noted(time, "warning", readings.text(table, "message")))

    def stalled(self, table: Table, time: float) -> None:
        """Nothing came of the run."""
        quiet = duration(readings.number(table, "quiet_s"))
        self.moments.add(Noted(time, "stalled", f"nothing had come back for {quiet}"))

    def waiting(self, table: Table, time: float) -> None:
        """A pool waits, or no longer does."""
        pool, why = readings.text(table, "endpoint_id"), readings.text(table, "why")
        self.moments.add(Noted(time, "waiting" if why else "wait over", f"{pool}: {why}" if why else pool))

    def source_changed(self, table: Table, time: float) -> None:
        """A source fails, or is well again."""
        ok, message = readings.flag(table, "ok"), readings.text(table, "message")
        self.moments.add(Noted(time, "source well" if ok else "source fails", message))

    def network_lost(self, table: Table, time: float) -> None:
        """No host is heard any more."""
        self.moments.add(Noted(time, "network lost", readings.text(table, "why")))

    def network_back(self, table: Table, time: float) -> None:
        """A host is heard again."""
        self.moments.add(Noted(time, "network back", f"after {duration(readings.number(table, 'lost_s'))}"))

    def worker_ended(self, table: Table, time: float) -> None:
        """A worker is gone; that one was retired is no news."""
        how, why, name = readings.name(table, "how"), readings.text(table, "why"), readings.name(table, "eval")
        log = readings.text(table, "log") if "log" in table else ""
        displaced = readings.count(table, "displaced")
        ended = WorkerEnded(name, readings.count(table, "worker"), how, why, displaced, log)
        if how in FAILURES:
            what = "no worker" if how == NOT_SPAWNED else "worker died"
            self.moments.add(Noted(time, what, f"{name}: {ended_text(ended)}"))

    def events_dropped(self, table: Table, time: float) -> None:
        """The run could not write some lines."""
        count = readings.count(table, "count")
        self.dropped += count
        self.moments.add(Noted(time, "events missing", f"{count} could not be written"))

    # --- container images

    def image_ready(self, table: Table, time: float) -> None:
        """An image came."""
        image, source = readings.name(table, "image"), readings.name(table, "source")
        self.images.ready(image, source, readings.number(table, "seconds"), readings.count(table, "size_bytes"))

    def image_trouble(self, table: Table, time: float) -> None:
        """A delivery failed."""
        self.images.trouble(readings.name(table, "source"), readings.name(table, "outcome"))

    def image_failed(self, table: Table, time: float) -> None:
        """No source gives an image. The first few are moments; thousands may fail alike."""
        image, why = readings.name(table, "image"), readings.text(table, "why")
        if self.images.failures < IMAGES_TOLD:
            self.moments.add(Noted(time, "no image", f"{image}: {why}"))
        self.images.failed(image, why)

    # --- rollouts and attempts

    def rollout_finished(self, table: Table, time: float) -> None:
        """A rollout has its result."""
        name, timing = readings.name(table, "eval"), readings.inner(table, "timing")
        parts = [readings.number(timing, part) for part in PARTS]
        if table.get("error") is not None:
            readings.inner(table, "error")
        story = self.evals.of(name)
        story.finished.add(time, OK if table.get("error") is None else ERROR)
        for part, seconds in zip(PARTS, parts, strict=True):
            story.spreads[part].add(seconds)
        self.made_of.add_row(time, [1.0, *parts])

    def attempt_ended(self, table: Table, time: float) -> None:
        """An attempt ended at ``time``; when it began follows from how long it took."""
        attempt, tokens = readings.inner(table, "attempt"), readings.number(table, "tokens")
        pool, url = readings.name(table, "endpoint_id"), readings.name(attempt, "endpoint")
        outcome, seconds = readings.name(attempt, "outcome"), readings.number(attempt, "duration_s")
        begin = max(0.0, time - seconds)
        story, endpoint = self.pools.of(pool), self.endpoints.of(pool, url)
        story.load.add(begin, time)
        endpoint.load.add(begin, time)
        endpoint.tokens += tokens
        if tokens:
            brief = max(seconds, BRIEFEST_S)
            story.flow.add(max(0.0, time - brief), time, tokens / brief)
        self.outcomes.add(time, OUTCOMES.index(outcome) if outcome in OUTCOMES else OTHER_OUTCOME)

    # --- endpoints

    def joined(self, table: Table, time: float) -> None:
        """An endpoint was listed."""
        self.endpoints.of(*_endpoint(table)).joined(time)

    def changed(self, table: Table, time: float) -> None:
        """An endpoint has other settings."""
        name, what = _endpoint(table), readings.text(table, "what")
        endpoint = self.endpoints.of(*name)
        if endpoint.draining and DRAINING in what.split(", "):
            endpoint.drains_no_more(time)

    def draining(self, table: Table, time: float) -> None:
        """An endpoint takes no new work."""
        name, why = _endpoint(table), readings.text(table, "why")
        self.endpoints.of(*name).drains(time, why)

    def left(self, table: Table, time: float) -> None:
        """An endpoint was removed."""
        pool, url = _endpoint(table)
        self.endpoints.of(pool, url).left(time)
        self.pools.of(pool).left(time, url)

    def health_changed(self, table: Table, time: float) -> None:
        """An endpoint's health has another state."""
        name, state, why = _endpoint(table), readings.name(table, "new"), readings.text(table, "why")
        self.endpoints.of(*name).is_told(time, state, why)

    def limit_moved(self, table: Table, time: float) -> None:
        """An endpoint's gate allows another number of requests; the last word of one that has left is no news."""
        (pool, url), limit, why = _endpoint(table), readings.count(table, "new"), readings.text(table, "reason")
        endpoint = self.endpoints.of(pool, url)
        if endpoint.listed:
            endpoint.limit_moved(time, limit, why)
            self.pools.of(pool).limit_moved(time, url, limit)

    def sessions_moved(self, table: Table, time: float) -> None:
        """A session gate allows more or less."""
        live, why = readings.count(table, "live"), readings.text(table, "reason")
        limit, budget = readings.optional_count(table, "limit"), readings.optional_number(table, "budget_tokens")
        self.pools.of(readings.name(table, "endpoint_id")).sessions_moved(time, live, limit, budget, why)


def _endpoint(table: Table) -> tuple[str, str]:
    return readings.name(table, "endpoint_id"), readings.name(table, "url")


TAKES: dict[str, Take] = {
    "RunStarted": History.started,
    "RunStopping": History.stopping,
    "EvalGaveUp": History.gave_up,
    "Warned": History.warned,
    "Stalled": History.stalled,
    "PoolWaiting": History.waiting,
    "SourceChanged": History.source_changed,
    "NetworkLost": History.network_lost,
    "NetworkBack": History.network_back,
    "WorkerEnded": History.worker_ended,
    "ImageReady": History.image_ready,
    "ImageTrouble": History.image_trouble,
    "ImageFailed": History.image_failed,
    "EventsDropped": History.events_dropped,
    "RolloutFinished": History.rollout_finished,
    "AttemptEnded": History.attempt_ended,
    "EndpointJoined": History.joined,
    "EndpointChanged": History.changed,
    "EndpointDraining": History.draining,
    "EndpointLeft": History.left,
    "HealthChanged": History.health_changed,
    "LimitMoved": History.limit_moved,
    "SessionsMoved": History.sessions_moved,
}
"""What is made of an event, by its name."""
