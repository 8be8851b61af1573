"""What the tests of a whole run in memory share: a simulated fleet, an environment, a results file that is a list."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import attrs
import orjson
import trio
from image_kit import make_images
from in_place import InPlace

from scavenge.config.endpoint_rows import check_listing, pool_modes
from scavenge.core.health_settings import HealthSettings
from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.core.plan import OrderSettings, Plan
from scavenge.core.retry import RetrySettings
from scavenge.core.sessions.table import DEFAULT_SESSIONS, MakeSessions
from scavenge.events import Event
from scavenge.listings import Listing
from scavenge.rollouts import Example, Rollout
from scavenge.runtime.fleet import Fleet, FleetPorts, FleetSettings, open_fleet
from scavenge.runtime.hosting import LocalHost
from scavenge.runtime.imagepool import ImagePool
from scavenge.runtime.pool import Pool
from scavenge.runtime.ports import Environment, ModelSession, ModelTransport
from scavenge.runtime.run import Run, RunLimits
from scavenge.runtime.runner import EvalJob, EvalRun
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import SessionPorts
from scavenge.runtime.sink import Sink
from scavenge.runtime.sources import NamedSource, lent
from scavenge.testing.fleet import SimulatedFleet
from scavenge.types import Endpoint, EndpointId, Json

POOL = EndpointId("sim")


class Questions(Environment):
    """Asks the model one thing an example."""

    multi_turn = False

    def __init__(self, count: int) -> None:
        self.count = count
        self.read = 0

    def examples(self) -> Iterator[Example]:
        for number in range(self.count):
            self.read += 1
            yield Example(str(number), {"question": f"What is {number} + 1?"})

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        reply = await model.chat([{"role": "user", "content": str(example.data["question"])}])
        return Rollout(reply.text, 1.0)


@attrs.define(eq=False)
class Lines:
    """A results file in memory."""

    written: list[Json] = attrs.field(factory=list)

    def append(self, lines: Sequence[bytes]) -> None:
        self.written.extend(orjson.loads(line) for line in lines)

    @property
    def keys(self) -> list[tuple[object, object, object]]:
        return [(line["eval"], line["example_id"], line["rollout"]) for line in self.written]

    def attempts(self) -> list[Json]:
        return [attempt for line in self.written for attempt in line["attempts"]]


@attrs.define(eq=False)
class Kit:
    """A run in memory that is open."""

    fleet: Fleet
    run: Run
    sink: Sink
    lines: Lines
    events: list[Event]
    ports: SessionPorts
    images: ImagePool = attrs.field(factory=lambda: make_images().pool)
    """Not at work, so for evaluations that need none."""
    _ages: Iterator[int] = attrs.field(factory=itertools.count)

    @property
    def pool(self) -> Pool:
        return self.fleet.pools[POOL]

    def job(
        self, environment: Environment, name: str = "test", images: ImagePool | None = None, **settings: object
    ) -> EvalRun:
        """An evaluation of *environment*; *settings* are fields of the job, the plan or the requests."""
        plan_keys = {"rollouts_per_example", "num_examples", "done"}
        request_keys = {"stream", "idle_timeout", "request_timeout", "sampling", "retry"}
        pool = settings.pop("pool") if "pool" in settings else self.pool
        plan = Plan(
            name,
            "test-env",
            settings=OrderSettings("file"),
            **{key: settings.pop(key) for key in plan_keys & settings.keys()},  # type: ignore[arg-type]
        )
        requests = RequestSettings(**{key: settings.pop(key) for key in request_keys & settings.keys()})  # type: ignore[arg-type]
        host = LocalHost(name, "test-env", environment, InPlace(), self.events.append)
        job = EvalJob(name, "test-env", host, plan, pool, requests, **settings)  # type: ignore[arg-type]
        return EvalRun(job, self.sink, self.ports, lambda: next(self._ages), images or self.images)

    async def play(self, *evals: EvalRun) -> None:
        """Run evaluations to their end and write all that is pending."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.sink.run_sink)
            await self.run.play(evals)
            self.sink.close()


def check(listing: Listing, present: Sequence[Endpoint]):
    return check_listing(listing, {}, present=pool_modes(present))


@attrs.frozen
class Renamed:
    """Lists the endpoints of a fleet with another model than they serve."""

    fleet: SimulatedFleet
    model: str

    async def list_endpoints(self) -> Listing:
        listing = await self.fleet.list_endpoints()
        return Listing([attrs.evolve(row, model=self.model) for row in listing.endpoints])


@asynccontextmanager
async def open_kit(
    simulated: SimulatedFleet,
    *,
    limit: int = 8,
    elastic: bool = True,
    poll_interval_s: float = 1.0,
    health: HealthSettings | None = None,
    limits: RunLimits | None = None,
    wanted: Sequence[EndpointId] = (POOL,),
    rename: str | None = None,
    transport: ModelTransport | None = None,
    fixed: Sequence[Endpoint] = (),
    sources: Sequence[NamedSource] = (),
    sessions: MakeSessions = DEFAULT_SESSIONS,
) -> AsyncIterator[Kit]:
    """Open a run over a simulated fleet on the test's clock."""
    events: list[Event] = []
    source = simulated if rename is None else Renamed(simulated, rename)
    start = trio.current_time()

    def wall_clock() -> float:
        return 1_800_000_000.0 + trio.current_time() - start

    ports = FleetPorts(
        sources=sources or [lent("simulated", source)],
        check=check,
        transport=transport or simulated,
        make_policy=lambda: Fixed(FixedSettings(limit)),
        emit=events.append,
        random=Random(7),
        wall_clock=wall_clock,
        make_sessions=sessions,
    )
    settings = FleetSettings(elastic, poll_interval_s, health or HealthSettings())
    async with simulated.open(), open_fleet(wanted, settings, ports, fixed) as fleet:
        run = Run(limits or RunLimits(), events.append, wall_clock)
        lines = Lines()
        sink = Sink(lines, run.on_durable, InPlace())
        yield Kit(fleet, run, sink, lines, events, SessionPorts(events.append, Random(8), wall_clock))


NO_RETRIES = RetrySettings(max_retries=0)
