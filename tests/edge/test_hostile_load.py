"""Servers whose own figures are hostile: the requests to them are answered as if there were no figures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from raw_server import Conn, raw_server, reply

import scavenge
from scavenge.edge.http.load import PAGE_BYTES
from scavenge.listings import Listing
from scavenge.runtime import member

MODELS = reply(b'{"data": [{"id": "m"}]}')
EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": %s}]}\n\n'
STREAMED = EVENT % b"null" + EVENT % b'"stop"' + b"data: [DONE]\n\n"
CHAT = reply(STREAMED, headers="content-type: text/event-stream")
POLICIES = ["tide", "gradient2", "aimd", "pi", "fixed"]
GARBAGE = b'vllm:num_requests_running{x="' + b"\xff" * 65_536
HOUR_S = 3600.0


class Hostile:
    """A server that is well but for its pages of figures."""

    def __init__(self, page: Callable[[Hostile, Conn], Awaitable[object]]) -> None:
        self.page = page
        self.pages_asked = 0
        self.sent_bytes = 0

    async def script(self, conn: Conn) -> None:
        while True:
            head, _ = await conn.request()
            if head.startswith(b"POST"):
                await trio.sleep(0.02)
                await conn.send(CHAT)
            elif b"/models " in head:
                await conn.send(MODELS)
            else:
                self.pages_asked += 1
                await self.page(self, conn)


async def much(server: Hostile, conn: Conn) -> None:
    await conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 50000000\r\n\r\n")
    for _ in range(50_000_000 // len(GARBAGE)):
        await conn.send(GARBAGE)
        server.sent_bytes += len(GARBAGE)


async def without_end(server: Hostile, conn: Conn) -> None:
    await conn.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        await conn.send(b"%x\r\n%b\r\n" % (len(GARBAGE), GARBAGE))
        server.sent_bytes += len(GARBAGE)


async def treacle(server: Hostile, conn: Conn) -> None:
    await conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    while True:
        await conn.send(b"#")
        await trio.sleep(0.1)


async def silence(server: Hostile, conn: Conn) -> None:
    await trio.sleep_forever()


async def half(server: Hostile, conn: Conn) -> None:
    await conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nvllm:num_requests_running 3\n")
    conn.cut()
    raise EOFError


async def torn(server: Hostile, conn: Conn) -> None:
    await trio.lowlevel.checkpoint()
    conn.reset()
    raise EOFError


async def no_http(server: Hostile, conn: Conn) -> None:
    await conn.send(b"\x00\x01\x02 what? \r\n\r\n")
    raise EOFError


def says(status: str, body: bytes = b"no", headers: str = "") -> Callable[[Hostile, Conn], Awaitable[object]]:
    async def page(server: Hostile, conn: Conn) -> None:
        await conn.send(reply(body, status, headers=headers) if headers else reply(body, status))

    return page


ABSURD = b"""vllm:num_requests_running -7
vllm:num_requests_waiting 1e308
vllm:kv_cache_usage_perc 12345
vllm:kv_cache_usage_perc{engine="1"} NaN
vllm:num_preemptions_total +Inf
vllm:cache_config_info{num_gpu_blocks="None",block_size="-16"} 1.0
vllm:prefix_cache_queries_total 1
vllm:prefix_cache_hits_total 999999999999
"""
PAGES = {
    "much": much,
    "without end": without_end,
    "treacle": treacle,
    "silence": silence,
    "half": half,
    "torn": torn,
    "no http": no_http,
    "absurd": says("200 OK", ABSURD),
    "401": says("401 Unauthorized"),
    "302": says("302 Found", headers="location: http://127.0.0.1:9/metrics"),
    "500": says("500 Internal Server Error"),
}


async def answers_all(server: Hostile, policy: str) -> None:
    """Have requests answered, one after another and some at once; all are, and at the first attempt."""
    async with raw_server(server.script) as raw:
        row = {"endpoint_id": "p", "model": "m", "url": raw.url}

        class Source:
            async def list_endpoints(self) -> Listing:
                await trio.lowlevel.checkpoint()
                return Listing([row])

        replies = []
        admission = {"policy": policy} if policy != "fixed" else {"policy": "fixed", "limit": 4}
        with trio.fail_after(20):
            async with scavenge.open_pool(Source(), endpoint_id="p", admission=admission) as pool:

                async def work() -> None:
                    replies.extend([await pool.chat([{"role": "user", "content": "hi"}]) for _ in range(8)])

                async with trio.open_nursery() as nursery:
                    for _ in range(4):
                        nursery.start_soon(work)
        assert [reply.text for reply in replies] == ["hihi"] * 32
        assert all(len(reply.attempts) == 1 for reply in replies)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are read often and waited for briefly, as time goes in a test."""
    monkeypatch.setattr("scavenge.runtime.gating.LOAD_EVERY_S", 0.05)
    monkeypatch.setattr(member, "LOAD_WITHIN_S", 0.2)


@pytest.mark.parametrize("page", PAGES)
async def test_requests_are_answered_whatever_is_on_the_servers_page_of_figures(impatient, page):
    server = Hostile(PAGES[page])
    await answers_all(server, "tide")
    assert server.pages_asked
    assert server.sent_bytes <= server.pages_asked * (PAGE_BYTES + 16 * 2**20)


@pytest.mark.parametrize("policy", POLICIES)
async def test_absurd_figures_are_the_same_to_every_policy(impatient, policy):
    await answers_all(Hostile(PAGES["absurd"]), policy)
