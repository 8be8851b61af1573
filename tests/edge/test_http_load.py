"""The figures that servers tell of themselves, found by asking them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

import pytest
import trio
from http_cases import KEY, client_of
from raw_server import Conn, RawServer, free_port, raw_server, reply

from scavenge.edge.http.load import PAGE_BYTES, is_hosted
from scavenge.edge.http.route import route_to
from scavenge.edge.model_http import HttpModelClient
from scavenge.signals import ServerLoad
from scavenge.types import Healthy

VLLM = reply(b"vllm:num_requests_running 3\nvllm:num_requests_waiting 1\n", headers="content-type: text/plain")
LLAMA = reply(b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 5\n", headers="content-type: text/plain")
SLOTS = reply(json.dumps([{"is_processing": True}, {"is_processing": False}]).encode())
PROPS = reply(b'{"total_slots": 8}')
DISABLED = reply(b'{"error": {"code": 501}}', "501 Not Implemented")
MISSING = reply(b'{"detail": "Not Found"}', "404 Not Found")
METRICS, TENSORRT = "/metrics", "/prometheus/metrics"
Send = Callable[[Conn], Awaitable[object] | None]


class Pages:
    """A server's pages, and the requests for them."""

    def __init__(self, pages: Mapping[str, bytes | Send]) -> None:
        self.pages = dict(pages)
        self.asked: list[str] = []
        self.heads: list[bytes] = []

    async def script(self, conn: Conn) -> None:
        while True:
            head, _ = await conn.request()
            path = head.split(b" ")[1].decode()
            self.heads.append(head)
            self.asked.append(path)
            page = self.pages.get(path, MISSING)
            waits = conn.send(page) if isinstance(page, bytes) else page(conn)
            if waits is not None:
                await waits

    def taken(self) -> list[str]:
        """The paths asked for since the last time."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """Real time that can be moved on."""
    return trio.testing.MockClock(rate=1.0)


async def read(client: HttpModelClient) -> ServerLoad | None:
    with trio.fail_after(10):
        return await client.read_load()


async def loads_of(pages: Pages, times: int = 1, base: str = "/v1") -> list[ServerLoad | None]:
    async with raw_server(pages.script) as server:
        client = client_of(f"http://127.0.0.1:{server.port}{base}")
        loads = [await read(client) for _ in range(times)]
        client.close()
    return loads


async def test_metrics_are_read_at_the_root_with_the_key_over_the_same_connection() -> None:
    pages = Pages({METRICS: VLLM, "/v1/models": reply(b'{"data": [{"id": "some/model"}]}')})
    async with raw_server(pages.script) as server:
        client = client_of(server.url)
        assert isinstance(await client.probe("/models"), Healthy)
        assert await read(client) == await read(client) == ServerLoad(running=3, waiting=1)
        client.close()
    assert pages.asked == ["/v1/models", METRICS, METRICS]
    assert server.accepted == 1
    assert b"authorization: Bearer " + KEY.encode() in pages.heads[1]


@pytest.mark.parametrize(
    ("base", "path"), [("", METRICS), ("/v1", METRICS), ("/a/v1", "/a/metrics"), ("/v2", "/v2/metrics")]
)
async def test_the_root_is_the_url_without_its_version(base: str, path: str) -> None:
    pages = Pages({path: VLLM})
    assert await loads_of(pages, base=base) == [ServerLoad(running=3, waiting=1)]


async def test_metrics_of_tensorrt_are_found_where_they_are() -> None:
    pages = Pages({METRICS: reply(b'[{"iter": 1}]'), TENSORRT: reply(b"trtllm_num_requests_running 4\n")})
    assert await loads_of(pages, 2) == [ServerLoad(running=4)] * 2
    assert pages.asked == [METRICS, TENSORRT, TENSORRT]


async def test_llama_cpp_with_metrics_tells_its_slots_once_a_minute(clock: trio.testing.MockClock) -> None:
    pages = Pages({METRICS: LLAMA, "/props": PROPS})
    async with raw_server(pages.script) as server:
        client = client_of(server.url)
        assert await read(client) == await read(client) == ServerLoad(running=2, waiting=5, slots=8)
        assert pages.taken() == [METRICS, "/props", METRICS]
        pages.pages["/props"] = reply(b'{"total_slots": 2}')
        clock.jump(61)
        assert await read(client) == ServerLoad(running=2, waiting=5, slots=2)
        assert pages.taken() == [METRICS, "/props"]
        pages.pages["/props"] = MISSING
        clock.jump(61)
        assert await read(client) == ServerLoad(running=2, waiting=5)
        client.close()


async def test_llama_cpp_without_metrics_tells_its_slots() -> None:
    pages = Pages({METRICS: DISABLED, "/slots": SLOTS, "/props": PROPS})
    assert await loads_of(pages, 2) == [ServerLoad(running=1, slots=2)] * 2
    assert pages.asked == [METRICS, TENSORRT, "/slots", "/slots"]


async def test_llama_cpp_without_a_list_of_slots_tells_how_many_it_has() -> None:
    pages = Pages({METRICS: DISABLED, "/slots": DISABLED, "/props": PROPS})
    assert await loads_of(pages, 2) == [ServerLoad(slots=8)] * 2


async def test_a_server_that_tells_nothing_is_asked_again_after_a_minute_or_two(
    clock: trio.testing.MockClock,
) -> None:
    pages = Pages({})
    everything = [METRICS, TENSORRT, "/slots", "/props"]
    async with raw_server(pages.script) as server:
        client = client_of(server.url)
        for rest_s in (61, 121):
            assert await read(client) is None
            assert pages.taken() == everything
            clock.jump(rest_s - 2)
            assert await read(client) is None
            assert pages.taken() == []
            clock.jump(2)
        pages.pages[METRICS] = VLLM
        assert await read(client) == ServerLoad(running=3, waiting=1)
        client.close()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(reply(b"", "302 Found", f"location: {METRICS}/"), id="a redirect, which is not followed"),
        pytest.param(reply(b"<html><title>hello</title></html>"), id="a page for people"),
        pytest.param(reply(b"python_info 1\n"), id="figures of something else"),
        pytest.param(reply(b"no", "401 Unauthorized"), id="not for us"),
        pytest.param(reply(b"vllm:num_requests_running 3\n", "203 Changed"), id="changed on the way"),
        pytest.param(reply(b"\x1f\x8b\x08\x00\xff", headers="content-encoding: gzip"), id="packed"),
    ],
)
async def test_a_page_without_figures_is_none(page: bytes) -> None:
    pages = Pages({METRICS: page})
    assert await loads_of(pages) == [None]
    assert pages.asked == [METRICS, TENSORRT, "/slots", "/props"]


async def too_much(conn: Conn) -> None:
    await conn.send(b"HTTP/1.1 200 OK\r\n\r\nvllm:num_requests_running 3\n")
    for _ in range(PAGE_BYTES // 2**20 + 64):
        await conn.send(b"#" * 2**20)
    await conn.until_gone()


async def test_a_page_without_end_is_left_before_it_ends() -> None:
    pages = Pages({METRICS: too_much, "/slots": SLOTS})
    with trio.fail_after(20):
        assert await loads_of(pages) == [ServerLoad(running=1, slots=2)]


async def test_a_server_that_is_restarted_as_another_is_found_again() -> None:
    pages = Pages({METRICS: VLLM})
    async with raw_server(pages.script) as server:
        client = client_of(server.url)
        assert await read(client) == ServerLoad(running=3, waiting=1)
        pages.pages = {METRICS: DISABLED, "/slots": SLOTS}
        assert await read(client) is None
        assert await read(client) == ServerLoad(running=1, slots=2)
        client.close()


async def test_a_server_that_is_only_busy_keeps_its_page() -> None:
    pages = Pages({METRICS: VLLM})
    async with raw_server(pages.script) as server:
        client = client_of(server.url)
        assert await read(client) == ServerLoad(running=3, waiting=1)
        pages.pages[METRICS] = reply(b"busy", "503 Service Unavailable")
        assert await read(client) is None
        pages.pages[METRICS] = VLLM
        pages.taken()
        assert await read(client) == ServerLoad(running=3, waiting=1)
        assert pages.taken() == [METRICS]
        client.close()


async def break_off(conn: Conn) -> None:
    await conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nvllm:num_requests_running 3\n")
    conn.cut()


def hang_up(conn: Conn) -> None:
    conn.cut()


async def garbage(conn: Conn) -> None:
    await conn.send(b"\x15\x03\x03\x00\x02\x02\x46 what\r\n\r\n")
    conn.cut()


@pytest.mark.parametrize("page", [break_off, hang_up, garbage])
async def test_a_connection_that_fails_says_nothing_and_forgets(page: Send) -> None:
    pages = Pages({"/slots": SLOTS})
    async with raw_server(pages.script) as server:
        client = client_of(server.url)
        assert await read(client) == ServerLoad(running=1, slots=2)
        pages.pages["/slots"] = page
        assert await read(client) is None
        pages.pages["/slots"] = SLOTS
        pages.taken()
        assert await read(client) == ServerLoad(running=1, slots=2)
        assert pages.taken() == [METRICS, TENSORRT, "/slots"]
        client.close()


async def test_slots_that_cannot_be_asked_for_are_a_connection_that_failed() -> None:
    pages = Pages({METRICS: LLAMA, "/props": hang_up})
    assert await loads_of(pages) == [None]


async def test_nobody_is_there() -> None:
    client = client_of(f"http://127.0.0.1:{free_port()}/v1")
    assert await read(client) is None
    client.close()


async def cancelled_at(server: RawServer, pages: Pages, path: str) -> HttpModelClient:
    """A client whose reading of the load was cancelled while it waited for one page."""
    hung = trio.Event()

    async def hang(conn: Conn) -> None:
        hung.set()
        await conn.until_gone()

    pages.pages[path] = hang
    client = client_of(server.url)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.read_load)
        await hung.wait()
        nursery.cancel_scope.cancel()
    await server.wait_gone(1)
    return client


@pytest.mark.parametrize("path", [METRICS, "/slots", "/props"])
async def test_cancelled_anywhere_it_leaves_no_connection_and_rests(path: str, clock: trio.testing.MockClock) -> None:
    pages = Pages({})
    with trio.fail_after(100):
        async with raw_server(pages.script) as server:
            client = await cancelled_at(server, pages, path)
            pages.taken()
            pages.pages = {METRICS: VLLM}
            assert await read(client) is None
            assert pages.taken() == []
            clock.jump(61)
            assert await read(client) == ServerLoad(running=3, waiting=1)
            client.close()


@pytest.mark.parametrize(
    ("url", "hosted"),
    [
        ("https://api.example.com/v1", True),
        ("https://api.example.com:8443/v1", False),
        ("http://api.example.com/v1", False),
        ("https://10.0.0.7/v1", False),
        ("https://[2001:db8::1]/v1", False),
        ("https://node7/v1", False),
        ("http://127.0.0.1:8000/v1", False),
    ],
)
def test_a_service_on_the_internet_is_told_from_a_server(url: str, hosted: bool) -> None:
    assert is_hosted(route_to(url, None)[0]) is hosted
