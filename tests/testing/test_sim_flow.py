"""What a client in memory notes of the flow of tokens, and what it reads of a server's own figures."""

from __future__ import annotations

import random

import attrs
import pytest
import trio

from scavenge.core.flow import FlowMeter, Stream
from scavenge.signals import ServerLoad
from scavenge.testing import (
    EngineSettings,
    SimulatedClient,
    SimulatedFleet,
    SimulatedServer,
    cancel_at_every_step,
    faults,
)
from scavenge.testing.batching_settings import BatchingSettings
from scavenge.testing.host import Host
from scavenge.testing.node import Node
from scavenge.types import Answer, ChatRequest, Endpoint, EndpointId, Lost, Ok, Url

PLAIN = EngineSettings(token_s=0.1, load_s=0.0, slots=8)
EACH = EngineSettings(token_s=0.1, load_s=0.0, slots=8, tokens_per_event=1)
BATCHING = BatchingSettings(
    weights_s=0.1, gemm_s=0.0, kv_read_s=0.0, attention_s=0.0, overhead_s=0.0, stream_s=0.0, kv_tokens=5000, slots=8
)
ENGINES = pytest.mark.parametrize("engine", [PLAIN, EACH, BATCHING], ids=["plain", "each token", "batching"])


def fleet_of(engine: EngineSettings | BatchingSettings, **settings) -> SimulatedFleet:
    return SimulatedFleet([SimulatedServer("ep1", engine, **settings)])


def client_of(fleet: SimulatedFleet, name: str = "ep1", **settings) -> SimulatedClient:
    return fleet.open_client(Endpoint(EndpointId("sim"), "sim", Url(f"http://{name}.sim/v1"), **settings))


def asking(tokens: int = 50, *, stream: bool = True, text: str = "a story") -> ChatRequest:
    options = {"max_tokens": tokens, "ignore_eos": True}
    return ChatRequest([{"role": "user", "content": text}], options, stream=stream)


@ENGINES
async def test_tokens_are_counted_while_they_come(engine, autojump_clock):
    async with fleet_of(engine).open() as fleet, trio.open_nursery() as nursery:
        meter = FlowMeter(trio.current_time())
        streams = [meter.begin(trio.current_time()) for _ in range(4)]
        for stream in streams:
            nursery.start_soon(client_of(fleet).ask, asking(100), stream)
        await trio.sleep(2.05)
        flow = meter.take(trio.current_time())
        assert flow.output_tokens == 4 * 20
        assert flow.awaiting == pytest.approx(4 * 0.1 / 2.05)
        await trio.sleep(3)
        assert meter.take(trio.current_time()).output_tokens == 4 * 30
        assert {(stream.first_at, stream.last_at) for stream in streams} == {(0.1, 5.05)}


@ENGINES
async def test_every_token_is_counted_once_however_often_anybody_looks(engine, autojump_clock):
    meter, counted, rng = FlowMeter(0.0), [], random.Random(4)

    async def ask_some(client: SimulatedClient, tokens: int) -> None:
        for number in range(3):
            stream = meter.begin(trio.current_time())
            outcome = (await client.ask(asking(tokens, text=f"{tokens} {number}"), stream)).outcome
            assert isinstance(outcome, Ok)
            assert outcome.reply.usage.completion_tokens == stream.chunks == tokens
            assert stream.refresh is None
            meter.end(stream, trio.current_time())

    async with fleet_of(engine).open() as fleet:
        async with trio.open_nursery() as nursery:
            for tokens in range(1, 40):
                nursery.start_soon(ask_some, client_of(fleet), tokens)
            for _ in range(50):
                await trio.sleep(rng.expovariate(3))
                counted.append(meter.take(trio.current_time()).output_tokens)
        counted.append(meter.take(trio.current_time()).output_tokens)
    assert sum(counted) == 3 * sum(range(1, 40))
    assert meter.in_flight == 0


@ENGINES
async def test_a_frozen_stream_is_silent_since_the_freeze(engine, autojump_clock):
    async with fleet_of(engine).open() as fleet, trio.open_nursery() as nursery:
        stream = Stream(0.0, 1)
        nursery.start_soon(client_of(fleet).ask, asking(100), stream)
        await trio.sleep(3.05)
        fleet.nodes["ep1"].apply(faults.Freeze())
        await trio.sleep(10)
        assert stream.refresh is not None
        stream.refresh(trio.current_time())
        assert (stream.chunks, stream.last_at, stream.is_stalled(trio.current_time())) == (30, 3.05, True)
        nursery.cancel_scope.cancel()


@ENGINES
async def test_what_came_before_the_end_is_noted_however_it_ended(engine, autojump_clock):
    for fault in (faults.Kill(), faults.Abort(), None):
        async with fleet_of(engine).open() as fleet, trio.open_nursery() as nursery:
            stream, began_at, answers = Stream(trio.current_time(), 1), trio.current_time(), []

            async def ask(client: SimulatedClient, stream: Stream, answers: list[Answer]) -> None:
                answers.append(await client.ask(asking(100), stream))

            nursery.start_soon(ask, client_of(fleet), stream, answers)
            await trio.sleep(3.05)
            if fault is None:
                nursery.cancel_scope.cancel()
            else:
                fleet.nodes["ep1"].apply(fault)
        assert (stream.chunks, stream.refresh) == (30, None)
        assert stream.last_at == pytest.approx(began_at + 3.05)
        assert [type(answer.outcome) for answer in answers] == [Lost] * (fault is not None)


@ENGINES
async def test_a_reply_in_one_piece_notes_nothing_while_it_is_made(engine, autojump_clock):
    async with fleet_of(engine).open() as fleet, trio.open_nursery() as nursery:
        stream = Stream(0.0, 1, streamed=False)
        nursery.start_soon(client_of(fleet).ask, asking(50, stream=False), stream)
        await trio.sleep(1)
        assert (stream.chunks, stream.refresh) == (0, None)
    assert (stream.chunks, stream.refresh) == (0, None)


@pytest.mark.parametrize("engine", [PLAIN, BATCHING], ids=["plain", "batching"])
def test_cancelled_at_any_step_a_request_leaves_nothing_in_its_stream(engine):
    streams, fleets = [], []

    async def use() -> None:
        streams.append(Stream(0.0, 1))
        fleets.append(fleet_of(engine))
        async with fleets[-1].open() as fleet:
            await client_of(fleet).ask(asking(5), streams[-1])

    def check() -> None:
        assert streams[-1].refresh is None
        assert fleets[-1].nodes["ep1"].host.in_flight == ()

    assert cancel_at_every_step(use, check) > 5
    assert streams[-1].chunks == 5


class Steps(trio.abc.Instrument):
    """Counts how often a task was given a step."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


@ENGINES
async def test_no_task_wakes_for_a_token(engine, autojump_clock):
    taken = []
    for tokens in (10, 3000):
        async with fleet_of(engine).open() as fleet:
            trio.lowlevel.add_instrument(steps := Steps())
            await client_of(fleet).ask(asking(tokens))
            trio.lowlevel.remove_instrument(steps)
        taken.append(steps.count)
    wakes_of_the_clock = 3000 - 10 if engine is EACH else 0
    assert taken[1] - taken[0] == wakes_of_the_clock


async def test_a_stream_that_was_put_back_is_not_silent(autojump_clock):
    async with fleet_of(BatchingSettings(weights_s=0.1, slots=2, kv_tokens=100)).open() as fleet:
        outcomes = []

        async def ask(text: str) -> None:
            request = attrs.evolve(asking(90, text=text), idle_timeout_s=5.0)
            outcomes.append((await client_of(fleet).ask(request)).outcome)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "a")
            nursery.start_soon(ask, "b")
        assert [type(outcome) for outcome in outcomes] == [Ok, Ok]
        load = await client_of(fleet).read_load()
        assert load.preemptions > 0


# --- a server's own figures


async def test_a_plain_engine_offers_no_figures_unless_it_is_told_to(autojump_clock):
    async with fleet_of(PLAIN).open() as fleet:
        assert await client_of(fleet).read_load() is None
    async with fleet_of(PLAIN, metrics="vllm").open() as fleet:
        assert await client_of(fleet).read_load() == ServerLoad(running=0, waiting=0)


async def test_figures_are_a_sign_of_life(autojump_clock):
    async with fleet_of(BATCHING).open() as fleet:
        client = client_of(fleet)
        await trio.sleep(3)
        assert (await client.read_load()).kv_tokens == 5000
        assert client.heard_at == 3


async def test_without_a_server_there_are_no_figures(autojump_clock):
    async with fleet_of(BATCHING).open() as fleet:
        assert await client_of(fleet, "ep9").read_load() is None
        fleet.nodes["ep1"].apply(faults.Kill())
        assert await client_of(fleet).read_load() is None


async def test_a_frozen_server_tells_nothing_until_it_thaws(autojump_clock):
    async with fleet_of(BATCHING).open() as fleet:
        fleet.nodes["ep1"].apply(faults.Freeze(for_s=7))
        with trio.move_on_after(5) as patience:
            await client_of(fleet).read_load()
        assert patience.cancelled_caught
        assert await client_of(fleet).read_load() is not None
        assert trio.current_time() == 7


@pytest.mark.parametrize(("metrics", "without"), [("vllm", True), ("llama", False)])
async def test_llama_cpp_asks_for_its_token_and_vllm_does_not(metrics, without, autojump_clock):
    async with fleet_of(BATCHING, metrics=metrics, secret="s3").open() as fleet:
        assert (await client_of(fleet).read_load() is not None) == without
        assert await client_of(fleet, key="K", secret="s3").read_load() is not None


async def test_a_thaw_is_told_whoever_notices_it_first(autojump_clock):
    node = Node(Host(SimulatedServer("ep1", BATCHING), random.Random(0)), "http://ep1.sim/v1")
    node.apply(faults.Freeze(for_s=1))
    with trio.move_on_after(3) as patience:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.wait_responsive)
            await trio.sleep(2)  # the node's own clock does not run
            node.read_load()
    assert not patience.cancelled_caught


async def test_a_death_is_told_whoever_notices_it_first(autojump_clock):
    told = []
    node = Node(Host(SimulatedServer("ep1", BATCHING), random.Random(0)), "http://ep1.sim/v1", told.append)
    node.apply(faults.Notice(in_s=1))
    await trio.sleep(2)
    node.read_load()
    assert told == [False, True]
