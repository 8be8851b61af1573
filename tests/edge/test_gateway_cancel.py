"""Connections that are cancelled at every step of whatever they do: nothing is left of them."""

from __future__ import annotations

import pytest
import trio
from gateway_kit import STREAMED, Door, piece, raising, telling
from memory_line import MemoryLine
from raw_client import TOKEN, chunk, chunked_head, get, post

from scavenge.calls import Page
from scavenge.edge.gateway.connection import serve_connection
from scavenge.edge.gateway.entrance import Entrance
from scavenge.edge.gateway.limits import GatewayLimits
from scavenge.testing import cancel_at_every_step
from scavenge.types import Lost, RequestFailed

STREAM = {"stream": True}
LOST = RequestFailed(Lost("connection reset"), ())
PAGES = {"/health": lambda: Page(200, "text/plain", b"well")}


async def pausing(call, sink):
    """A reply that is long in coming, and pauses."""
    if sink is None:
        await trio.sleep(40)
        return await telling_nothing(call, sink)
    await trio.sleep(40)
    await sink.take(piece("a"))
    await trio.sleep(40)
    await sink.take(piece("b"))
    return STREAMED


telling_nothing = Door().does


@pytest.mark.parametrize(("data", "does"), [
    (post() * 2, pausing),
    (post(STREAM) * 2, pausing),
    (post(STREAM), telling(piece("a"), piece("b"), then=LOST)),
    (post(STREAM), raising(LOST)),
    (post(Expect="100-continue"), telling_nothing),
    (chunked_head() + chunk(b'{"messages": []}') + b"0\r\n\r\n", telling_nothing),
    (get("/health") + get("/v1/models") + get("/session/a", "DELETE") + get("/none"), telling_nothing),
    (b"\0", telling_nothing),
    (post()[:-1], telling_nothing),
], ids=["whole", "stream", "broken off", "refused", "continue", "chunks", "pages", "garbage", "half"])  # fmt: skip
@pytest.mark.parametrize("takes_s", [0.0, 1.0])
def test_a_connection_that_is_cancelled_leaves_nothing(data, does, takes_s):
    kept: list[tuple[MemoryLine, Entrance, Door]] = []

    async def use() -> None:
        line, door = MemoryLine(data, size=100, takes_s=takes_s), Door(does)
        entrance = Entrance(door, TOKEN, pytest.fail, GatewayLimits(), PAGES)
        kept.append((line, entrance, door))
        await serve_connection(line, entrance)

    def check() -> None:
        line, entrance, door = kept.pop()
        clients = entrance.clients
        assert (line.closed, door.under_way) == (True, 0)
        assert (clients.connections, clients.answering, clients.held_bytes) == (0, 0, 0)
        assert not clients._waiting
        assert line.taken.count(b"[DONE]") == line.taken.count(b"[DONE]\n\n\r\n0\r\n\r\n") or takes_s

    assert cancel_at_every_step(use, check) > 5
