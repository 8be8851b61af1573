"""``scavenge endpoints``: opens the pools that a file leads to, as a run would, and shows how they are.

Asks the sources and probes the endpoints; sends no request to a model and writes no file. What is shown, and whether it
is enough, is decided by :mod:`scavenge.core.endpoints_view`.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Protocol

import attrs
import orjson
import trio

from scavenge.app.console import screen_on_stderr
from scavenge.app.parts import Parts, make_parts, named_sources
from scavenge.app.pool_files import pool_settings
from scavenge.config.endpoint_rows import check_listing, pool_modes
from scavenge.config.schema import RunSettings
from scavenge.core.endpoints_view import (
    as_json,
    can_serve,
    endpoint_table,
    filled,
    is_settled,
    narrowed,
    news,
    notes,
    redacted,
)
from scavenge.core.health_settings import HealthSettings
from scavenge.core.naming import shown, suggestion
from scavenge.edge.console import Drawing, Screen
from scavenge.edge.console_table import table_text
from scavenge.edge.logs import set_up_logs
from scavenge.edge.machine import raise_descriptor_limit
from scavenge.edge.model_http import HttpModelTransport
from scavenge.edge.sources.file import read_endpoints_file
from scavenge.environments.references import importable
from scavenge.errors import ConfigError, NoEndpointsError, Problem, SourceError, UsageError, single_error
from scavenge.events import Event
from scavenge.listings import CheckedListing, Listing
from scavenge.runtime.fleet import Fleet, FleetPorts, FleetSettings, open_fleet
from scavenge.runtime.member import PROBE_WITHIN_S
from scavenge.runtime.shutdown import signals_end_the_run
from scavenge.status import FleetStatus
from scavenge.types import Endpoint, EndpointId

PROBE_EVERY_S = 5.0
"""How often an endpoint that is well is probed at least: a run hears of a death from its requests, here are none."""
SETTLED_WITHIN_S = PROBE_WITHIN_S + 2.0
"""How long ``once`` waits for first probes: a probe's own deadline, and some."""
LOOK_EVERY_S = 0.1
DRAW_EVERY_S = 0.5
TELL_EVERY_S = 1.0
SPARE_LINES = 3
"""Lines of a terminal that are not for endpoints: the head of the table, the count of the others, and a free one."""


class Output(Protocol):
    """Where results are written."""

    @property
    def is_terminal(self) -> bool:
        """Whether somebody sees it as it comes."""
        ...

    def write(self, text: str) -> None:
        """Write a text and a line break."""
        ...

    def is_read(self) -> bool:
        """Whether anybody can still read it."""
        ...


@attrs.frozen
class View:
    """What is shown, and how. ``pools``: only these; all where it is empty."""

    pools: tuple[str, ...] = ()
    once: bool = False
    as_json: bool = False


def show_endpoints(path: Path, view: View, output: Output) -> int:
    """Show the endpoints that the evaluation or endpoints file at *path* leads to, and return the exit code.

    Raises :class:`ConfigError` and :class:`UsageError` before anything is asked, :class:`NoEndpointsError` where there
    is nothing that could be watched.
    """
    screen = screen_on_stderr()
    set_up_logs(screen, "warning")
    settings = pool_settings(path, (), need_evals=True)
    pools = _pools(path, settings)
    parts = make_parts(settings)
    wanted = _chosen(pools, view.pools)
    if not wanted and not view.once:
        raise NoEndpointsError(f"{path}: no endpoint is listed; add one, or name an evaluation file, which waits")
    raise_descriptor_limit()
    return trio.run(_Viewer(parts, wanted, view, screen, output).show)


def _pools(path: Path, settings: RunSettings) -> tuple[EndpointId, ...]:
    """The pools that the evaluations need; of an endpoints file, those that it lists now."""
    if settings.evals:
        return tuple(dict.fromkeys(one.pool_id for one in settings.evals))
    try:
        checked = check_listing(attrs.evolve(read_endpoints_file(path), where=str(path)), os.environ)
    except SourceError as exc:
        raise ConfigError([Problem(str(path), str(exc).removeprefix(f"{path}: "))]) from None
    if checked.bad:
        raise ConfigError(problem for row in checked.bad for problem in row.problems)
    return tuple(dict.fromkeys(endpoint.endpoint_id for endpoint in checked.endpoints))


def _chosen(pools: Sequence[EndpointId], names: Sequence[str]) -> tuple[EndpointId, ...]:
    for name in names:
        if name not in pools:
            raise UsageError(f"--pool: unknown pool {shown(name)}; {suggestion(name, pools)}")
    return tuple(pool for pool in pools if not names or pool in names)


@attrs.define(eq=False)
class _Viewer:
    """One look at a fleet, from its opening to the exit code."""

    parts: Parts
    wanted: tuple[EndpointId, ...]
    view: View
    screen: Screen
    output: Output
    exit_code: int = 0
    _clean: dict[str, str] = attrs.field(factory=dict)
    """What became of texts since the last listing: thousands of endpoints are drawn twice a second."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    async def show(self) -> int:
        """Show the fleet until it has been shown once, the reader is gone, or a signal comes."""
        settings = self.parts.settings
        fleet_settings = FleetSettings(True, settings.elastic_poll_interval, _eager(settings.health))
        for endpoint in self.parts.fixed:
            self.screen.redact.hide_endpoint(endpoint.secret, endpoint.headers)
        with (
            signals_end_the_run(self._on_signal, _kill, time.monotonic),
            importable(settings.base_dir),
            single_error(),
            self._scope,
        ):
            async with open_fleet(self.wanted, fleet_settings, self._ports(), self.parts.fixed) as fleet:
                await self._show(fleet)
        return self.exit_code

    def _ports(self) -> FleetPorts:
        return FleetPorts(
            sources=named_sources(self.parts),
            check=self._check,
            transport=HttpModelTransport(),
            make_policy=self.parts.make_policy,
            emit=_unheard,
            random=Random(),  # noqa: S311 - jitter, not a secret
            wall_clock=time.time,
        )

    async def _show(self, fleet: Fleet) -> None:
        if self.view.once:
            await self._once(fleet)
        elif self.screen.interactive and self.output.is_terminal and not self.view.as_json:
            await self._draw(fleet)
        else:
            await self._tell(fleet)

    def _on_signal(self, number: signal.Signals) -> None:
        self.exit_code = 128 + number
        self._scope.cancel()

    def _check(self, listing: Listing, present: Sequence[Endpoint]) -> CheckedListing:
        checked = check_listing(listing, os.environ, present=pool_modes(present))
        for endpoint in checked.endpoints:
            self.screen.redact.hide_endpoint(endpoint.secret, endpoint.headers)
        self._clean.clear()  # there may be another secret now
        return checked

    def _redact(self, text: str) -> str:
        if (clean := self._clean.get(text)) is None:
            clean = self._clean[text] = self.screen.redact(text)
        return clean

    def _status(self, fleet: Fleet) -> FleetStatus:
        return redacted(fleet.status(trio.current_time()), self._redact)

    async def _wait_settled(self, fleet: Fleet) -> None:
        await trio.lowlevel.checkpoint()
        while not is_settled(fleet.status(trio.current_time())):  # noqa: ASYNC110 - nobody tells of a failed probe
            await trio.sleep(LOOK_EVERY_S)

    async def _once(self, fleet: Fleet) -> None:
        with trio.move_on_after(SETTLED_WITHIN_S):
            await self._wait_settled(fleet)
        status = self._status(fleet)
        self.exit_code = 0 if can_serve(status) else NoEndpointsError.exit_code
        self.output.write(_json(status, orjson.OPT_INDENT_2) if self.view.as_json else _text(status))

    async def _draw(self, fleet: Fleet) -> None:
        with self.screen.drawing() as draw:
            while not self.screen.gone:
                draw(Drawing(_fitting(self._status(fleet), shutil.get_terminal_size())))
                await trio.sleep(DRAW_EVERY_S)

    async def _tell(self, fleet: Fleet) -> None:
        text: Callable[[FleetStatus], str] = _json if self.view.as_json else _dated
        told: FleetStatus | None = None
        with trio.move_on_after(TELL_EVERY_S):  # so that the first thing to be told is not that nothing is known
            await self._wait_settled(fleet)
        while self.output.is_read():
            status = self._status(fleet)
            if (now := news(status)) != told:
                told = now
                self.output.write(text(status))
            await trio.sleep(TELL_EVERY_S)


def _eager(health: HealthSettings) -> HealthSettings:
    return attrs.evolve(health, interval=min(health.interval, PROBE_EVERY_S))


def _kill(number: signal.Signals) -> None:
    os._exit(128 + number)


def _unheard(event: Event) -> None:
    """Nobody observes the fleet; its status tells how it is."""


def _text(status: FleetStatus) -> str:
    """The table and the lines below it."""
    table = filled(endpoint_table(status)[0])
    return "\n".join([*([table_text(table.head, table.rows)] if table.rows else []), *notes(status)])


def _fitting(status: FleetStatus, size: os.terminal_size) -> list[str]:
    """The same for a terminal: what there is no room for is left out, what is well first."""
    below = notes(status)
    table, more = endpoint_table(status, max(1, size.lines - len(below) - SPARE_LINES))
    table = narrowed(filled(table), size.columns)
    return [*table_text(table.head, table.rows).splitlines(), *([more] if more else []), *below]


def _dated(status: FleetStatus) -> str:
    return f"{datetime.now():%Y-%m-%d %H:%M:%S}\n{_text(status)}\n"


def _json(status: FleetStatus, option: int = 0) -> str:
    return orjson.dumps(as_json(status), option=option).decode()
