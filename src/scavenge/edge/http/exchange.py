"""One request and its reply on one connection. Waits; knows nothing of pools, JSON or what a status means.

Who made an exchange owns it and calls :meth:`Exchange.close`, whatever happened; a cancelled task too, since closing
never waits. A connection is kept only when the request went out whole and the reply came in whole.

Silence is watched by a :class:`Pulse`, the deadline of the caller's cancel scope, moved whenever bytes do.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import trio

from scavenge.edge.http.channel import Channel
from scavenge.edge.http.faults import HttpFault, NoReply, broken_fault
from scavenge.edge.http.request import Request
from scavenge.edge.http.signs import Signs
from scavenge.edge.http.wire import Head, Wire, WireError
from scavenge.types import Lost

SMALL_BYTES = 16 * 1024
"""What is left of a request that surely fits into the buffers below us: sent without watching for an early reply."""

SEND_BYTES = 256 * 1024
"""How much of a large request goes out before that counts as a sign of life."""

EARLY_REPLY_BYTES = 2**20
"""How much of a reply is read before the request has gone out whole."""

SLACK = 1 / 64
"""How late silence may be noticed, as a part of ``idle_s``: moving a deadline for every chunk would cost too much."""


class Pulse:
    """When bytes last moved in one exchange, kept as the deadline of a cancel scope: ``idle_s`` after that it fires.

    Never earlier, and later by no more than ``SLACK``. Connecting has a deadline of its own and does not count, nor
    does the time in which whoever the reply is for takes nothing. ``from_sending`` counts the wait for the first byte
    too.
    """

    __slots__ = ("_from_sending", "_good_until", "_idle_s", "_scope", "first_byte_at", "received_at", "sent_at")

    def __init__(self, scope: trio.CancelScope, idle_s: float = math.inf, *, from_sending: bool = True) -> None:
        self._scope = scope
        self._idle_s = idle_s
        self._from_sending = from_sending
        self._good_until = -math.inf  # bytes that move until then need no other deadline
        self.sent_at: float | None = None
        self.first_byte_at: float | None = None
        """When the first byte of the body came: servers send the head before they have thought of anything."""
        self.received_at = -math.inf
        """When a byte of the reply last came."""

    @property
    def first_byte_s(self) -> float | None:
        """Seconds from sending to the first byte of the body."""
        return None if self.sent_at is None or self.first_byte_at is None else self.first_byte_at - self.sent_at

    def pause(self) -> None:
        """Nothing can be heard for now: a connection is being made, or what has come is not taken yet."""
        self._good_until = -math.inf
        self._scope.deadline = math.inf

    def go_on(self, now: float) -> None:
        """Reading goes on: silence counts from *now*."""
        self._moved(now)

    def stop(self) -> None:
        """All that counts has come."""
        self._good_until = self._scope.deadline = math.inf

    def sending(self) -> None:
        """The request begins to go out."""
        self.sent_at = trio.current_time()
        self.sent()

    def sent(self) -> None:
        """A part of the request went out."""
        if self._from_sending:
            self._moved(trio.current_time())

    def received(self, body: bytes, now: float) -> None:
        """Bytes of the reply came at *now*, *body* among them."""
        self.received_at = now
        self._moved(now)
        if body and self.first_byte_at is None:
            self.first_byte_at = now

    def _moved(self, now: float) -> None:
        if now > self._good_until:
            self._good_until = now + self._idle_s * SLACK
            self._scope.deadline = self._good_until + self._idle_s


@attrs.frozen
class Connection:
    """A channel and the HTTP that is spoken on it."""

    channel: Channel
    wire: Wire = attrs.field(factory=Wire)


class Exchange:
    """One request and its reply. ``head`` is there after :meth:`begin`."""

    __slots__ = (
        "_body", "_channel", "_connection", "_give_back", "_heard", "_pulse", "_sent", "_signs", "_where", "_wire",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, give_back: Callable[[Connection], None], pulse: Pulse, signs: Signs, where: str
    ) -> None:
        self._connection = connection
        self._channel = connection.channel
        self._wire = connection.wire
        self._give_back = give_back
        self._pulse = pulse
        self._signs = signs
        self._where = where
        self._body = b""  # what came of the body before it was asked for
        self._sent = False  # the request has gone out whole
        self._heard = False  # a byte of the reply has come

    @property
    def head(self) -> Head:
        """The head of the reply."""
        assert self._wire.head is not None, "begin() has not returned"  # noqa: S101 - misuse is a bug of ours
        return self._wire.head

    async def begin(self, request: Request) -> None:
        """Send the request and wait for the head of the reply, which may come before the request has gone out.

        Raises :class:`NoReply` when the connection ends before a byte of the reply, else :class:`HttpFault`.
        """
        data = self._wire.start(request)
        self._pulse.sending()
        try:
            gone = self._channel.send_nowait(data)
        except OSError:
            gone = len(data)  # the server has closed; if it said why, that can still be read
        else:
            self._sent = gone == len(data)
        if gone < len(data):
            await self._send(memoryview(data)[gone:])
        while self._wire.head is None:
            self._body += await self._receive()

    async def read(self) -> bytes:
        """The next bytes of the body, all that have come; nothing at its end. Raises :class:`HttpFault`."""
        body, self._body = self._body, b""  # what came before is given at once
        while not body and not self._wire.complete:
            body = await self._receive()
        return body

    async def read_whole(self, most_bytes: int) -> bytes | None:
        """The whole body; ``None``, unread, when it is longer than *most_bytes*. Raises :class:`HttpFault`."""
        body = bytearray()
        while data := await self.read():
            body += data
            if len(body) > most_bytes:
                return None
        return bytes(body)

    def close(self) -> None:
        """Give the connection back when it can carry another request, else close it. Never waits."""
        if self._sent and self._wire.reusable:
            self._give_back(self._connection)
        else:
            self._channel.close()

    async def _send(self, rest: memoryview) -> None:
        if len(rest) > SMALL_BYTES:
            await self._send_watching(rest)
        else:
            await self._send_rest(rest)

    async def _send_watching(self, rest: memoryview) -> None:
        """Send while reading: a server may refuse a request before it has read it, and then reads no more."""
        watching = trio.CancelScope()
        fault: HttpFault | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_rest, rest, watching)
            with watching:
                try:
                    await self._read_early_reply()
                except HttpFault as error:  # kept out of the nursery, which would put it into a group
                    fault = error
                nursery.cancel_scope.cancel()
        if fault is not None:
            raise fault

    async def _send_rest(self, rest: memoryview, watching: trio.CancelScope | None = None) -> None:
        try:
            for start in range(0, len(rest), SEND_BYTES):
                await self._channel.send(rest[start : start + SEND_BYTES])
                self._pulse.sent()
        except (OSError, trio.BrokenResourceError):
            return  # the reply, or its absence, tells; the reading goes on
        self._sent = True
        if watching is not None:
            watching.cancel()

    async def _read_early_reply(self) -> None:
        pieces: list[bytes] = []
        held = 0
        try:
            while not self._wire.complete:
                piece = await self._receive()
                pieces.append(piece)
                held += len(piece)
                if held > EARLY_REPLY_BYTES:
                    raise self._lost("sent a long reply before it had read the request")
        finally:
            self._body += b"".join(pieces)

    async def _receive(self) -> bytes:
        if self._wire.error is not None:
            raise self._lost(str(self._wire.error))
        try:
            data = await self._channel.receive()
        except (OSError, trio.BrokenResourceError) as error:
            raise self._broken(error) from error
        now = trio.current_time()
        if data:
            self._signs.heard_at = now
        else:
            self._signs.answered_at = now
            if not self._heard:
                raise NoReply(Lost(f"{self._where} closed the connection without a reply"))
        self._heard = True
        try:
            body = self._wire.feed(data)
        except WireError as error:
            raise self._lost(str(error)) from error
        self._pulse.received(body, now)
        return body

    def _broken(self, error: BaseException) -> HttpFault:
        fault = broken_fault(error, self._where, HttpFault if self._heard else NoReply)
        if fault.answered:
            self._signs.answered_at = trio.current_time()
        return fault

    def _lost(self, what: str) -> HttpFault:
        return HttpFault(Lost(f"{self._where}: {what}"))
