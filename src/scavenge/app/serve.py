"""``scavenge serve``: a gateway for whoever knows its address, until a signal ends it.

The first signal lets what is under way end within ``grace``, the second one cuts it. What is served, and how, is
:mod:`scavenge.app.gateway`'s.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import trio

from scavenge.app.call_count import CallCount
from scavenge.app.console import screen_on_stderr
from scavenge.app.gateway import GatewayOptions, gateway_parts, open_gateway
from scavenge.app.heeding import heeding, not_ignored
from scavenge.app.parts import Parts
from scavenge.core.redaction import Redactor
from scavenge.edge.logs import LogEvents, set_up_logs
from scavenge.edge.machine import raise_descriptor_limit, spare_collector
from scavenge.errors import UsageError, single_error
from scavenge.events import Observer

_log = logging.getLogger("scavenge")


def serve_in_console(
    path: Path, options: GatewayOptions, log_level: str | None, write_out: Callable[[str], None]
) -> int:
    """Serve what the file at *path* leads to, give the base URL to *write_out*, and return the exit code.

    Raises :class:`scavenge.errors.ConfigError` and :class:`scavenge.errors.UsageError` before anything is served.
    """
    screen = screen_on_stderr()
    set_up_logs(screen, log_level)
    parts = gateway_parts(path, options)
    token = token_in(os.environ, parts.settings.gateway.token_var)
    if token is not None:
        screen.redact.hide_keys([token])
    raise_descriptor_limit()
    serving = _Serving(parts, token, screen.redact, write_out)
    code = trio.run(serving.serve)
    screen.say(serving.count.line)
    return code


def token_in(environ: Mapping[str, str], name: str | None) -> str | None:
    """The token that clients have to send: the value of the variable *name*; ``None`` where none is named.

    Raises :class:`scavenge.errors.UsageError` for a variable whose value no client could send.
    """
    if name is None:
        return None
    token = environ.get(name)
    if not token:
        raise UsageError(f"token_var: the variable {name} is {'not set' if token is None else 'empty'}")
    if not all("!" <= character <= "~" for character in token):
        raise UsageError(f"token_var: the value of {name} has blanks, line breaks or other characters than ASCII ones")
    return token


@attrs.define(eq=False)
class _Serving:
    """One gateway from its opening to the exit code."""

    parts: Parts
    token: str | None = attrs.field(repr=False)
    redact: Redactor
    write_out: Callable[[str], None]
    count: CallCount = attrs.field(factory=CallCount)
    _listens: bool = False
    _stopped_by: signal.Signals | None = None
    _all_ended: bool = False
    _stop: trio.Event = attrs.field(factory=trio.Event)
    _cut: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    async def serve(self) -> int:
        """Serve until a signal comes, and end in good order."""
        numbers = (signal.SIGINT, signal.SIGTERM, *not_ignored(signal.SIGHUP))
        with heeding(self._heed, numbers), single_error(), self._cut:
            observers: list[Observer] = [LogEvents(), self.count]
            async with open_gateway(self.parts, self.token, observers=observers, redact=self.redact) as gateway:
                self._listens = True
                spare_collector()
                self.write_out(gateway.base_url)
                await self._stop.wait()
                self._all_ended = await gateway.finish(self.parts.settings.gateway.grace)
                self.count.cutting = True
        if self._all_ended:
            return 0
        assert self._stopped_by is not None  # noqa: S101 - nothing else cancels
        return 128 + self._stopped_by

    def _heed(self, number: signal.Signals) -> None:
        if self._listens and self._stopped_by is None:
            grace = self.parts.settings.gateway.grace
            _log.info("%s: no more requests are taken; those under way have %g seconds", number.name, grace)
            self._stop.set()
        else:
            self.count.cutting = True
            self._cut.cancel()
        self._stopped_by = self._stopped_by or number
