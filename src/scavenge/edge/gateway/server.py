"""The gateway: an OpenAI-compatible server on a port, behind whose door are the models.

The API is at ``http://HOST:PORT/v1``, and that of a session at ``http://HOST:PORT/session/ID/v1``. Who may ask, how it
is told and how long it may take is decided in the modules beside this one; what becomes of a call, behind the
:class:`scavenge.runtime.ports.ModelDoor`.

A reply that is not streamed comes when it is there, and nothing before it: a client whose read timeout is shorter than
its longest wait needs a longer one, or streaming.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping

import trio

from scavenge.calls import Page
from scavenge.edge.gateway.connection import serve_connection
from scavenge.edge.gateway.entrance import Entrance
from scavenge.edge.gateway.limits import GatewayLimits
from scavenge.edge.gateway.line import SocketLine
from scavenge.edge.gateway.listener import NO_ROOM, GatewayListener, open_listener
from scavenge.runtime.ports import ModelDoor

__all__ = ["Gateway", "GatewayLimits", "GatewayListener", "open_listener", "run_gateway", "tell_bug"]
_NO_ROOM_WAIT_S = 0.1
_LOST = (
    "ECONNABORTED",
    "EPROTO",
    "EPERM",
    "ENETDOWN",
    "ENETUNREACH",
    "ENONET",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "ENOPROTOOPT",
)
_LOST_BEFORE = frozenset(getattr(errno, name) for name in _LOST if hasattr(errno, name))
"""What is told of a connection that was lost before it was accepted (Linux' accept(2)): others may come."""
_log = logging.getLogger("scavenge")


def tell_bug(error: BaseException) -> None:
    """Write a bug to the log, with its traceback."""
    _log.error("the gateway could not serve a request: %s", error, exc_info=error)


class Gateway:
    """Serves clients of a port. *on_bug* hears of what cost a client its connection for no fault of its own.

    Ownership: the listener stays its owner's, who closes it when the gateway has ended.
    """

    def __init__(
        self,
        listener: GatewayListener,
        door: ModelDoor,
        pages: Mapping[str, Callable[[], Page]] | None = None,
        limits: GatewayLimits | None = None,
        on_bug: Callable[[BaseException], object] = tell_bug,
    ) -> None:
        self._listener = listener
        self._accepting = trio.SocketListener(trio.socket.from_stdlib_socket(listener.socket))
        self._entrance = Entrance(door, listener.token, on_bug, limits or GatewayLimits(), pages or {})

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return self._entrance.clients.connections

    @property
    def answering(self) -> int:
        """How many requests are being answered."""
        return self._entrance.clients.answering

    @property
    def stopping(self) -> bool:
        """Whether no more requests are taken."""
        return self._entrance.clients.stopping

    async def run_gateway(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until it is stopped and every client has left. Cancelled, it ends every connection at once."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            while (stream := await self._accept()) is not None:
                nursery.start_soon(serve_connection, SocketLine(stream), self._entrance)

    def stop(self) -> None:
        """Take no more clients and no more requests; what is being answered is answered. Never waits."""
        self._accepting.socket.close()
        self._entrance.clients.stop()

    async def wait_done(self) -> None:
        """Wait until no request is being answered; after :meth:`stop`, for what still comes in, too, for ``late_s``."""
        await self._entrance.clients.wait_answered()

    async def _accept(self) -> trio.SocketStream | None:
        """The next connection; ``None``: the gateway stops.

        Without room for it (descriptors, memory) it closes those that have been waiting for long, or waits itself.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.stopping:
            try:
                return await self._accepting.accept()
            except trio.ClosedResourceError:
                continue
            except OSError as error:
                if error.errno in _LOST_BEFORE:
                    continue
                if error.errno not in NO_ROOM:
                    raise
            if not self._entrance.clients.shed():
                await trio.sleep(_NO_ROOM_WAIT_S)
        return None


async def run_gateway(
    listener: GatewayListener,
    door: ModelDoor,
    on_bug: Callable[[BaseException], object] = tell_bug,
    limits: GatewayLimits | None = None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve clients until it is cancelled, with nothing but the models. It ends every connection."""
    async with trio.open_nursery() as nursery:
        await nursery.start(Gateway(listener, door, None, limits, on_bug).run_gateway)
        task_status.started()
