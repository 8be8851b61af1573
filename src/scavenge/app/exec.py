"""``scavenge exec``: a command, and a gateway for as long as it runs.

Whoever started us should see the command: its output, its exit status, its answers to signals. So signals are handed on
to it, but for those that the terminal has sent to it already, and only its own end ends us. One that comes before it
has been started ends us at once.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import trio

from scavenge.app.call_count import CallCount
from scavenge.app.console import screen_on_stderr
from scavenge.app.gateway import GatewayOptions, OpenGateway, gateway_parts, open_gateway
from scavenge.app.heeding import heeding, not_ignored
from scavenge.app.parts import Parts
from scavenge.edge.child import KILLED_BY, Child, open_child
from scavenge.edge.console import Screen
from scavenge.edge.logs import LogEvents, set_up_logs
from scavenge.edge.machine import raise_descriptor_limit, spare_collector
from scavenge.edge.no_proxy import past_proxies
from scavenge.errors import single_error
from scavenge.events import Observer

TOKEN_BYTES = 32
NOT_FOUND = 127
NOT_STARTED = 126
FROM_KEYS = (signal.SIGINT, signal.SIGQUIT)
"""What a terminal makes of keys, and sends to all who are in the foreground."""
HANDED_ON = (*FROM_KEYS, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

_log = logging.getLogger("scavenge")


def exec_in_console(path: Path, command: Sequence[str], overrides: tuple[str, ...], log_level: str | None) -> int:
    """Run *command* beside a gateway to what the file at *path* leads to, and return the exit status.

    It is the command's, 128 and the signal's number where one ended it, 127 where it is not there, 126 where it cannot
    be started. Raises :class:`scavenge.errors.ConfigError` and :class:`scavenge.errors.UsageError` before that.
    """
    screen = screen_on_stderr()
    set_up_logs(screen, log_level or "warning")
    parts = gateway_parts(path, GatewayOptions(overrides=overrides, host="127.0.0.1", port=0))
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # then the system would tell us of no exit status
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return trio.run(_Execution(parts, command, screen).run)


@attrs.define(eq=False)
class _Execution:
    """One command from the opening of its gateway to the exit status."""

    parts: Parts
    command: Sequence[str]
    screen: Screen
    _count: CallCount = attrs.field(factory=CallCount)
    _child: Child | None = None
    _stopped_by: signal.Signals | None = None
    _opening: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancelled by a signal for as long as there is nobody to hand it on to."""

    async def run(self) -> int:
        """Run the command to its end."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self.screen.redact.hide_keys([token])
        status: int | None = None
        with heeding(self._heed, not_ignored(*HANDED_ON)), single_error(), self._opening:
            observers: list[Observer] = [LogEvents(), self._count]
            async with open_gateway(self.parts, token, observers=observers, redact=self.screen.redact) as gateway:
                status = await self._run_child(gateway, token)
        _log.info("%s", self._count.line)
        if status is not None:
            return status
        assert self._stopped_by is not None  # noqa: S101 - nothing else cancels
        return KILLED_BY + self._stopped_by

    async def _run_child(self, gateway: OpenGateway, token: str) -> int:
        environ = environ_for(os.environ, gateway.base_url, token)
        try:
            async with open_child(self.command, environ) as child:
                self._child = child
                raise_descriptor_limit()  # for us: the command has the limit with which we were started
                spare_collector()
                return await child.wait()
        except OSError as exc:
            if self._child is not None:
                raise
            status, why = _not_started(exc, self.command[0], environ)
            self.screen.say(f"scavenge: {self.command[0]}: {why}")
            return status

    def _heed(self, number: signal.Signals) -> None:
        if self._child is None:
            self._stopped_by = self._stopped_by or number
            self._opening.cancel()
        elif number not in FROM_KEYS or not self._child.has_heard_terminal():
            self._child.signal(number)


def environ_for(environ: Mapping[str, str], base_url: str, token: str) -> dict[str, str]:
    """The environment of a command whose OpenAI clients are to use the gateway at *base_url*."""
    return {
        **environ,
        **past_proxies(environ),
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "OPENAI_API_KEY": token,
    }


def _not_started(exc: OSError, name: str, environ: Mapping[str, str]) -> tuple[int, str]:
    """The exit status of shells for a command that could not be started, and why in a few words."""
    if exc.errno != errno.ENOENT:
        return NOT_STARTED, f"cannot be started: {exc.strerror}"
    if shutil.which(name, path=environ.get("PATH")) is None:
        return NOT_FOUND, "not found"
    return NOT_FOUND, "cannot be started: the interpreter that its first line names is not there"
