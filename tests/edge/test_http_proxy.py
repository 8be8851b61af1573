"""Plain HTTP by a proxy, and none that nobody named."""

from __future__ import annotations

import pytest
from http_cases import (
    ASK,
    WHOLE,
    client_of,
)
from raw_server import (
    Conn,
    free_port,
    raw_server,
    script_of,
)

from scavenge.types import (
    Ok,
)


async def test_plain_http_goes_through_the_proxy_in_absolute_form() -> None:
    heads: list[bytes] = []

    async def script(conn: Conn) -> None:
        heads.append((await conn.request())[0])
        await conn.send(WHOLE)

    async with raw_server(script) as proxy:
        url = f"http://user:pass%40word@127.0.0.1:{proxy.port}"
        client = client_of("http://model.invalid/v1", proxy=url)
        assert isinstance((await client.ask(ASK)).outcome, Ok)
        client.close()
    assert heads[0].startswith(b"POST http://model.invalid/v1/chat/completions HTTP/1.1\r\nhost: model.invalid\r\n")
    assert b"proxy-authorization: Basic dXNlcjpwYXNzQHdvcmQ=" in heads[0]


async def test_no_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    async with raw_server(script_of(WHOLE)) as server:
        client = client_of(server.url)
        assert isinstance((await client.ask(ASK)).outcome, Ok)
        assert (await client.http.get("models")).status_code == 200
        client.close()
