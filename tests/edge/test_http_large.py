"""Requests that do not fit into the buffers of a socket."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing
from http_cases import (
    asked,
    cut,
    silent,
)
from raw_server import (
    Conn,
    document,
    raw_server,
    reply,
)

from scavenge.types import (
    ChatRequest,
    Lost,
    Ok,
    Rejected,
)


async def test_a_large_request_arrives_whole() -> None:
    got: list[bytes] = []

    async def script(conn: Conn) -> None:
        got.append((await conn.request())[1])
        await conn.send(reply(document()))

    text = "x" * 20_000_000
    async with raw_server(script) as server:
        answer = await asked(server.url, ChatRequest([{"role": "user", "content": text}], stream=False))
    assert isinstance(answer.outcome, Ok)
    assert json.loads(got[0])["messages"][0]["content"] == text


@pytest.mark.parametrize("ending", [cut, silent])
async def test_a_refusal_before_the_request_was_read_is_heard(ending: object) -> None:
    async def script(conn: Conn) -> None:
        await conn.stream.receive_some(1000)
        await conn.send(reply(b'{"error": "too large"}', "413 Content Too Large"))
        if ending is silent:
            await trio.sleep_forever()
        await conn.stream.send_eof()
        await trio.sleep(0.05)

    async with raw_server(script) as server:
        answer = await asked(server.url, ChatRequest([{"role": "user", "content": "x" * 20_000_000}]))
    assert isinstance(answer.outcome, Rejected), answer
    assert answer.outcome.http_status == 413


async def test_a_server_that_goes_while_a_large_request_is_sent_is_lost() -> None:
    async def script(conn: Conn) -> None:
        await conn.stream.receive_some(1000)
        conn.reset()

    async with raw_server(script) as server:
        answer = await asked(server.url, ChatRequest([{"role": "user", "content": "x" * 20_000_000}]))
    assert isinstance(answer.outcome, Lost)
