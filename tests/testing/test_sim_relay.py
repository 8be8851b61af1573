"""Calls of foreign clients to simulated servers: in memory and on sockets the same comes to a sink."""

from __future__ import annotations

import json

import attrs
import pytest
import trio
from sim_until import until
from test_sim_alike import BATCHING, ENDLESS, LASTING, LONG, QUICK, in_memory, name_and_facts, on_sockets
from trio.testing import MockClock

from scavenge.core.callbody import CallBody
from scavenge.core.flow import Stream
from scavenge.runtime.ports import RelayRequest
from scavenge.testing import EngineSettings, SimulatedFleet, SimulatedServer, faults
from scavenge.testing.model import reply_to
from scavenge.types import Answer, ApiType, Endpoint, EndpointId, Lost, Ok, Rejected, Url

CHAT, TEXT = ApiType.CHAT_COMPLETIONS, ApiType.COMPLETIONS


@attrs.define(eq=False)
class Sink:
    """Keeps what it is given; a slow one takes its time."""

    slow_s: float = 0.0
    taken: list[tuple[float, bytes]] = attrs.field(factory=list)

    @property
    def begun(self) -> bool:
        return bool(self.taken)

    @property
    def whole(self) -> bytes:
        return b"".join(events for _, events in self.taken)

    @property
    def text(self) -> str:
        chunks = [json.loads(event[6:]) for event in self.whole.split(b"\n\n") if event]
        choices = [choice for one in chunks for choice in one["choices"]]
        return "".join(choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices)

    async def take(self, events: bytes) -> None:
        self.taken.append((trio.current_time(), events))
        await trio.sleep(self.slow_s)


def call_of(text: str, api: ApiType = CHAT, sink: Sink | None = None, **more: object) -> RelayRequest:
    said = {"messages": [{"role": "user", "content": text}]} if api is CHAT else {"prompt": text}
    stream = bool(more.pop("stream", True))
    idle_s = more.pop("idle_timeout_s", 30.0)
    body = CallBody(json.dumps({"model": "any", **said, "stream": sink is not None, **more}).encode())
    return RelayRequest(api, body, stream, sink, idle_s)  # type: ignore[arg-type]


@attrs.frozen
class Case:
    """A call, what is wrong with the server before it or once so many tokens are there, and what it comes to."""

    expect: tuple[object, ...]
    engine: object = QUICK
    text: str = "What is 2 + 3?"
    api: ApiType = CHAT
    listed: ApiType = CHAT
    before: faults.Fault | None = None
    during: faults.Fault | None = None
    at_tokens: int = 0
    idle_timeout_s: float = 30.0
    options: dict[str, object] = attrs.field(factory=dict)


CASES = {
    "whole": Case(("ok", "stop")),
    "with its usage": Case(("ok", "stop"), options={"stream_options": {"include_usage": True}}),
    "batched": Case(("ok", "stop"), BATCHING),
    "cut at max_tokens": Case(("ok", "length"), options={"max_tokens": 3}),
    "of the other protocol": Case(("ok", "stop"), api=TEXT, listed=TEXT),
    "of a protocol that it is not listed for": Case(("ok", "stop"), api=TEXT),
    "killed before": Case(("lost", None), before=faults.Kill()),
    "killed while it waits": Case(("lost", None), ENDLESS, during=faults.Kill()),
    "killed with tokens there": Case(("lost", 200), LASTING, LONG, during=faults.Kill(), at_tokens=3),
    "aborted while it waits": Case(("lost", 200), ENDLESS, during=faults.Abort()),
    "aborted with tokens there": Case(("lost", 200), LASTING, LONG, during=faults.Abort(), at_tokens=3),
    "busy": Case(("busy", 429, 3.0), before=faults.Busy(retry_after_s=3.0)),
    "garbage": Case(("failed", 200), before=faults.Garbage()),
    "not found": Case(("misrouted", 404, True), before=faults.Error(status=404)),
    "not found under another protocol": Case(("rejected", 404, False), api=TEXT, before=faults.Error(status=404)),
    "a wrong option": Case(("rejected", 400, False), options={"max_tokens": 0}),
    "frozen with tokens there": Case(("lost",), LASTING, LONG, during=faults.Freeze(), at_tokens=3, idle_timeout_s=0.5),
}


async def play(open_stage: object, case: Case) -> tuple[Answer, Sink]:
    async with open_stage(SimulatedServer("ep1", case.engine)) as stage:  # type: ignore[operator]
        node, sink, answers = stage.node, Sink(), []
        client = stage.transport.open_client(Endpoint(EndpointId("sim"), "sim", Url(stage.url), type=case.listed))
        if case.before is not None:
            node.apply(case.before)
            await trio.sleep(0.005)  # a dead server's port closes when its tasks have ended
        call = call_of(case.text, case.api, sink, idle_timeout_s=case.idle_timeout_s, **case.options)

        async def ask() -> None:
            answers.append(await client.ask(call))

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                if case.during is not None:
                    await until(lambda: any(g.tokens >= case.at_tokens for g in node.host.in_flight))
                    await until(lambda: sink.begun or not case.at_tokens)
                    node.apply(case.during)
        client.close()
        await until(lambda: not node.host.in_flight)
        return answers[0], sink


@pytest.mark.parametrize("name", CASES)
def test_in_memory_and_on_sockets_the_same_comes_to_the_client(name: str) -> None:
    case = CASES[name]
    answer, sink = trio.run(play, in_memory, case, clock=MockClock(autojump_threshold=0))
    other_answer, other_sink = trio.run(play, on_sockets, case)
    for one in (answer, other_answer):
        assert name_and_facts(one.outcome, len(case.expect)) == case.expect
    for one in (sink, other_sink):
        assert b"[DONE]" not in one.whole
        assert b'"abort"' not in one.whole
        assert one.begun == (case.at_tokens > 0 or isinstance(answer.outcome, Ok))
    if isinstance(answer.outcome, Ok):
        assert sink.whole == other_sink.whole
        assert answer.outcome.reply.usage == other_answer.outcome.reply.usage
    elif sink.begun:
        assert "".join(reply_to([{"role": "user", "content": case.text}]).tokens).startswith(sink.text)


SLOW = EngineSettings(token_s=0.1, load_s=0.0, tokens_per_event=1)


def in_memory_client(fleet: SimulatedFleet, api: ApiType = CHAT) -> object:
    return fleet.open_client(Endpoint(EndpointId("sim"), "sim", Url("http://ep1.sim/v1"), type=api))


@pytest.mark.parametrize("engine", [SLOW, attrs.evolve(BATCHING, weights_s=0.1)])
async def test_tokens_are_handed_on_as_they_come(autojump_clock: MockClock, engine: object) -> None:
    async with SimulatedFleet([SimulatedServer("ep1", engine)]).open() as fleet:
        sink, stream = Sink(), Stream(0.0, 1)
        answer = await in_memory_client(fleet).ask(call_of("hello", sink=sink), stream)
    tokens = reply_to([{"role": "user", "content": "hello"}]).tokens
    assert sink.text == "".join(tokens)
    assert len(sink.taken) >= len(tokens) // 2
    times = [at for at, _ in sink.taken]
    assert times == sorted(set(times))
    assert answer.outcome.reply.pieces == len(tokens) == stream.chunks
    assert not stream.held_back


async def test_without_a_sink_a_call_is_answered_whole(autojump_clock: MockClock) -> None:
    async with SimulatedFleet([SimulatedServer("ep1")]).open() as fleet:
        for api in (CHAT, TEXT):
            streamed = await in_memory_client(fleet, api).ask(call_of("hello", api))
            whole = await in_memory_client(fleet, api).ask(call_of("hello", api, stream=False))
            assert streamed.outcome.reply.body is None
            assert json.loads(whole.outcome.reply.body) == whole.outcome.reply.raw
            assert streamed.outcome.reply.text == whole.outcome.reply.text != ""


async def test_a_client_that_takes_its_time_is_not_the_servers_silence(autojump_clock: MockClock) -> None:
    async with SimulatedFleet([SimulatedServer("ep1", SLOW)], "t=1 freeze ep1 for=3").open() as fleet:
        sink = Sink(slow_s=20.0)
        stream = Stream(0.0, 1)
        answers = []

        async def ask() -> None:
            answers.append(await in_memory_client(fleet).ask(call_of("hello", sink=sink, idle_timeout_s=2.0), stream))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(15)
            assert stream.held_back
            assert not stream.is_stalled(trio.current_time())
        assert isinstance(answers[0].outcome, Ok), answers
        assert sink.text == "".join(reply_to([{"role": "user", "content": "hello"}]).tokens)


async def test_silence_counts_from_when_the_client_has_taken_what_came(autojump_clock: MockClock) -> None:
    async with SimulatedFleet([SimulatedServer("ep1", SLOW)], "t=1 freeze ep1").open() as fleet:
        sink = Sink(slow_s=7.0)
        answer = await in_memory_client(fleet).ask(call_of(LONG, sink=sink, idle_timeout_s=2.0))
        assert isinstance(answer.outcome, Lost)
        assert trio.current_time() == pytest.approx(sink.taken[-1][0] + 7.0 + 2.0)


async def test_a_client_that_goes_stops_the_server(autojump_clock: MockClock) -> None:
    async with SimulatedFleet([SimulatedServer("ep1", SLOW)]).open() as fleet:
        with trio.move_on_after(1.0):
            await in_memory_client(fleet).ask(call_of(LONG, sink=Sink(slow_s=1000.0)))
        assert fleet.truth["ep1"].cancelled == 1


async def test_what_a_simulated_server_cannot_read_is_rejected(autojump_clock: MockClock) -> None:
    async with SimulatedFleet([SimulatedServer("ep1")]).open() as fleet:
        call = attrs.evolve(call_of("hello"), defaults={"stop": {1}})
        assert isinstance((await in_memory_client(fleet).ask(call)).outcome, Rejected)
        assert fleet.truth["ep1"].started == 0
