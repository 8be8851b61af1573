"""What real llama.cpp servers tell of themselves, with and without their pages, and how their streams flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import trio
from http_cases import KEY, an_endpoint
from llama_server import SLOTS, needs_llama_server, open_servers

from scavenge.core.flow import FlowMeter
from scavenge.edge.model_http import HttpModelClient, HttpModelTransport
from scavenge.signals import ServerLoad
from scavenge.types import ChatRequest, Ok

pytestmark = needs_llama_server

ASKED = SLOTS + 2
LONG = ChatRequest([{"role": "user", "content": "Count."}], {"max_tokens": 900, "ignore_eos": True})
PROMPT = [{"role": "user", "content": "one two three " * 40}]
SHORT = ChatRequest(PROMPT, {"max_tokens": 32, "ignore_eos": True, "id_slot": 0, "cache_prompt": True})


@contextmanager
def open_client(url: str, **more: object) -> Iterator[HttpModelClient]:
    client = HttpModelTransport().open_client(an_endpoint(url, **more))
    assert isinstance(client, HttpModelClient)
    with closing(client):
        yield client


def figures(load: ServerLoad | None) -> tuple[int | None, int | None, int | None]:
    assert load is not None
    return load.running, load.waiting, load.slots


async def read_idle_and_busy(url: str, busy: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """The figures of the idle server; then keep more requests in flight than it has slots until it tells *busy*."""
    with open_client(url) as client, trio.fail_after(60):
        idle = figures(await client.read_load())
        async with trio.open_nursery() as nursery:
            for _ in range(ASKED):
                nursery.start_soon(client.ask, LONG)
            while figures(await client.read_load()) != busy:
                pass
            nursery.cancel_scope.cancel()
    return idle


@pytest.mark.parametrize(
    ("options", "idle", "busy"),
    [
        pytest.param(["--metrics"], (0, 0, SLOTS), (SLOTS, ASKED - SLOTS, SLOTS), id="metrics"),
        pytest.param([], (0, None, SLOTS), (SLOTS, None, SLOTS), id="slots"),
        pytest.param(["--no-slots"], (None, None, SLOTS), (None, None, SLOTS), id="properties"),
    ],
)
def test_a_real_server_is_read_wherever_it_tells(model, tmp_path, options, idle, busy):
    with open_servers(model, tmp_path, 1, options) as (server,):
        assert trio.run(read_idle_and_busy, server.root, busy) == idle


def test_a_server_that_asks_for_a_key_is_read_with_it_only(model, tmp_path):
    async def read(url: str, **more: object) -> ServerLoad | None:
        with open_client(url, **more) as client, trio.fail_after(60):
            return await client.read_load()

    with open_servers(model, tmp_path, 1, ["--metrics", "--api-key", KEY]) as (server,):
        assert figures(trio.run(lambda: read(server.root))) == (0, 0, SLOTS)
        assert trio.run(lambda: read(server.root, headers={"authorization": "Bearer wrong"})) is None


def test_the_pieces_of_a_real_stream_are_its_tokens_and_its_prefix_is_found_again(model, tmp_path):
    async def ask_twice(url: str) -> list[tuple[int, int | None, int | None]]:
        found = []
        with open_client(url) as client, trio.fail_after(60):
            for _ in range(2):
                stream = FlowMeter(trio.current_time()).begin(trio.current_time())
                answer = await client.ask(SHORT, stream)
                assert isinstance(answer.outcome, Ok)
                usage = answer.outcome.reply.usage
                found.append((stream.chunks, usage.completion_tokens, usage.cached_tokens))
        return found

    with open_servers(model, tmp_path, 1) as (server,):
        first, second = trio.run(ask_twice, server.root)
    assert first[1:] == (32, 0)
    assert 16 <= first[0] <= 32  # a token that ends within a character has no text yet
    assert second[2] is not None
    assert second[2] > 50
