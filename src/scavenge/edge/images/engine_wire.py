"""Requests to a container engine and their answers, on connections that live for one call. Knows no kind of call.

A connection of its own for each call: none waits for another's, none is found closed by an engine that has left it, and
a call that is cancelled hangs up, which is how an engine learns that a pull or a load is over.
"""

from __future__ import annotations

import json
import math
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import attrs
import httpx
import trio

from scavenge.core.naming import one_line
from scavenge.edge.images.sockets import NAME_ONE, Address
from scavenge.errors import EngineError

CONNECT_S = 5.0
MOST_BYTES = 64 * 2**20
"""How long an answer may be that is read whole: that of an engine with some 50 000 images."""

LOOK = f"see whether it runs, or {NAME_ONE}"
LOG = "see its log"

_NO_WAY: dict[type[OSError], tuple[str, str]] = {
    FileNotFoundError: ("there is no such socket", LOOK),
    ConnectionRefusedError: ("it takes no connection", LOOK),
    PermissionError: ("its socket may not be opened", f"join the group that may (mostly `docker`), or {NAME_ONE}"),
}


class BrokenOff(EngineError):
    """The engine took a request, and did not answer it to its end."""


def engine_error(address: Address, what: str, remedy: str, *, silent: bool = False) -> EngineError:
    """An error that names the engine, what is wrong and what to do, each once."""
    return EngineError(_text(address, what, remedy), silent=silent)


def _text(address: Address, what: str, remedy: str) -> str:
    return f"container engine at {address}: {what}; {remedy}"


@attrs.frozen
class Answer:
    """A whole answer."""

    address: Address
    status: int
    headers: httpx.Headers = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)

    @property
    def message(self) -> str:
        """What the engine says went wrong, in one line."""
        return _message_in(self.body) or f"HTTP {self.status}"


def _message_in(body: bytes) -> str:
    """The text of an error; Podman has its ``cause`` beside it."""
    said: object = None
    with suppress(ValueError, RecursionError):
        said = json.loads(body)
    text = said.get("message") if isinstance(said, dict) else None
    return one_line(text if isinstance(text, str) else body[:1000].decode("utf-8", "replace"), 1000)


class Feed(httpx.AsyncByteStream):
    """The body of a request: follows how the engine takes it, and keeps what its source raises.

    Invariant: the deadline of ``scope`` is ``patience_s`` after the source gave something, and none while the source is
    waited for, which has deadlines of its own.
    """

    def __init__(self, pieces: AsyncIterator[bytes], idle_s: float, bytes_a_second: float) -> None:
        self.failure: Exception | None = None
        """What the source raised."""
        self.scope = trio.CancelScope()
        self.patience_s = idle_s
        """How long the engine may take nothing; at the end longer, for what it does with all that it has then."""
        self._pieces = pieces
        self._bytes_a_second = bytes_a_second
        self._given_bytes = 0

    def __aiter__(self) -> Feed:
        return self

    async def __anext__(self) -> bytes:
        self.scope.deadline = math.inf
        try:
            piece = await anext(self._pieces)
        except StopAsyncIteration:
            self.patience_s += self._given_bytes / self._bytes_a_second
            self.await_engine()
            raise
        except Exception as exc:
            self.failure = exc
            raise
        self._given_bytes += len(piece)
        self.await_engine()
        return piece

    def await_engine(self) -> None:
        """Begin to wait for the engine."""
        self.scope.deadline = trio.current_time() + self.patience_s


class Reply:
    """An answer that comes in pieces. Its status is there already."""

    def __init__(self, address: Address, response: httpx.Response) -> None:
        self.status = response.status_code
        self._address = address
        self._headers = response.headers
        self._pieces = response.aiter_raw()

    async def piece(self, within_s: float) -> bytes:
        """The next piece, empty at the end.

        Raises :class:`BrokenOff` when none comes within that time, or the connection breaks.
        """
        with trio.move_on_after(within_s), _worded(self._address):
            return await anext(self._pieces, b"")
        raise _stalled(self._address, within_s)

    async def whole(self, within_s: float) -> Answer:
        """All of it, each piece within that time.

        Raises :class:`BrokenOff` like :meth:`piece`, and :class:`EngineError` for more than :data:`MOST_BYTES`.
        """
        body = bytearray()
        while piece := await self.piece(within_s):
            body += piece
            if len(body) > MOST_BYTES:
                raise engine_error(self._address, f"answers with more than {MOST_BYTES >> 20} MiB", LOG)
        return Answer(self._address, self.status, self._headers, bytes(body))

    async def leave(self) -> None:
        """Read on until cancelled, so that what gives out the pieces comes to an end, and is not left hanging."""
        with suppress(httpx.HTTPError):
            async for _ in self._pieces:
                pass


class Wire:
    """Sends requests. Keeps nothing but what is dear to make."""

    def __init__(self) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used; each transport would make one

    @asynccontextmanager
    async def send(self, address: Address, request: httpx.Request, idle_s: float) -> AsyncIterator[Reply]:
        """Send a request; in the block its answer comes. Leaving the block hangs up.

        Raises :class:`EngineError`, silent, when the engine cannot be reached, and :class:`BrokenOff` when it does not
        begin to answer within *idle_s*; a request with a :class:`Feed` has that one's patience instead.
        """
        request.extensions["timeout"] = {"connect": CONNECT_S, "read": None, "write": None, "pool": None}
        transport = httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, uds=address.socket or None)
        async with transport:
            with _scope_of(request, idle_s) as scope, _worded(address):
                response = await transport.handle_async_request(request)
            if scope.cancelled_caught:
                raise _stalled(address, request.stream.patience_s if isinstance(request.stream, Feed) else idle_s)
            reply = Reply(address, response)
            try:
                yield reply
            finally:
                with trio.move_on_after(0, shield=True):
                    await reply.leave()


def _scope_of(request: httpx.Request, idle_s: float) -> trio.CancelScope:
    if isinstance(request.stream, Feed):
        return request.stream.scope
    return trio.CancelScope(deadline=trio.current_time() + idle_s)


def _stalled(address: Address, idle_s: float) -> BrokenOff:
    return BrokenOff(_text(address, f"said nothing for {idle_s:.0f} s", LOG), silent=True)


@contextmanager
def _worded(address: Address) -> Iterator[None]:
    """Say what HTTP's errors mean."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
        what, remedy = _no_way(exc)
        raise engine_error(address, what, remedy, silent=True) from exc
    except httpx.HTTPError as exc:
        what = f"broke off its answer ({one_line(str(exc)) or type(exc).__name__})"
        raise BrokenOff(_text(address, what, LOG), silent=True) from exc


def _no_way(error: BaseException) -> tuple[str, str]:
    """Why there is no connection, and the remedy."""
    cause: BaseException | None = error
    while cause is not None:
        for kind, told in _NO_WAY.items():
            if isinstance(cause, kind):
                return told
        cause = cause.__cause__ or cause.__context__
    return f"cannot be reached ({one_line(str(error)) or f'no connection within {CONNECT_S:g} s'})", LOOK
