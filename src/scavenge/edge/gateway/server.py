"""The gateway: an OpenAI-compatible server on a port, behind which the sessions of a run have their model.

A session's base URL names it: ``http://HOST:PORT/session/ID/v1``; chat completions are all there is. Who may ask, how
it is told and how long it may take is decided in the modules ``gateway_*``; what becomes of a request, behind the
:class:`scavenge.runtime.ports.ModelDoor`.

A reply that is not streamed comes when it is there, and nothing before it: a client whose read timeout is shorter than
its longest wait needs a longer one, or streaming.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable

import attrs
import trio

from scavenge.edge.gateway.calls import path_of
from scavenge.edge.gateway.connection import Gate, GatewaySettings, serve_connection
from scavenge.errors import UsageError
from scavenge.runtime.ports import ModelDoor
from scavenge.types import ModelAddress

BACKLOG = 1024
LOOPBACK = "127.0.0.1"
MAX_PORT = 65535

_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_ROOM_WAIT_S = 0.1
_log = logging.getLogger("scavenge")


@attrs.define(eq=False)
class GatewayListener:
    """A port that clients can connect to; they are answered while :func:`run_gateway` runs.

    Ownership: whoever opens it closes it, after the gateway.
    """

    socket: socket.socket
    token: str = attrs.field(repr=False)

    @property
    def root(self) -> str:
        """The URL of the server itself."""
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def address(self, session_id: str) -> ModelAddress:
        """Where a session's rollout finds its model."""
        return ModelAddress(self.root + path_of(session_id), self.token)

    def close(self) -> None:
        """Give the port back. Never waits."""
        self.socket.close()


def open_listener(token: str, host: str = LOOPBACK, port: int = 0) -> GatewayListener:
    """Take a port; 0 is any free one. Clients have to send *token*.

    Raises :class:`scavenge.UsageError` when it cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        if not 0 <= port <= MAX_PORT:
            raise OSError(errno.EINVAL, "there is no such port")
        return GatewayListener(socket.create_server((host, port), family=family, backlog=BACKLOG), token)
    except OSError as error:
        remedy = "raise the limit (ulimit -n)" if error.errno in _NO_ROOM else "choose another"
        raise UsageError(f"the gateway cannot listen on {host} port {port} ({error.strerror}): {remedy}") from error


def tell_bug(error: BaseException) -> None:
    """Write a bug to the log, with its traceback."""
    _log.error("the gateway could not serve a request: %s", error, exc_info=error)


async def run_gateway(
    listener: GatewayListener,
    door: ModelDoor,
    on_bug: Callable[[BaseException], object] = tell_bug,
    settings: GatewaySettings | None = None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve clients for ever. Cancelled, it ends every connection and leaves the listener to its owner.

    *on_bug* hears of what cost a client its connection although the client did nothing wrong.
    """
    gate = Gate(door, listener.token, on_bug, settings or GatewaySettings())
    accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener.socket))
    async with trio.open_nursery() as nursery:
        task_status.started()
        while True:
            nursery.start_soon(serve_connection, await _accept(accepting, gate), gate)


async def _accept(listener: trio.SocketListener, gate: Gate) -> trio.SocketStream:
    """The next connection. Without room for it (descriptors, memory) it waits until idle ones have made some."""
    while True:
        try:
            return await listener.accept()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
        gate.shed()
        await trio.sleep(_NO_ROOM_WAIT_S)
