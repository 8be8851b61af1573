"""Cancellation at every step."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from http_cases import (
    ASK,
    WHOLE,
    client_of,
)
from raw_server import (
    DONE,
    LAST_CHUNK,
    STREAM_HEAD,
    Conn,
    chunk,
    delta,
    raw_server,
    script_of,
)

from scavenge.testing.sweep import cancel_at_every_step
from scavenge.types import (
    ChatRequest,
    Failed,
    Healthy,
    Lost,
    Misrouted,
    Ok,
)


@pytest.fixture
def many_steps() -> Iterator[None]:
    yield
    gc.collect()  # a socket that was lost warns here, and a warning is an error


@pytest.mark.parametrize(
    "script",
    [
        script_of(WHOLE),
        script_of(STREAM_HEAD, chunk(delta("hello")), chunk(delta(None, "stop")) + chunk(DONE), LAST_CHUNK),
        script_of(WHOLE, Conn.cut),
    ],
)
def test_cancelled_at_any_step_a_request_leaves_nothing_behind(script: object, many_steps: None) -> None:
    left: list[tuple[int, int]] = []

    async def use() -> None:
        client = client_of("http://127.0.0.1:1/v1")
        server_port = 0
        try:
            async with raw_server(script) as server:  # type: ignore[arg-type]
                server_port = server.port
                client = client_of(f"http://127.0.0.1:{server_port}/v1")
                for _ in range(2):
                    assert isinstance((await client.ask(ASK)).outcome, Ok)
                assert isinstance(await client.probe("/x"), Healthy | Failed | Misrouted)
        finally:
            left.append((client._pool.dialer.under_way, client._pool.idle))
            client.close()

    def check() -> None:
        under_way, idle = left.pop()
        assert under_way == 0
        assert idle <= 1

    assert cancel_at_every_step(use, check) > 10


def test_cancelled_at_any_step_a_large_request_leaves_nothing_behind(many_steps: None) -> None:
    big = ChatRequest([{"role": "user", "content": "x" * 6_000_000}])

    async def use() -> None:
        async with raw_server(script_of(WHOLE)) as server:
            client = client_of(server.url)
            try:
                assert isinstance((await client.ask(big)).outcome, Ok | Lost)
            finally:
                assert client._pool.dialer.under_way == 0
                client.close()

    assert cancel_at_every_step(use, lambda: None, max_steps=5_000) > 10
