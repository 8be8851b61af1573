"""From what was staged to where it is played: in this process, or in workers with all that those need."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import attrs

from scavenge.app.parts import Parts
from scavenge.config.dump import dump_table
from scavenge.config.schema import EvalSettings, RunSettings, WorkerSettings
from scavenge.core.supervision import SupervisorSettings
from scavenge.core.worker_messages import Load
from scavenge.edge.worker_process import ProcessLauncher
from scavenge.environments.loader import Staged
from scavenge.events import Observer
from scavenge.runtime.hosting import Host, LocalHost
from scavenge.runtime.ports import Threads
from scavenge.runtime.workerhost import WorkerHost
from scavenge.runtime.workerpool import WorkerPool
from scavenge.types import Json


@attrs.frozen(eq=False)
class HostPorts:
    """What hosts need of a run. ``learn`` is told what the results of an evaluation in workers depend on."""

    logs: Path
    threads: Threads
    random: Random
    emit: Observer
    learn: Callable[[str, Json], None]


def make_hosts(parts: Parts, ports: HostPorts) -> list[Host]:
    """The host of each evaluation, in their order. Starts nothing."""
    settings = parts.settings
    return [
        _make_host(settings, index, one, staged, ports)
        for index, (one, staged) in enumerate(zip(settings.evals, parts.staged, strict=True))
    ]


def worker_pools(hosts: list[Host]) -> list[WorkerPool]:
    """The pools of those hosts that have one."""
    return [host.pool for host in hosts if isinstance(host, WorkerHost)]


def _make_host(settings: RunSettings, index: int, one: EvalSettings, staged: Staged, ports: HostPorts) -> Host:
    if staged.environment is not None:
        return LocalHost(one.name, one.env_id, staged.environment, ports.threads, ports.emit)
    where = str(settings.where.at("eval", index))
    load = Load(one.env_id, dump_table(one.env_args), str(settings.base_dir), where, _import_path())
    launcher = ProcessLauncher(logs=ports.logs, environ=dict(os.environ))
    supervision = supervisor_settings(settings.workers)
    pool = WorkerPool(one.name, load, launcher, supervision, ports.random, ports.threads, ports.emit)
    return WorkerHost(pool, lambda told: ports.learn(one.name, told))


def _import_path() -> tuple[str, ...]:
    """Where this process finds modules, as it reads in a process that may have another working directory."""
    return tuple(os.path.abspath(entry) for entry in sys.path)


def supervisor_settings(workers: WorkerSettings) -> SupervisorSettings:
    """The settings of a pool. ``max``, where absent, is as many as this process has cores, but no less than ``min``."""
    cores = len(os.sched_getaffinity(0))
    return SupervisorSettings(
        min=workers.min,
        max=max(workers.min, cores) if workers.max is None else workers.max,
        multiplex=workers.multiplex,
        startup_timeout_s=workers.startup_timeout,
        restart_backoff_max_s=workers.restart_backoff_max,
        request_deadline_s=workers.request_deadline,
    )
