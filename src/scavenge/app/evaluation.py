"""Runs an evaluation file: opens what a run needs, plays it, and tells what came of it. Prints nothing.

Order of opening, the last one closed first: signal watcher, run folder, event log, sink, fleet with its sources,
container images, evaluations. So whatever ends the work, results that were handed in are on disk before the summary is
written, and the folder is given up last.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random

import attrs
import trio

from scavenge.app.door import open_door
from scavenge.app.hosts import HostPorts, make_hosts, worker_pools
from scavenge.app.images import ImageOpening, open_image_pool
from scavenge.app.jobs import make_jobs
from scavenge.app.options import RunOptions, adapted, load, odd_settings
from scavenge.app.parts import Parts, make_parts, named_sources
from scavenge.app.resume import Earlier, RunIdentity, identity_of, open_earlier
from scavenge.app.verdict import verdict
from scavenge.config.dump import dump
from scavenge.config.endpoint_rows import check_listing
from scavenge.config.schema import RunSettings
from scavenge.core.plan import Plan
from scavenge.core.redaction import Redactor
from scavenge.core.summary import Summary
from scavenge.core.tally import EvalTally, Tally
from scavenge.edge.event_log import EventLog
from scavenge.edge.lookout import Lookout
from scavenge.edge.machine import raise_descriptor_limit
from scavenge.edge.model_http import HttpModelTransport
from scavenge.edge.results import HidingLog, JsonlLog
from scavenge.edge.run_folder import RunFolder, create_run_folder, open_run_folder
from scavenge.edge.threads import LimitedThreads
from scavenge.environments.references import importable
from scavenge.errors import (
    ConfigError,
    Interrupted,
    PluginError,
    ResultsError,
    ScavengeError,
    UsageError,
    single_error,
)
from scavenge.events import Event, Observer, RunStarted, Warned
from scavenge.listings import CheckedListing, Listing
from scavenge.runtime.fleet import FleetPorts, FleetSettings, open_fleet
from scavenge.runtime.hosting import Host
from scavenge.runtime.imagepool import ImagePool
from scavenge.runtime.run import Run, RunLimits
from scavenge.runtime.runner import EvalJob, EvalRun
from scavenge.runtime.session import SessionPorts
from scavenge.runtime.shutdown import signals_end_the_run
from scavenge.runtime.sink import Sink
from scavenge.runtime.watchdog import open_watchdog
from scavenge.runtime.workerhost import open_workers
from scavenge.types import Endpoint

SUMMARY_EVERY_S = 10.0
READING_THREADS = 4


@attrs.frozen
class RunResult:
    """How a run ended. ``why`` is one line, ``None`` when every sample has a result."""

    exit_code: int
    why: str | None
    summary: Summary
    run_dir: Path


async def run_evaluation(
    source: Path | str | RunSettings | None,
    *,
    options: RunOptions | None = None,
    observers: Sequence[Observer] = (),
    redact: Redactor | None = None,
) -> RunResult:
    """Run an evaluation file (or its settings) to the end, as ``scavenge run`` does.

    *observers* hear of every event; *redact* learns the endpoints' keys, for whoever shows texts. In the main thread
    SIGINT and SIGTERM end the run in good order. Raises :class:`scavenge.errors.ConfigError` and
    :class:`scavenge.errors.UsageError` before anything is started. Cancelled, it writes what was finished.
    """
    options = options or RunOptions()
    if isinstance(source, RunSettings):
        settings = adapted(source, options)
    else:
        settings = load(None if source is None else Path(source), options)
    parts = make_parts(settings)
    raise_descriptor_limit()
    conductor = _Conductor(parts, options, tuple(observers), redact or Redactor.of_environ(os.environ))
    with importable(settings.base_dir), _signals(conductor.on_signal):
        return await conductor.conduct()


def _signals(stop: Callable[[signal.Signals], None]) -> AbstractContextManager[None]:
    if threading.current_thread() is not threading.main_thread():
        return nullcontext()
    return signals_end_the_run(stop, lambda number: os._exit(128 + number), time.monotonic)


@attrs.define(eq=False)
class _Conductor:
    """One run from its folder to its result."""

    parts: Parts
    options: RunOptions
    observers: tuple[Observer, ...]
    redact: Redactor
    random: Random = attrs.field(factory=Random)
    """For jitter."""
    run: Run = attrs.field(init=False)
    tally: Tally = attrs.field(init=False)
    plans: dict[str, Plan] = attrs.field(factory=dict)
    identity: RunIdentity = attrs.field(init=False)
    _preparing: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancelled by a signal that comes before the first rollout, so that it need not wait for a source that hangs."""
    _playing: bool = False
    _images: ImagePool | None = None

    def __attrs_post_init__(self) -> None:
        settings = self.parts.settings
        limits = RunLimits(settings.stall_timeout, settings.max_consecutive_failures, settings.elastic)
        self.run = Run(limits, self.emit, time.time)
        self.tally = Tally.of(EvalTally(one.name, one.env_id, one.rollouts_per_example) for one in settings.evals)

    def emit(self, event: Event) -> None:
        """Tell every observer."""
        self.tally.observe(event, trio.current_time())
        for observer in self.observers:
            observer(event)

    def on_signal(self, number: signal.Signals) -> None:
        """End the run because of a signal."""
        self.run.stop(Interrupted(number.name, number.value))
        if not self._playing:
            self._preparing.cancel()
        elif self._images is not None:
            self._images.hurry()

    async def conduct(self) -> RunResult:
        """Play the run and tell how it ended."""
        settings = self.parts.settings
        with self._open_folder() as folder:
            earlier = await trio.to_thread.run_sync(self._open_earlier, folder)
            event_log = EventLog(folder.events, self._warn, self.redact)
            self.observers = (*self.observers, event_log)
            self.emit(RunStarted(str(folder.path), tuple(one.name for one in settings.evals), earlier.kept))
            for warning in (*earlier.complaints, *odd_settings(settings)):
                self._warn(warning)
            try:
                with closing(event_log):
                    await self._keep(folder, earlier, event_log)
            except (ConfigError, UsageError, PluginError):
                if self._playing:
                    folder.write_summary(self._summary().as_json())
                elif self.options.resume is None:
                    folder.discard()
                raise
            except ScavengeError as exc:
                self.run.stop(exc)
            except BaseException:
                with suppress(ResultsError):  # the caller's cancellation, or a bug, is what to tell
                    folder.write_summary(self._summary().as_json())
                raise
            folder.write_summary(self._summary().as_json())
            ok = sum(one.ok for one in self.tally.evals.values())
            return RunResult(*verdict(self.run, ok, self.options), self._summary(), folder.path)

    def _open_earlier(self, folder: RunFolder) -> Earlier:
        """Find out what the results depend on, and what of them is there. Blocks."""
        pools = {one.name: one.pool_id for one in self.parts.settings.evals}
        hosted = self.parts.hosted
        self.identity = RunIdentity(folder, pools, identity_of(self.parts), hosted)
        if self.options.resume is not None:
            self.identity.take_over()
            folder.write_config(dump(self.parts.settings))  # so that the next part goes on with these settings
        self.identity.keep()
        return Earlier() if self.options.resume is None else open_earlier(folder, self.tally)

    def _open_folder(self) -> RunFolder:
        settings = self.parts.settings
        if self.options.resume is not None:
            return open_run_folder(self.options.resume)
        try:
            return create_run_folder(settings.output_dir, settings.name, dump(settings), datetime.now(UTC))
        except ResultsError as exc:  # nothing has begun
            raise UsageError(str(exc)) from exc

    async def _keep(self, folder: RunFolder, earlier: Earlier, event_log: EventLog) -> None:
        """Play, while results, events and figures are kept on disk."""
        with single_error(), closing(JsonlLog(folder.results)) as log, Lookout(folder.logs) as lookout:
            sink = Sink(HidingLog(log, self.redact.line), self.run.on_durable, LimitedThreads(1))
            async with trio.open_nursery() as keepers:
                keepers.start_soon(event_log.run_event_log)
                keepers.start_soon(lookout.run_beats)
                keepers.start_soon(self._keep_summary, folder)
                keepers.start_soon(self.identity.run_keeping, LimitedThreads(1))
                async with trio.open_nursery() as writing:
                    writing.start_soon(sink.run_sink)
                    try:
                        await self._play(folder, sink, earlier)
                    finally:
                        sink.close()
                keepers.cancel_scope.cancel()

    async def _keep_summary(self, folder: RunFolder) -> None:
        """Write the figures now and then, for a run that is killed."""
        threads, told = LimitedThreads(1), False
        while True:
            await trio.sleep(SUMMARY_EVERY_S)
            try:
                await threads.run(partial(folder.write_summary, self._summary().as_json()))
                told = False
            except ResultsError as exc:  # costs no result, and the next time, or the end of the run, writes them anew
                if not told:
                    self._warn(f"the figures are not kept up to date: {exc}")
                told = True

    async def _play(self, folder: RunFolder, sink: Sink, earlier: Earlier) -> None:
        settings = self.parts.settings
        fleet_settings = FleetSettings(settings.elastic, settings.elastic_poll_interval, settings.health)
        wanted = tuple(dict.fromkeys(one.pool_id for one in settings.evals))
        for endpoint in self.parts.fixed:
            self.redact.hide_endpoint(endpoint.secret, endpoint.headers)
        with self._preparing:
            ports, hosts = self._fleet_ports(), self._hosts(folder)
            pools = worker_pools(hosts)
            opening = ImageOpening.of(self.parts, self.emit, self.redact, self.random)
            async with (
                open_fleet(wanted, fleet_settings, ports, self.parts.fixed) as fleet,
                open_image_pool(opening) as images,
                open_watchdog(fleet, self.emit, lambda: [pool.status() for pool in pools], images.status) as watchdog,
                open_door(self.redact) as desk,
                open_workers(pools),
            ):
                self.observers = (*self.observers, watchdog)
                self._playing = True
                session_ports = SessionPorts(ports.emit, ports.random, ports.wall_clock, desk)
                jobs = make_jobs(self.parts, hosts, fleet, earlier.done)
                self._images = images
                await self.run.play(self._evals(jobs, sink, session_ports, images))
                if self.run.stopped_by is not None:
                    images.hurry()
            # here the connections are closed, so that there are descriptors to write with
            self.identity.keep()

    def _fleet_ports(self) -> FleetPorts:
        return FleetPorts(
            sources=named_sources(self.parts),
            check=self._check,
            transport=HttpModelTransport(),
            make_policy=self.parts.make_policy,
            emit=self.emit,
            random=self.random,
            wall_clock=time.time,
            make_sessions=self.parts.make_sessions,
        )

    def _check(self, listing: Listing, present: Sequence[Endpoint]) -> CheckedListing:
        checked = check_listing(listing, os.environ, present=self.identity.modes(present))
        self.identity.learn(checked.endpoints)
        for endpoint in checked.endpoints:
            self.redact.hide_endpoint(endpoint.secret, endpoint.headers)
        return checked

    def _hosts(self, folder: RunFolder) -> list[Host]:
        learn = self.identity.learn_environment
        return make_hosts(
            self.parts, HostPorts(folder.logs, LimitedThreads(READING_THREADS), self.random, self.emit, learn)
        )

    def _evals(self, jobs: Sequence[EvalJob], sink: Sink, ports: SessionPorts, images: ImagePool) -> list[EvalRun]:
        ages = itertools.count()
        self.plans = {job.name: job.plan for job in jobs}
        return [EvalRun(job, sink, ports, ages.__next__, images) for job in jobs]

    def _warn(self, message: str) -> None:
        self.emit(Warned(message))

    def _summary(self) -> Summary:
        owed = {name: plan.owed_at_start for name, plan in self.plans.items()}
        return self.tally.summary(owed, trio.current_time())
