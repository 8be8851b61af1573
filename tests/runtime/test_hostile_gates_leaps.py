"""Gates over which time leaps: a process that stood still and an endpoint that idled keep their limits."""

from __future__ import annotations

import attrs
import pytest
import trio
from gate_kit import POLICIES, A, Told, open_gates

from scavenge.runtime.gate import Gate, Gates
from scavenge.signals import Flow
from scavenge.types import Answer, CapChanged, Ok, Reply, Usage

OK = Answer(Ok(Reply("hi", "stop", usage=Usage(100, 200))))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_process_that_was_stopped_for_an_hour_finds_its_limit_where_it_was(policy):
    gate = Gates(POLICIES[policy], fail).open(A, "m", None, 0.0)
    gate.tell(CapChanged(None), 0.0)
    now = serve(gate, 0.0, 200.0)
    streams = [gate.begin(now, streamed=True, prompt_tokens=100) for _ in range(gate.limit(now))]
    for stream in streams:
        stream.came(now + 0.3)
    gate.wake(now + 0.5)
    before = gate.limit(now + 0.5)
    gate.wake(now + 3600.0)
    assert gate.limit(now + 3600.0) == before
    if policy == "gradient2":  # it has nothing but the speeds of replies, which tell of the hour
        return
    for stream in streams:
        gate.end(stream, OK, now + 3600.1)
    gate.wake(now + 3600.2)
    assert abs(gate.limit(now + 3600.2) - before) <= max(1, 0.12 * before)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_endpoint_that_had_nothing_to_do_for_an_hour_finds_its_limit_where_it_was(policy):
    gate = Gates(POLICIES[policy], fail).open(A, "m", None, 0.0)
    gate.tell(CapChanged(None), 0.0)
    now = serve(gate, 0.0, 200.0)
    before = gate.limit(now)
    now += 3600.0
    gate.begin(now, streamed=True)
    gate.wake(now)
    gate.wake(now + 0.5)
    assert gate.limit(now + 0.5) == before


async def test_the_flow_of_an_endpoint_that_was_idle_is_that_of_its_work(autojump_clock):
    @attrs.define
    class Waking(Told):
        heard_at: float = 0.0

        def observe(self, event: object, now: float) -> None:
            super().observe(event, now)
            self.heard_at = now

        def next_wake_at(self, now: float) -> float | None:
            return self.heard_at + 0.25

    policy = Waking()
    async with open_gates(lambda: policy) as kit:
        await trio.sleep(3600)
        await kit.chat()
    flows = [event for event in policy.heard if isinstance(event, Flow)]
    assert len(flows) >= 4
    assert all(flow.span_s <= 0.3 and flow.in_flight > 0.9 for flow in flows)


def fail(error: Exception) -> None:
    raise error


def serve(gate: Gate, now: float, seconds: float) -> float:
    """Keep a server busy that makes 50 tokens a second for each of up to 24 requests; when that ended."""
    ends_at, live = now + seconds, []
    while now < ends_at:
        now += 0.25
        for stream in [one for one in live if now - one.began_at >= 4]:
            live.remove(stream)
            gate.end(stream, OK, now)
        while len(live) < min(gate.limit(now), 40):
            live.append(gate.begin(now, streamed=True, prompt_tokens=100))
        for stream in live:
            stream.came(now, round(12 * min(1, 24 / len(live))))
        gate.wake(now)
    for stream in live:
        gate.end(stream, None, now)
    return now
