"""The fleet in memory and the one on sockets behave alike: one table, two runners, the same outcomes.

The one on sockets is asked by the transport that runs use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from sim_until import until
from trio.testing import MockClock

from scavenge.edge.model_http import HttpModelTransport
from scavenge.runtime.ports import ModelTransport
from scavenge.signals import ServerLoad
from scavenge.testing import EngineSettings, FleetPlan, SimulatedFleet, SimulatedServer, faults, open_http_fleet
from scavenge.testing.batching_settings import BatchingSettings
from scavenge.testing.model import reply_to
from scavenge.testing.node import Node
from scavenge.types import Answer, ApiType, ChatRequest, Endpoint, EndpointId, Healthy, Ok, Outcome, Url, Usage

LONG = next(
    text
    for text in (f"story {number}" for number in range(10_000))
    if len(reply_to([{"role": "user", "content": text}]).tokens) > 200
)

QUICK = EngineSettings(token_s=0.0005, load_s=0.0, tokens_per_event=1)
LASTING = EngineSettings(token_s=0.02, load_s=0.0, tokens_per_event=1)  # LONG takes four seconds
BATCHING = BatchingSettings(weights_s=0.0005, overhead_s=0.0)
STANDING = BatchingSettings(weights_s=1000.0, slots=1)
ENDLESS = EngineSettings(token_s=1000.0, load_s=0.0, tokens_per_event=1)


@attrs.frozen
class Case:
    """A request, what is wrong with the server before it, or once so many tokens are there, and what it comes to."""

    expect: tuple[object, ...]
    engine: EngineSettings | BatchingSettings = QUICK
    text: str = "What is 2 + 3?"
    before: faults.Fault | None = None
    during: faults.Fault | None = None
    at_tokens: int = 0
    idle_timeout_s: float = 30.0
    options: dict[str, object] = attrs.field(factory=dict)
    server: dict[str, object] = attrs.field(factory=dict)
    endpoint: dict[str, object] = attrs.field(factory=dict)
    probe: tuple[object, ...] = ("healthy",)


TEXTS = {"type": ApiType.COMPLETIONS}
CASES = {
    "whole": Case(("ok", "stop", 5)),
    "cut at max_tokens": Case(("ok", "length", 5), options={"max_tokens": 3}),
    "of the other protocol": Case(("ok", "stop", 5), endpoint=TEXTS),
    "killed before": Case(("lost", None), before=faults.Kill(), probe=("lost", None)),
    "killed while it waits": Case(("lost", None), ENDLESS, during=faults.Kill()),
    "killed with tokens there": Case(("lost",), LASTING, LONG, during=faults.Kill(), at_tokens=3),
    "restarted with tokens there": Case(("lost",), LASTING, LONG, during=faults.Restart(), at_tokens=3),
    "aborted while it waits": Case(("lost", 200), ENDLESS, during=faults.Abort()),
    "aborted with tokens there": Case(("lost", 200), LASTING, LONG, during=faults.Abort(), at_tokens=3),
    "busy": Case(("busy", 429, 3.0), before=faults.Busy(retry_after_s=3.0)),
    "busy without a word": Case(("busy", 503, None), before=faults.Busy(status=503)),
    "overloaded": Case(("busy", 529, None), before=faults.Busy(status=529)),
    "full": Case(("busy", 503, None), server={"engine": EngineSettings(slots=1, max_waiting=0)}, text="full"),
    "full of what it batches": Case(
        ("busy", 429, None), server={"engine": attrs.evolve(STANDING, max_waiting=0)}, text="full"
    ),
    "batched": Case(("ok", "stop", 5), BATCHING),
    "of a length that was asked for": Case(
        ("ok", "length", 5), BATCHING, options={"max_tokens": 90, "ignore_eos": True}
    ),
    "of a long prompt": Case(("ok", "stop", 600), BATCHING, options={"simulated": {"prompt_tokens": 600}}),
    "of a prompt that is too long": Case(
        ("rejected", 400, True), server={"context_tokens": 99}, options={"simulated": {"prompt_tokens": 100}}
    ),
    "of a length that is none": Case(("rejected", 400, False), options={"simulated": {"prompt_tokens": -1}}),
    "garbage": Case(("failed", 200), before=faults.Garbage()),
    "error": Case(("failed", 500), before=faults.Error()),
    "gateway error": Case(("failed", 502), before=faults.Error(status=502)),
    "request timeout": Case(("failed", 408), before=faults.Error(status=408)),
    "not found": Case(("misrouted", 404, True), before=faults.Error(status=404)),
    "forbidden": Case(("misrouted", 403, False), before=faults.Error(status=403)),
    "unprocessable": Case(("rejected", 422, False), before=faults.Error(status=422)),
    "another model": Case(("misrouted", 404, True), server={"model": "other"}, probe=("misrouted", 200, True)),
    "without the token": Case(("misrouted", 401, False), server={"secret": "s3cret"}, probe=("misrouted", 401, False)),
    "with the token": Case(("ok", "stop", 5), server={"secret": "s3cret"}, endpoint={"secret": "s3cret", "key": "K"}),
    "too long": Case(("rejected", 400, True), server={"context_tokens": 4}),
    "a wrong option": Case(("rejected", 400, False), options={"max_tokens": 0}),
    "several choices": Case(("rejected", 400, False), options={"n": 2}),
    "healed": Case(("ok", "stop", 5), before=faults.Freeze(for_s=0.01)),
}
SILENT = {
    "frozen before": Case(("lost", None), before=faults.Freeze(), idle_timeout_s=0.05, probe=("silent",)),
    "frozen with tokens there": Case(
        ("lost",), LASTING, LONG, during=faults.Freeze(), at_tokens=3, idle_timeout_s=0.5, probe=("silent",)
    ),
    "slow": Case(("lost", None), before=faults.Slow(x=1e6), idle_timeout_s=0.05),
}


@attrs.frozen
class Stage:
    """A server, and what leads to it."""

    transport: ModelTransport
    node: Node
    url: str


@asynccontextmanager
async def in_memory(server: SimulatedServer) -> AsyncIterator[Stage]:
    async with SimulatedFleet([server]).open() as fleet:
        yield Stage(fleet, fleet.nodes["ep1"], "http://ep1.sim/v1")


@asynccontextmanager
async def on_sockets(server: SimulatedServer) -> AsyncIterator[Stage]:
    async with open_http_fleet(FleetPlan([server])) as fleet:
        yield Stage(HttpModelTransport(), fleet.nodes["ep1"], fleet.nodes["ep1"].url)


async def play(open_stage: Callable[[SimulatedServer], object], case: Case, stream: bool) -> list[object]:
    """Put a case on; the answer's outcome, the probe's, and what the server counted."""
    settings = {"engine": case.engine, **case.server}
    async with open_stage(SimulatedServer("ep1", **settings)) as stage:
        node = stage.node
        client = stage.transport.open_client(Endpoint(EndpointId("sim"), "sim", Url(stage.url), **case.endpoint))
        if case.before is not None:
            node.apply(case.before)
            await trio.sleep(0.005)  # a dead server's port closes when its tasks have ended
        if case.text == "full":
            node.begin(reply_to([{"role": "user", "content": LONG}]), lambda: None)
        request = ChatRequest([{"role": "user", "content": case.text}], case.options, stream, case.idle_timeout_s)
        answers: list[Answer] = []

        async def ask() -> None:
            answers.append(await client.ask(request))

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                if case.during is not None:
                    await until(lambda: any(g.tokens >= case.at_tokens for g in node.host.in_flight))
                    node.apply(case.during)
        probed = await probe_of(client.probe) if case.during is None or case.probe == ("silent",) else ("healthy",)
        client.close()
        truth = node.host.truth
        await until(lambda: len(node.host.in_flight) == (case.text == "full"))
        return [answers[0], probed, truth.started, truth.finished, truth.lost, truth.cancelled, truth.refused]


async def probe_of(probe: Callable[[str], Awaitable[Healthy | Outcome]]) -> object:
    with trio.move_on_after(0.3):
        return await probe("/models")
    return None


def both(case: Case, stream: bool) -> tuple[list[object], list[object]]:
    memory = trio.run(play, in_memory, case, stream, clock=MockClock(autojump_threshold=0))
    return memory, trio.run(play, on_sockets, case, stream)


def name_and_facts(outcome: object, length: int) -> tuple[object, ...]:
    if outcome is None:
        return ("silent",)
    if isinstance(outcome, tuple):
        return outcome
    facts: list[object] = [outcome.name]
    if isinstance(outcome, Ok):
        facts += [outcome.reply.finish_reason, outcome.reply.usage.prompt_tokens]
    elif not isinstance(outcome, Healthy):
        names = ("http_status", "retry_after_s", "curable", "context_length")
        facts += [getattr(outcome, name) for name in names if hasattr(outcome, name)]
    return tuple(facts[:length])


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "at once"])
@pytest.mark.parametrize("name", CASES)
def test_both_fleets_give_the_same_outcome(name, stream):
    case = CASES[name]
    for answer, probed, *_ in (results := both(case, stream)):
        assert name_and_facts(answer.outcome, len(case.expect)) == case.expect
        assert name_and_facts(probed, len(case.probe)) == case.probe
    (memory, _, *counts), (http, _, *other_counts) = results
    assert counts == other_counts
    if isinstance(memory.outcome, Ok) and not case.endpoint.get("type"):
        ours, theirs = memory.outcome.reply, http.outcome.reply
        assert (ours.text, ours.usage) == (theirs.text, theirs.usage)


@pytest.mark.parametrize("name", SILENT)
def test_both_fleets_are_silent_until_the_idle_time_is_over(name):
    case = SILENT[name]
    for answer, probed, *_ in both(case, stream=True):
        assert name_and_facts(answer.outcome, len(case.expect)) == case.expect
        assert name_and_facts(probed, len(case.probe)) == case.probe


async def read_load(open_stage: Callable[[SimulatedServer], object], server: SimulatedServer) -> object:
    """What a server tells of itself while three requests are there, of which it has begun one."""
    async with open_stage(server) as stage:
        client = stage.transport.open_client(Endpoint(EndpointId("sim"), "sim", Url(stage.url)))
        for number in range(3):
            reply = reply_to([{"role": "user", "content": f"story {number}"}], prompt_tokens=100)
            stage.node.begin(reply, lambda: None)
        assert stage.node.host.waiting == 2
        with trio.fail_after(10):
            load = await client.read_load()
        client.close()
        return load


LOADS = {
    "vllm's": (
        SimulatedServer("ep1", STANDING),
        ServerLoad(1, 2, pytest.approx(0.00025, rel=0.05), 400_000, None, 0, 100.0, 0.0),
    ),
    "llama.cpp's": (SimulatedServer("ep1", STANDING, metrics="llama"), ServerLoad(running=1, slots=1)),
    "none": (SimulatedServer("ep1", STANDING, metrics=None), None),
    "of a plain engine": (
        SimulatedServer("ep1", attrs.evolve(ENDLESS, slots=1), metrics="vllm"),
        ServerLoad(running=1, waiting=2),
    ),
    "none of a plain engine": (SimulatedServer("ep1", attrs.evolve(ENDLESS, slots=1)), None),
}


@pytest.mark.parametrize("name", LOADS)
def test_both_fleets_tell_the_same_of_themselves(name):
    server, expected = LOADS[name]
    memory = trio.run(read_load, in_memory, server, clock=MockClock(autojump_threshold=0))
    assert memory == trio.run(read_load, on_sockets, server) == expected


async def converse(open_stage: Callable[[SimulatedServer], object], reports_cache: bool) -> list[Usage]:
    async with open_stage(SimulatedServer("ep1", BATCHING, reports_cache=reports_cache)) as stage:
        client = stage.transport.open_client(Endpoint(EndpointId("sim"), "sim", Url(stage.url)))
        messages, usages = [{"role": "user", "content": "What is 2 + 3?"}], []
        for _ in range(3):
            outcome = (await client.ask(ChatRequest(messages))).outcome
            assert isinstance(outcome, Ok)
            usages.append(outcome.reply.usage)
            said = {"role": "assistant", "content": outcome.reply.text}
            messages = [*messages, said, {"role": "user", "content": "And 3 + 4?"}]
        client.close()
        return usages


@pytest.mark.parametrize("reports_cache", [True, False])
def test_both_fleets_find_the_turns_of_a_conversation_in_the_cache(reports_cache):
    memory = trio.run(converse, in_memory, reports_cache, clock=MockClock(autojump_threshold=0))
    assert memory == trio.run(converse, on_sockets, reports_cache)
    before = [0, *(usage.prompt_tokens + usage.completion_tokens for usage in memory[:2])]
    assert [usage.cached_tokens for usage in memory] == (before if reports_cache else [None] * 3)
