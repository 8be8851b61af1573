"""The door through which foreign clients and workers reach the model while a run is played."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial

import trio

from scavenge.core.redaction import Redactor
from scavenge.edge.gateway.server import open_listener, run_gateway
from scavenge.errors import single_error
from scavenge.runtime.desk import SessionDesk

TOKEN_BYTES = 32


@asynccontextmanager
async def open_door(redact: Redactor) -> AsyncIterator[SessionDesk]:
    """A gateway on a free loopback port while the block runs; the desk says whose requests it lets in.

    Its token is hidden from all output. Leaving ends every connection and does not wait.
    """
    token = secrets.token_urlsafe(TOKEN_BYTES)
    redact.hide_keys([token])
    with closing(open_listener(token)) as listener, single_error():
        desk = SessionDesk(listener.address, partial(secrets.token_urlsafe, 12))
        async with trio.open_nursery() as serving:
            await serving.start(run_gateway, listener, desk)
            try:
                yield desk
            finally:
                serving.cancel_scope.cancel()
