"""The endpoint source type ``simulated``."""

from __future__ import annotations

import httpx
import pytest
import trio
from sim_until import until

from scavenge.listings import EndpointSpec
from scavenge.testing import EngineSettings, SimulatedConfig, open_simulated
from scavenge.testing.batching_settings import BatchingSettings


async def test_its_servers_are_there_while_it_is_open():
    config = SimulatedConfig(servers=2, slots=3, max_concurrent=3, model="m", endpoint_id="pool", token_s=0.0001)
    async with open_simulated(config) as source:
        listing = await source.list_endpoints()
        urls = [row.url for row in listing.endpoints if isinstance(row, EndpointSpec)]
        assert [(row.endpoint_id, row.model, row.max_concurrent, row.key) for row in listing.endpoints] == [
            ("pool", "m", 3, None)
        ] * 2
        async with httpx.AsyncClient(base_url=urls[1], trust_env=False, verify=False) as client:
            reply = await client.post("completions", json={"model": "m", "prompt": "1 + 1", "max_tokens": 1})
        assert reply.status_code == 200
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream("127.0.0.1", httpx.URL(urls[1]).port)


async def test_its_listing_follows_the_script():
    async with open_simulated(SimulatedConfig(script="t=0.01 leave ep1; t=0.01 drain ep2; t=1000 join ep3")) as source:
        assert len((await source.list_endpoints()).endpoints) == 2
        await until(lambda: [row.draining for row in source.rows()] == [True])
        assert len((await source.list_endpoints()).endpoints) == 1


def test_room_for_contexts_makes_it_a_batching_server():
    plain, batching = SimulatedConfig(), SimulatedConfig(kv_tokens=5000, slots=3, token_s=0.02, load_s=0.001)
    assert {type(server.engine) for server in plain.plan().servers} == {EngineSettings}
    (engine,) = {server.engine for server in batching.plan().servers}
    assert isinstance(engine, BatchingSettings)
    assert (engine.kv_tokens, engine.slots, engine.weights_s, engine.stream_s) == (5000, 3, 0.02, 0.001)
    assert {server.metrics for server in (*plain.plan().servers, *batching.plan().servers)} == {"vllm"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"servers": 0}, "'servers' must be >= 1"),
        ({"servers": 1001}, "'servers' must be <= 1000"),
        ({"slots": 0}, "'slots' must be >= 1"),
        ({"token_s": 0.0}, "'token_s' must be > 0"),
        ({"load_s": float("inf")}, "'load_s' must be <= "),
        ({"load_s": float("nan")}, "'load_s' must be >= 0"),
        ({"kv_tokens": 0}, "'kv_tokens' must be >= 1"),
        ({"kv_tokens": 1000, "slots": 0}, "'slots' must be >= 1"),
        ({"model": ""}, "model"),
        ({"script": "t=1 kill ep4"}, 'script: script:1:1: unknown server "ep4", did you mean "ep3"'),
    ],
)
def test_wrong_keys_are_named(keys, message):
    with pytest.raises(ValueError, match=message):
        SimulatedConfig(**keys)
