"""The gateway for whoever asks: from a file to a server with the pools behind it. Prints nothing, hears no signal.

Order of opening, the last one closed first: the port (one that is taken is told before anything is asked), the fleet
with its sources, the watch, the desk with its sessions, the server. So clients are cut off first, then sessions give
their places back, and nothing that serves is missed by then.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import attrs
import orjson
import trio

from scavenge.app.fleet_ports import fleet_ports
from scavenge.app.parts import Parts, make_parts, named_sources
from scavenge.app.pool_files import pool_settings
from scavenge.app.pool_watch import Telling, open_fleet_watch
from scavenge.calls import Page
from scavenge.config.schema import GatewaySettings, RunSettings
from scavenge.core.endpoints_view import redacted
from scavenge.core.gateway_view import health_of, status_document
from scavenge.core.redaction import Redactor
from scavenge.core.retry import RetrySettings
from scavenge.edge.gateway.limits import GatewayLimits
from scavenge.edge.gateway.server import Gateway, GatewayListener, open_listener
from scavenge.edge.metrics import Metrics
from scavenge.environments.references import importable
from scavenge.errors import ConfigError, Problem, UsageError, single_error
from scavenge.events import Observer
from scavenge.runtime.fleet import Fleet, FleetSettings, open_fleet
from scavenge.runtime.pool_desk import DeskSettings, PoolDesk
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import SessionPorts
from scavenge.status import FleetStatus, GatewayStatus

JSON = "application/json"


@attrs.frozen
class GatewayOptions:
    """What a gateway can be told beside its file. ``None``: what the file's ``[gateway]`` says."""

    overrides: tuple[str, ...] = ()
    host: str | None = None
    port: int | None = None
    token_var: str | None = None
    grace: float | None = None


def gateway_parts(path: Path, options: GatewayOptions) -> Parts:
    """What the gateway for the file at *path* is made of: an evaluation file, whose evals are not played, or endpoints.

    Raises :class:`ConfigError` and :class:`scavenge.UsageError`.
    """
    settings = pool_settings(path, options.overrides, need_evals=False)
    settings = attrs.evolve(settings, gateway=_given(settings.gateway, options))
    if not settings.sources and not settings.evals:
        what = "nothing to serve; set endpoints_path, add a [[source]] table, or an [[eval]] with a server of its own"
        raise ConfigError([Problem(str(path), what)])
    return make_parts(settings, playing=False)


def _given(settings: GatewaySettings, options: GatewayOptions) -> GatewaySettings:
    given = {name: getattr(options, name) for name in ("host", "port", "token_var", "grace")}
    try:
        return attrs.evolve(settings, **{name: value for name, value in given.items() if value is not None})
    except ValueError as exc:
        raise UsageError(str(exc)) from exc


@attrs.frozen(eq=False)
class OpenGateway:
    """A gateway that serves."""

    listener: GatewayListener
    gateway: Gateway = attrs.field(repr=False)

    @property
    def base_url(self) -> str:
        """Where OpenAI clients find the API."""
        return f"{self.listener.root}/v1"

    async def finish(self, grace_s: float) -> bool:
        """Take no more requests, and let those under way end within *grace_s* seconds; true where all have.

        Cancelled, it takes no more requests all the same.
        """
        self.gateway.stop()
        with trio.move_on_after(grace_s) as grace:
            await self.gateway.wait_done()
        return not grace.cancelled_caught or not self.gateway.answering


@asynccontextmanager
async def open_gateway(
    parts: Parts, token: str | None, *, observers: Sequence[Observer] = (), redact: Redactor
) -> AsyncIterator[OpenGateway]:
    """Serve what *parts* lead to while the block runs; clients have to send *token*, if there is one.

    *observers* hear of every event; *redact* learns the keys of endpoints. Raises :class:`ConfigError` for what is
    listed wrong, and :class:`scavenge.UsageError` when the port cannot be had. Leaving, also by cancellation, cuts
    whoever is still connected, and leaves nothing behind.
    """
    settings = parts.settings
    window = _Window(redact)
    metrics = Metrics(window.status, redact)
    telling = Telling([*observers, metrics])
    wanted = tuple(dict.fromkeys(one.pool_id for one in settings.evals))
    ports = fleet_ports(named_sources(parts), parts.make_policy, parts.make_sessions, parts.fixed, telling.emit, redact)
    with (
        importable(settings.base_dir),
        closing(open_listener(token, settings.gateway.host, settings.gateway.port)) as listener,
        single_error(),
    ):
        async with (
            open_fleet(wanted, _fleet_settings(settings), ports, parts.fixed) as fleet,
            open_fleet_watch(fleet, telling, time.time),
            trio.open_nursery() as serving,
        ):
            desk = PoolDesk(fleet, _desk_settings(settings), SessionPorts(ports.emit, ports.random, ports.wall_clock))
            telling.observers.append(desk)
            limits = GatewayLimits(max_body_bytes=settings.gateway.max_body)
            gateway = Gateway(listener, desk, {**window.pages(), "/metrics": metrics.page}, limits)
            window.open(fleet, desk, gateway)
            serving.start_soon(desk.run_pool_desk)
            await serving.start(gateway.run_gateway)
            try:
                yield OpenGateway(listener, gateway)
            finally:
                serving.cancel_scope.cancel()
                desk.close()


def _fleet_settings(settings: RunSettings) -> FleetSettings:
    return FleetSettings(settings.elastic, settings.elastic_poll_interval, settings.health, whatever_is_listed=True)


def _desk_settings(settings: RunSettings) -> DeskSettings:
    return DeskSettings(_request_settings(settings.gateway), settings.stall_timeout, settings.gateway.session_idle)


def _request_settings(gateway: GatewaySettings) -> RequestSettings:
    retry = RetrySettings(gateway.max_retries, gateway.max_lost)
    return RequestSettings({}, gateway.stream, gateway.idle_timeout, gateway.request_timeout, retry)


@attrs.define(eq=False)
class _Window:
    """What can be seen of a gateway from outside, once it is open."""

    redact: Redactor
    _fleet: Fleet | None = None
    _desk: PoolDesk | None = None
    _gateway: Gateway | None = None

    def open(self, fleet: Fleet, desk: PoolDesk, gateway: Gateway) -> None:
        """Let it be seen: all that serves is there."""
        self._fleet, self._desk, self._gateway = fleet, desk, gateway

    def status(self) -> tuple[FleetStatus, GatewayStatus]:
        """How everything is doing now."""
        if self._fleet is None or self._desk is None or self._gateway is None:
            return FleetStatus(()), GatewayStatus(0, 0, 0)
        gateway = GatewayStatus(
            self._gateway.connections, self._desk.calls, self._desk.sessions, self._gateway.stopping
        )
        return self._fleet.status(trio.current_time()), gateway

    def pages(self) -> Mapping[str, Callable[[], Page]]:
        """The pages about it, by their paths."""
        return {"/health": self._health, "/status": self._status}

    def _clean_status(self) -> tuple[FleetStatus, GatewayStatus]:
        fleet, gateway = self.status()
        return redacted(fleet, self.redact), gateway

    def _health(self) -> Page:
        status, document = health_of(*self._clean_status())
        return Page(status, JSON, orjson.dumps(document))

    def _status(self) -> Page:
        return Page(200, JSON, orjson.dumps(status_document(*self._clean_status())))
