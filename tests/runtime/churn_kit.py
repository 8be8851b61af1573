"""A whole run over a fleet in churn, on virtual time, with everything checked that must hold at every step.

The test of a few hours and the benchmark of a whole day are the same run at other sizes.
"""

from __future__ import annotations

import gc
import resource
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
import orjson
import trio
from fleet_kit import Kit, Questions, open_kit

import scavenge.runtime.pool
from scavenge.core.health_settings import HealthSettings
from scavenge.core.ledger import Lease, SlotLedger, Ticket
from scavenge.events import LeasesRevoked
from scavenge.testing import (
    Churn,
    ChurnSettings,
    SimulatedFleet,
    Truth,
    fleet_paces,
    least_makespan_s,
    most_tokens,
    random_churn,
)
from scavenge.types import Url

MEAN_TOKENS = 47.9
"""Of a reply of the simulated model: log-normal with median 40 and sigma 0.6."""
LIMIT = 16
"""What the admission policy lets into each server: as many as the largest has slots."""


@attrs.frozen
class Day:
    """What is played: a churn, and work for ``work_share`` of the tokens that the fleet could generate in its time."""

    random_seed: int
    churn: ChurnSettings
    work_share: float = 0.5
    poll_interval_s: float = 10.0
    probe_interval_s: float = 30.0


@attrs.frozen
class Report:
    """What came of it."""

    samples: int
    errors: int
    outcomes: Counter[str]
    revoked: int
    makespan_s: float
    bound_s: float
    most_ratio: float
    """The ratio for the first 95 % of the tokens: what the last long replies on slow servers cost is not in it."""
    cpu_s: float
    peak_bytes: int

    @property
    def ratio(self) -> float:
        """How many times as long as the lower bound it took."""
        return self.makespan_s / self.bound_s

    def __str__(self) -> str:
        attempts = " ".join(f"{name}={count}" for name, count in sorted(self.outcomes.items()))
        return (
            f"samples={self.samples} errors={self.errors} attempts: {attempts} revoked={self.revoked}"
            f" makespan={self.makespan_s:.0f}s bound={self.bound_s:.0f}s ratio={self.ratio:.3f}"
            f" (of 95%: {self.most_ratio:.3f})"
            f" cpu={self.cpu_s:.1f}s peak={self.peak_bytes / 1e6:.0f}MB"
        )


class WatchedLedger(SlotLedger):
    """A ledger that is compared, at each step, with a count of its own of what is lent on the endpoints it touches."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[Url] = Counter()
        self.allowed: dict[Url, int] = {}

    def join(self, url: Url, limit: int, hard_cap: int | None = None) -> None:
        super().join(url, limit, hard_cap)
        self._allow(url, limit, hard_cap)

    def leave(self, url: Url) -> None:
        super().leave(url)
        self.allowed[url] = 0
        self._compare(url)

    def set_limit(self, url: Url, limit: int, hard_cap: int | None = None) -> None:
        super().set_limit(url, limit, hard_cap)
        self._allow(url, limit, hard_cap)

    def grant(self) -> list[tuple[Ticket, Lease]]:
        granted = super().grant()
        for _, lease in granted:
            self.counted[lease.url] += lease.slots
        for url in {lease.url for _, lease in granted}:
            self._compare(url)
            assert self.counted[url] <= self.allowed[url], f"{url}: more is lent than its limit"
        return granted

    def give_back(self, lease: Lease) -> None:
        super().give_back(lease)
        self.counted[lease.url] -= lease.slots
        self._compare(lease.url)

    def _allow(self, url: Url, limit: int, hard_cap: int | None) -> None:
        self.allowed[url] = limit if hard_cap is None else min(limit, hard_cap)
        self._compare(url)

    def _compare(self, url: Url) -> None:
        assert self.counted[url] == self.lent(url), f"{url}: {self.counted[url]} leases, {self.lent(url)} lent"


@contextmanager
def watched_ledgers() -> Iterator[None]:
    """Let pools that are made meanwhile have a ledger that is watched."""
    pool_module = scavenge.runtime.pool
    pool_module.SlotLedger = WatchedLedger  # type: ignore[misc]
    try:
        yield
    finally:
        pool_module.SlotLedger = SlotLedger  # type: ignore[misc]


@attrs.define(eq=False)
class Results:
    """A results file that keeps only what is counted: a day's lines would fill the memory."""

    seen: Counter[tuple[object, object]] = attrs.field(factory=Counter)
    outcomes: Counter[str] = attrs.field(factory=Counter)
    tokens: int = 0
    so_far: list[tuple[float, int]] = attrs.field(factory=list)
    """When there were how many tokens."""
    errors: list[object] = attrs.field(factory=list)

    def append(self, lines: Sequence[bytes]) -> None:
        for line in map(orjson.loads, lines):
            self.seen[line["example_id"], line["rollout"]] += 1
            self.outcomes.update(attempt["outcome"] for attempt in line["attempts"])
            self.tokens += line["usage"]["completion_tokens"] or 0
            if line["error"] is not None:
                self.errors.append(line["error"])
        self.so_far.append((trio.current_time(), self.tokens))


@attrs.define(eq=False)
class Watch:
    """Looks at a run after each change of its ledger."""

    kit: Kit
    simulated: SimulatedFleet
    limit: int
    """What the admission policy lets into each server."""
    every: int
    """Changes of the ledger between two looks at everything; what a change touches is checked at each."""
    revoked: int = 0
    _changes: int = 0

    def install(self) -> None:
        dispatcher = self.kit.pool.dispatcher
        before = dispatcher.on_change

        def on_change() -> None:
            if before is not None:
                before()
            self._changes += 1
            if self._changes % self.every == 0:
                self.look()

        dispatcher.on_change = on_change

    def look(self) -> None:
        """Everything that must hold between two steps of the ledger, and forget the events so far."""
        self.revoked += sum(event.leases for event in self.kit.events if isinstance(event, LeasesRevoked))
        self.kit.events.clear()
        self._look_at_slots()
        for node in self.simulated.nodes.values():
            host = node.host
            self._look_at_server(host.truth, len(host.in_flight), host.server.max_concurrent or self.limit)
            lent = self.kit.pool.dispatcher.ledger.lent(Url(node.url))
            assert len(host.in_flight) <= lent, f"{host.name} works on {len(host.in_flight)} for {lent} leases"

    def _look_at_slots(self) -> None:
        dispatcher = self.kit.pool.dispatcher
        held: Counter[Url] = Counter()
        for lease in dispatcher.held():
            held[lease.url] += lease.slots
        free = []
        for account in dispatcher.ledger:
            assert held.pop(account.url, 0) == account.lent, f"{account.url}: not what the tasks hold"
            if account.fits(1):
                free.append(account.url)
        assert not held, f"leases on endpoints that are forgotten: {held}"
        for ticket in dispatcher.ledger.tickets():
            assert set(free) <= ticket.barred, f"somebody waits while slots are free: {ticket}, {free[:5]}"

    def _look_at_server(self, truth: Truth, in_flight: int, most: int) -> None:
        assert truth.started == truth.finished + truth.cancelled + truth.lost + in_flight, truth
        assert truth.peak_in_flight <= most, f"{truth} where {most} is the cap"

    def look_at_the_end(self) -> None:
        """Nothing is left: no lease, no waiter, no request."""
        self.look()
        pool = self.kit.pool
        assert (pool.dispatcher.ledger.waiting, pool.dispatcher.held()) == (0, [])
        assert (pool.sessions.waiting, pool.sessions.taken, pool.sessions.paused) == (0, 0, 0)
        busy = [name for name, node in self.simulated.nodes.items() if node.host.in_flight]
        assert not busy, f"servers that still work for nobody: {busy}"


def samples_of(day: Day, churn: Churn) -> int:
    """How many samples are about the share of the fleet's work that the day asks for."""
    tokens = most_tokens(fleet_paces(churn.servers, churn.steps), day.churn.duration_s)
    return max(1, round(day.work_share * tokens / MEAN_TOKENS))


async def play_day(day: Day) -> Report:
    """Play a day and check it; raises :class:`AssertionError` for what did not hold."""
    churn = random_churn(day.random_seed, day.churn)
    samples = samples_of(day, churn)
    simulated = SimulatedFleet(churn.servers, churn.steps, day.random_seed)
    health = HealthSettings(interval=day.probe_interval_s)
    gc.collect()
    cpu_at, start_at = time.process_time(), trio.current_time()
    with watched_ledgers():
        async with open_kit(simulated, limit=LIMIT, poll_interval_s=day.poll_interval_s, health=health) as kit:
            results = Results()
            kit.sink.log = results
            watch = Watch(kit, simulated, LIMIT, every=max(50, len(churn.servers)))
            watch.install()
            with trio.move_on_after(50 * day.churn.duration_s) as patience:
                await kit.play(kit.job(Questions(samples)))
            makespan_s = trio.current_time() - start_at
            assert not patience.cancelled_caught, f"no end: {kit.pool.status()}"
            watch.look_at_the_end()
    assert (kit.run.stopped_by, kit.run.stalled) == (None, [])
    assert results.seen == Counter({(str(number), 0): 1 for number in range(samples)})
    paces = list(fleet_paces(churn.servers, churn.steps))
    bound_s = least_makespan_s(paces, results.tokens)
    most_at, most = next(entry for entry in results.so_far if entry[1] >= 0.95 * results.tokens)
    return Report(
        samples,
        len(results.errors),
        results.outcomes,
        watch.revoked,
        makespan_s,
        bound_s,
        (most_at - start_at) / least_makespan_s(paces, most),
        time.process_time() - cpu_at,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )
