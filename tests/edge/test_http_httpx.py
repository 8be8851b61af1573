"""The same connections under `httpx.AsyncClient`."""

from __future__ import annotations

import httpx
import pytest
import trio
import trio.testing
from http_cases import (
    ASK,
    KEY,
    WHOLE,
    client_of,
)
from raw_server import (
    Conn,
    document,
    free_port,
    raw_server,
    reply,
    script_of,
)

from scavenge.errors import UsageError
from scavenge.types import (
    Busy,
    Lost,
    Outcome,
)


async def test_httpx_works_over_the_same_connections() -> None:
    seen: list[Outcome | None] = []
    heads: list[bytes] = []

    async def script(conn: Conn) -> None:
        while True:
            head, body = await conn.request()
            heads.append(head)
            await conn.send(reply(body or b"{}"))

    async with raw_server(script) as server:
        client = client_of(server.url, headers={"x-team": "a"})
        async with client.open_http(lambda outcome, since: seen.append(outcome)) as http:
            posted = await http.post("chat/completions", json={"n": 1})
            assert posted.json() == {"n": 1}
            got = await http.get("models", params={"a": "b"})
            assert got.json() == {}
            assert (await http.post("x", content=Parts())).text == "onetwo"
            assert client._pool.idle == 1
        assert (await client.ask(ASK)).outcome.name == "failed"
        assert server.accepted == 1
        client.close()
    assert seen == [None, None, None]
    assert heads[0].startswith(b"POST /v1/chat/completions HTTP/1.1")
    assert heads[1].startswith(b"GET /v1/models?a=b HTTP/1.1")
    assert b"Authorization: Bearer " + KEY.encode() in heads[0]
    assert b"x-team: a" in heads[0].lower()
    assert b"content-length" not in heads[1].lower()


class Parts(httpx.AsyncByteStream):
    """A body whose length httpx does not know."""

    def __init__(self) -> None:
        self._left = [b"two", b"one"]

    def __aiter__(self) -> Parts:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


async def test_httpx_streams() -> None:
    async with raw_server(script_of(WHOLE)) as server:
        client = client_of(server.url)
        async with client.http.stream("POST", "chat/completions", json={}) as response:
            lines = [line async for line in response.aiter_lines()]
        assert lines[-2:] == ["data: [DONE]", ""]
        async with client.http.stream("POST", "chat/completions", json={}) as response:
            assert response.status_code == 200  # and left unread: not a connection to keep
        assert server.accepted == 1
        client.close()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1/x", "https://127.0.0.1/v1", "http://other.invalid/"])
async def test_a_url_of_another_origin_is_refused(url: str) -> None:
    async with raw_server(script_of(WHOLE)) as server:
        client = client_of(server.url)
        with pytest.raises(UsageError, match="holds the key"):
            await client.http.get(url)
        assert (await client.http.get(server.url + "/models")).status_code == 200
        client.close()


async def test_httpx_errors_are_httpxs_own_and_are_reported() -> None:
    seen: list[Outcome | None] = []
    http = client_of(f"http://127.0.0.1:{free_port()}/v1").open_http(lambda outcome, since: seen.append(outcome))
    with pytest.raises(httpx.ConnectError):
        await http.get("x")
    async with raw_server(script_of(reply(document())[:-3], Conn.cut)) as server:
        http = client_of(server.url).open_http(lambda outcome, since: seen.append(outcome))
        with pytest.raises(httpx.ReadError):
            await http.get("x")
    async with raw_server(script_of(Conn.cut)) as server:
        http = client_of(server.url).open_http(lambda outcome, since: seen.append(outcome))
        with pytest.raises(httpx.ReadError):
            await http.get("x")
        with pytest.raises(httpx.LocalProtocolError):
            await http.get("x", headers={"a": "b\x00"})
    async with raw_server(script_of(reply(b"", "503 Busy", "retry-after: 2"))) as server:
        client = client_of(server.url)
        assert (await client.open_http(lambda outcome, since: seen.append(outcome)).get("x")).status_code == 503
        client.close()
    assert [type(outcome) for outcome in seen] == [Lost, Lost, Lost, Busy]
    assert isinstance(seen[-1], Busy)
    assert seen[-1].retry_after_s == 2.0


@pytest.mark.parametrize("begun", [b"", reply(document())[:-3]])
async def test_a_read_timeout_of_the_callers_is_honoured(begun: bytes) -> None:
    async with raw_server(script_of(begun, Conn.until_gone)) as server:
        with pytest.raises(httpx.ReadTimeout):
            await client_of(server.url).http.get("x", timeout=0.05)
