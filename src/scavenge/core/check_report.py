"""What ``scavenge check`` found, whether that is enough to run, and the tables that show it. Pure; looks at nothing.

Invariant: nothing in here is a secret: keys are named by their variables, proxies by host and port.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from scavenge.core.endpoints_view import source_cell
from scavenge.core.figures import size
from scavenge.core.health_state import State
from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.core.naming import listed
from scavenge.core.progress_view import TAKES_WORK
from scavenge.core.summary import Table
from scavenge.errors import Problem
from scavenge.types import CapChanged

SPARE_DESCRIPTORS = 64
"""Files and sockets a run has open beside one for each slot."""
LITTLE_DISK_BYTES = 1 << 30


@attrs.frozen
class EndpointFinding:
    """One endpoint. ``outcome`` is ``healthy`` or an outcome's name; ``listed``: whether the server names the model."""

    endpoint_id: str
    url: str
    model: str
    max_concurrent: int | None
    source: str
    """The source that lists it; empty for the server that an eval names itself."""
    draining: bool
    key: str
    proxy: str
    addresses: str
    tls: str
    outcome: str
    listed: bool
    probe_s: float
    said: str

    @property
    def state(self) -> str:
        """The state in which a run that begins now would have it after this probe."""
        if self.draining:
            return "draining"
        match self.outcome:
            case "healthy" if self.listed:
                return State.LIVE.value
            case "healthy":
                return State.PROBATION.value
            case "misrouted":
                return State.MISCONFIGURED.value
            case _:
                return State.PROBING.value

    @property
    def usable(self) -> bool:
        """Whether it would be given work."""
        return self.state in TAKES_WORK


@attrs.frozen
class Machine:
    """What this machine grants a run: file descriptors, and free bytes where results go (``None``: not asked)."""

    descriptors: int
    output_dir: str | None = None
    free_bytes: int | None = None


@attrs.frozen
class EngineFinding:
    """The container engine. ``trouble`` is empty where it answers; bytes are ``None`` where they cannot be seen."""

    trouble: str
    said: str = ""
    free_bytes: int | None = None
    floor_bytes: int | None = None
    """What a run leaves free."""


@attrs.frozen
class CheckReport:
    """Everything that was found. ``pools`` are those that need a usable endpoint.

    ``admission`` are the settings of the policy ``fixed``; ``None``: another policy decides, or none is known.
    """

    file: str
    kind: str
    machine: Machine
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    endpoints: tuple[EndpointFinding, ...] = ()
    admission: FixedSettings | None = None
    engine: EngineFinding | None = None
    """``None``: no evaluation is known to need one."""

    @property
    def slots(self) -> int:
        """How many requests there may be at once, without those of :attr:`uncapped` endpoints."""
        return sum(self._slots_of(found) or 0 for found in self.endpoints)

    @property
    def uncapped(self) -> int:
        """How many endpoints there are for which nothing that is known bounds the requests."""
        return sum(self._slots_of(found) is None for found in self.endpoints)

    def _slots_of(self, found: EndpointFinding) -> int | None:
        if self.admission is None:
            return found.max_concurrent
        policy = Fixed(self.admission)
        policy.observe(CapChanged(found.max_concurrent), 0.0)
        limit = policy.limit(0.0)
        return limit if found.max_concurrent is None else min(limit, found.max_concurrent)

    @property
    def unserved(self) -> tuple[str, ...]:
        """The pools without a usable endpoint."""
        served = {found.endpoint_id for found in self.endpoints if found.usable}
        return tuple(pool for pool in self.pools if pool not in served)

    @property
    def exit_code(self) -> int:
        """0: right and served; 2: the file is wrong; 4: a pool, or all of them, has no usable endpoint."""
        if self.problems:
            return 2
        return 4 if self.unserved or not self.pools else 0

    def as_json(self) -> dict[str, object]:
        """Everything, with the verdict."""
        return {
            **attrs.asdict(self),
            "endpoints": [{**attrs.asdict(found), "state": found.state} for found in self.endpoints],
            "problems": [str(problem) for problem in self.problems],
            "warnings": [*self.warnings, *self.machine_warnings()],
            "unserved": self.unserved,
            "exit_code": self.exit_code,
        }

    def machine_warnings(self) -> list[str]:
        """What this machine may have too little of."""
        warnings = []
        needed = self.slots + SPARE_DESCRIPTORS
        if needed > self.machine.descriptors:
            warnings.append(
                f"{self.slots} slots need {needed} file descriptors, the system grants {self.machine.descriptors}: have"
                " the hard limit raised (`ulimit -Hn` shows it), or list smaller max_concurrent"
            )
        free_bytes = self.machine.free_bytes
        if free_bytes is not None and free_bytes < LITTLE_DISK_BYTES:
            warnings.append(f"only {_gib(free_bytes)} free in output_dir {self.machine.output_dir}")
        return [*warnings, *self._engine_warnings()]

    def _engine_warnings(self) -> Iterator[str]:
        found = self.engine
        if found is None:
            return
        if found.trouble:
            yield f"container images: {found.trouble}"
        elif found.free_bytes is not None and found.free_bytes < (found.floor_bytes or 0):
            room = f"{size(found.free_bytes)} free, and {size(found.floor_bytes or 0)} are to stay free (min_free_disk)"
            yield f"container images: {found.said} has no room for another image: {room}"

    def verdict(self) -> str:
        """The result in one line."""
        if self.problems:
            return f"{self.file}: {len(self.problems)} problem{'s' * (len(self.problems) != 1)}"
        if not self.pools:
            return f"{self.file}: the {self.kind} file is right, but there is no endpoint"
        if self.unserved:
            return f"{self.file}: the {self.kind} file is right; without a usable endpoint: {listed(self.unserved)}"
        return f"{self.file}: the {self.kind} file is right, and every pool has a usable endpoint"


def endpoint_table(endpoints: Sequence[EndpointFinding]) -> Table:
    """One row an endpoint."""
    head = ("pool", "endpoint", "state", "probe", "model", "cap", "key", "proxy", "address", "TLS", "source", "said")
    return Table("endpoints", head, tuple(_row(found) for found in endpoints))


def _row(found: EndpointFinding) -> tuple[str, ...]:
    return (
        found.endpoint_id,
        found.url,
        found.state,
        f"{found.outcome}, {found.probe_s * 1000:.0f} ms",
        found.model if found.listed else f"{found.model} (not confirmed)",
        "–" if found.max_concurrent is None else str(found.max_concurrent),
        found.key,
        found.proxy,
        found.addresses,
        found.tls,
        source_cell(found.source),
        found.said or "–",
    )


def machine_line(report: CheckReport) -> str:
    """File descriptors against slots, and the disk."""
    slots = f"{report.slots} slots"
    if report.uncapped:
        slots += f" and {report.uncapped} endpoint{'s' * (report.uncapped != 1)} with no cap"
    machine = report.machine
    disk = "" if machine.free_bytes is None else f"; {_gib(machine.free_bytes)} free in output_dir {machine.output_dir}"
    return f"{machine.descriptors} file descriptors for {slots}{disk}"


def engine_line(found: EngineFinding) -> str:
    """What the container engine is, and its disk."""
    if found.trouble:
        return "container engine: none that answers"
    disk = "" if found.free_bytes is None else f"; {size(found.free_bytes)} free on the disk of its images"
    return f"container engine: {found.said}{disk}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"
