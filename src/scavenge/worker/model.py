"""The model as a rollout in a worker sees it: each request goes through the run's gateway, which answers as the run's
own session does. Slots, retries and records are all there.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

import attrs

from scavenge.core.doorwords import read_reply, request_body
from scavenge.types import Completion, Messages, ModelAddress
from scavenge.worker.gateway_client import READ_BYTES, GatewayClient, at_once


class BlockingStream:
    """A connection that blocks the thread which uses it."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        self._socket.sendall(data)

    async def receive(self) -> bytes:
        """What has come; nothing: the other side has closed."""
        return self._socket.recv(READ_BYTES)

    def interrupt(self) -> None:
        """Have whoever sends or receives find the connection closed. From any thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it at once."""
        self._socket.close()


async def connect_blocking(host: str, port: int) -> BlockingStream:
    """A connection that blocks."""
    return BlockingStream(host, port)


class RolloutAborted(BaseException):
    """The rollout is cancelled. No ``Exception``, so that ``play`` ends unless it means not to (as asyncio does)."""


@attrs.define(eq=False)
class _Addressed:
    """A model that foreign OpenAI clients find, too."""

    _address: ModelAddress

    @property
    def base_url(self) -> str:
        """Where a foreign OpenAI client finds the model, as this rollout; good until the rollout ends."""
        return self._address.base_url

    @property
    def api_key(self) -> str:
        """The key that goes with :attr:`base_url`."""
        return self._address.api_key


@attrs.define(eq=False)
class Model(_Addressed):
    """A rollout's model under Trio and asyncio."""

    _client: GatewayClient[Any] = attrs.field(repr=False)

    async def chat(self, messages: Messages, **options: object) -> Completion:
        """One request, retried as often as the run allows.

        Raises :class:`scavenge.RequestFailed` when it cannot be answered. Cancelled, it gives back its slot.
        """
        return read_reply(*await self._client.post(self._address, request_body(messages, options)))


@attrs.define(eq=False)
class SyncModel(_Addressed):
    """A rollout's model where nothing but its own code runs: ``chat`` blocks. Threads of the rollout may share it.

    Invariant: ``_streams`` has a connection once for each request that uses it; for a moment that can be two, when one
    thread has its reply and another takes the connection at once.
    """

    _client: GatewayClient[BlockingStream] = attrs.field(repr=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False)
    _streams: list[BlockingStream] = attrs.field(factory=list, init=False, repr=False)
    _aborted: bool = attrs.field(default=False, init=False)

    @property
    def aborted(self) -> bool:
        """Whether the rollout is cancelled."""
        return self._aborted

    def chat(self, messages: Messages, **options: object) -> Completion:
        """One request, retried as often as the run allows.

        Raises :class:`scavenge.RequestFailed` when it cannot be answered, :class:`RolloutAborted` once the rollout is
        cancelled.
        """
        body = request_body(messages, options)
        mine: list[BlockingStream] = []

        def taken(stream: BlockingStream) -> None:
            with self._lock:
                self._check()
                mine.append(stream)
                self._streams.append(stream)

        try:
            return read_reply(*at_once(self._client.post(self._address, body, taken)))
        except Exception:
            self._check()
            raise
        finally:
            with self._lock:
                for stream in mine:
                    self._streams.remove(stream)

    def abort(self) -> None:
        """Have every request under way, and every later one, raise :class:`RolloutAborted`. From any thread."""
        with self._lock:
            self._aborted = True
            for stream in self._streams:
                stream.interrupt()

    def _check(self) -> None:
        if self._aborted:
            raise RolloutAborted("the rollout is cancelled")
