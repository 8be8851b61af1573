"""A case of benchmarks/gates.py behind the real pool: fleet, dispatcher, sessions, health, on Trio's virtual clock.

The server is a simulated one that answers in memory; requests carry their length with them. There are always some more
that wait for a slot, so that the gate alone decides. The endpoint is new at the start and opens up step by step, which
the plain loop leaves out, and requests that time out are sent again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Literal

import attrs
import trio
from gate_policies import make_policy
from trio.testing import MockClock

from scavenge.config.endpoint_rows import check_listing, pool_modes
from scavenge.core.health_settings import HealthSettings
from scavenge.events import AttemptEnded, AttemptStarted, Event, LimitMoved, Observer
from scavenge.listings import CheckedListing, Listing
from scavenge.runtime.fleet import FleetPorts, FleetSettings, open_fleet
from scavenge.runtime.pool import Pool
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import Session, SessionPorts
from scavenge.runtime.sources import lent
from scavenge.testing import SimulatedFleet, SimulatedServer, faults
from scavenge.testing.closed_loop_case import Change, LoopCase, Tells
from scavenge.testing.closed_loop_report import LimitMove, LoopReport, LoopRow
from scavenge.types import Endpoint, EndpointId, RequestFailed

POOL = EndpointId("sim")
SPARE = 16
"""How many requests wait for a slot at least."""
EPOCH = 1_800_000_000.0
METRICS: Mapping[Tells, Literal["vllm", "llama"] | None] = {
    Tells.NOTHING: None,
    Tells.VLLM: "vllm",
    Tells.LLAMA_CPP: "llama",
}


def play(case: LoopCase, policy: str, seed: int) -> LoopReport:
    """Run a policy on a case."""
    return trio.run(_play, case, policy, seed, clock=MockClock(autojump_threshold=0))


@attrs.define(eq=False)
class Backlog:
    """Requests without end: as many tasks as are in flight, and a few that wait."""

    case: LoopCase
    pool: Pool
    ports: SessionPorts
    nursery: trio.Nursery
    sizes: random.Random
    report: LoopReport
    asked: int = 0
    tokens: int = 0
    starting: int = 0
    """Requests whose task has not run yet."""

    def fill(self) -> None:
        """Have enough requests wait."""
        while self.pool.dispatcher.ledger.waiting + self.starting < SPARE:
            self.starting += 1
            self.nursery.start_soon(self._ask)

    async def _ask(self) -> None:
        prompt, output = self.case.workload.draw(self.sizes)
        settings = RequestSettings(stream=self.case.streamed, request_timeout=self.case.request_timeout_s)
        session = Session(self.pool, self.asked, settings, self.ports)
        self.asked += 1
        self.starting -= 1
        try:
            completion = await session.chat(
                [{"role": "user", "content": str(self.asked)}],
                max_tokens=output,
                ignore_eos=True,
                simulated={"prompt_tokens": prompt},
            )
        except RequestFailed:
            return
        self.tokens += completion.usage.completion_tokens or 0
        self.report.finished += 1

    def hear(self, event: Event) -> None:
        """Count what happens, and have more wait when one goes out."""
        match event:
            case AttemptStarted():
                self.report.requests += 1
                self.fill()
            case AttemptEnded(attempt=attempt):
                counter = {"timeout": "timeouts", "busy": "refused", "failed": "errors", "lost": "lost"}
                if (name := counter.get(attempt.outcome)) is not None:
                    setattr(self.report, name, getattr(self.report, name) + 1)
            case LimitMoved(new=new, reason=reason):
                self.report.moves.append(LimitMove(trio.current_time(), new, reason))

    async def run_changes(self, fleet: SimulatedFleet) -> None:
        """Let the changes of the case happen."""
        node = fleet.nodes["server"]
        for change in sorted(self.case.changes, key=lambda change: change.at):
            await trio.sleep_until(change.at)
            if change.workload is not None:
                self.case = attrs.evolve(self.case, workload=change.workload)
            for fault in _faults(change):
                node.apply(fault)
            if change.down_s is not None:
                node.apply(faults.Kill())
                await trio.sleep(change.down_s)
                node.apply(faults.Join())

    async def run_rows(self, fleet: SimulatedFleet) -> None:
        """Note a row every few seconds, until the end."""
        sample_s, told = self.case.sample_s, 0
        self.fill()
        for number in range(1, int(self.case.seconds / sample_s) + 1):
            await trio.sleep_until(number * sample_s)
            limit = sum(member.limit for member in self.pool.members.values())
            lent_slots = sum(self.pool.dispatcher.ledger.lent(url) for url in self.pool.members)
            speed = (self.tokens - told) / sample_s  # what is generated and not completed is not told
            waiting = fleet.nodes["server"].host.waiting
            self.report.rows.append(LoopRow(number * sample_s, speed, speed, limit, lent_slots, waiting))
            told = self.tokens
            self.fill()


def _faults(change: Change) -> list[faults.Fault]:
    found: list[faults.Fault] = []
    if change.speed is not None:
        found.append(faults.Slow(1 / change.speed))
    if change.kv is not None:
        found.append(faults.Kv(change.kv))
    if change.slots is not None:
        found.append(faults.Cap(slots=change.slots))
    return found


async def _play(case: LoopCase, policy: str, seed: int) -> LoopReport:
    report = LoopReport()
    heard: list[Observer] = []
    server = SimulatedServer("server", case.server, max_concurrent=case.max_concurrent, metrics=METRICS[case.tells])
    fleet = SimulatedFleet([server], random_seed=seed)
    sizes = random.Random(seed)

    def wall_clock() -> float:
        return EPOCH + trio.current_time()

    def emit(event: Event) -> None:
        for observer in heard:
            observer(event)

    ports = FleetPorts(
        sources=[lent("simulated", fleet)],
        check=_check,
        transport=fleet,
        make_policy=lambda: make_policy(policy),
        emit=emit,
        random=random.Random(seed),
        wall_clock=wall_clock,
    )
    settings = FleetSettings(elastic=True, poll_interval_s=10.0, health=HealthSettings())
    async with fleet.open(), open_fleet([POOL], settings, ports) as opened, trio.open_nursery() as nursery:
        if case.error_rate:
            fleet.nodes["server"].apply(faults.Error(500, case.error_rate))
        session_ports = SessionPorts(emit, random.Random(seed), wall_clock)
        backlog = Backlog(case, opened.pools[POOL], session_ports, nursery, sizes, report)
        heard.append(backlog.hear)
        nursery.start_soon(backlog.run_changes, fleet)
        await backlog.run_rows(fleet)
        nursery.cancel_scope.cancel()
    report.preemptions = _preemptions(fleet)
    return report


def _preemptions(fleet: SimulatedFleet) -> int:
    load = fleet.nodes["server"].host.load(trio.current_time())
    return 0 if load is None else load.preemptions or 0


def _check(listing: Listing, present: Sequence[Endpoint]) -> CheckedListing:
    return check_listing(listing, {}, present=pool_modes(present))
