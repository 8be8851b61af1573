"""Holds what the episodes of a ``verifiers.v1`` environment share: its tool servers, and what its ``start`` makes."""

from __future__ import annotations

import asyncio
from typing import Any


class Serving:
    """``env.serving()`` in a task of its own, since a task must leave what it entered.

    verifiers keeps one client, and its connections, for each address of a model that it has seen until the serving
    ends. Here every episode has an address of its own, so each brings its own interception server, and with that its
    client, up and down; only one behind a tunnel, which is dear, is shared.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it, and wait until it is there. Raises what verifiers raises."""
        ready = asyncio.Event()
        self._task = asyncio.create_task(self._hold(ready))
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            if not ready.is_set():
                self._task.cancel()
        if not ready.is_set():
            await self._task

    async def stop(self) -> None:
        """Stop it, and wait until it is gone."""
        self._over.set()
        if self._task is not None:
            await self._task

    async def _hold(self, ready: asyncio.Event) -> None:
        async with self._env.serving():
            if not self._env._requires_tunnel(self._env._shared_tools):
                self._env._interception = None
            ready.set()
            await self._over.wait()
