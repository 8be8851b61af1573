"""Reads a model's reply off one exchange: notes what flows, and hands a stream on while it comes. Waits.

What the reply means is the reader's. While whoever a stream is handed on to takes nothing, nothing is read, and that
silence is not the server's: neither the pulse runs, nor is the stream stalled.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import attrs
import trio

from scavenge.core.chat import ReplyReader
from scavenge.core.errorbody import Wording
from scavenge.core.flow import Stream
from scavenge.core.relay import RelayReader
from scavenge.edge.http.exchange import Exchange, Pulse
from scavenge.edge.http.faults import HttpFault
from scavenge.runtime.ports import ReplySink
from scavenge.types import Outcome

LINGER_S = 1.0
"""How long the end of a body may take after all that counts has come; a connection that takes longer is closed."""


@attrs.define(eq=False)
class Reception:
    """One reply as it comes in: its ``pulse``, the ``stream`` in which it is noted, and where it is handed on to."""

    pulse: Pulse
    stream: Stream | None = None
    sink: ReplySink | None = None
    _noted: int = attrs.field(default=0, init=False)
    """How many pieces are noted in the stream."""

    async def read(self, exchange: Exchange, headers: Mapping[str, str], wording: Wording) -> Outcome:
        """The outcome of the reply, whose *headers* have come. Cancelled, the sink may have some of it."""
        reader = ReplyReader(wording) if self.sink is None else RelayReader(wording)
        reader.start(exchange.head.status, headers, time.time())
        try:
            if isinstance(reader, RelayReader):
                await self._hand_on(exchange, reader)
            else:
                await self._collect(exchange, reader)
        except HttpFault as fault:
            return reader.cut(str(fault), fault.cause)
        if reader.over:
            self.pulse.stop()
            await _linger(exchange)
        return reader.finish()

    async def _collect(self, exchange: Exchange, reader: ReplyReader) -> None:
        while not reader.over and (data := await exchange.read()):
            reader.feed(data)
            self._note(reader.pieces)

    async def _hand_on(self, exchange: Exchange, reader: RelayReader) -> None:
        while not reader.over and (data := await exchange.read()):
            events = reader.feed(data)
            self._note(reader.pieces)
            if events:
                await self._give(events)

    async def _give(self, events: bytes) -> None:
        assert self.sink is not None  # noqa: S101 - only then something is handed on
        self.pulse.pause()
        if self.stream is not None:
            self.stream.hold_back()
        await self.sink.take(events)
        now = trio.current_time()
        self.pulse.go_on(now)
        if self.stream is not None:
            self.stream.read_on(now)

    def _note(self, pieces: int) -> None:
        if self.stream is not None and pieces != self._noted:
            self.stream.came(self.pulse.received_at, pieces - self._noted)
            self._noted = pieces


async def _linger(exchange: Exchange) -> None:
    """Read the little that may follow what counts, so that the connection can be used again."""
    with trio.move_on_after(LINGER_S):
        try:
            await exchange.read()
        except HttpFault:
            return
