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
from scavenge.testing import EngineSettings, FleetPlan, SimulatedFleet, SimulatedServer, faults, open_http_fleet
from scavenge.testing.model import reply_to
from scavenge.testing.node import Node
from scavenge.types import Answer, ApiType, ChatRequest, Endpoint, EndpointId, Healthy, Ok, Outcome, Url

LONG = next(
    text
    for text in (f"story {number}" for number in range(10_000))
    if len(reply_to([{"role": "user", "content": text}]).tokens) > 200
)

QUICK = EngineSettings(token_s=0.0005, load_s=0.0, tokens_per_event=1)
LASTING = EngineSettings(token_s=0.02, load_s=0.0, tokens_per_event=1)  # LONG takes four seconds
ENDLESS = EngineSettings(token_s=1000.0, load_s=0.0, tokens_per_event=1)


@attrs.frozen
class Case:
    """A request, what is wrong with the server before it, or once so many tokens are there, and what it comes to."""

    expect: tuple[object, ...]
    engine: EngineSettings = QUICK
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
