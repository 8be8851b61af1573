"""Ways in which endpoints made other systems lose, repeat or misroute requests, on a simulated fleet on virtual time.

Each test names the public report of the failure; servers that misbehave in a way that the fleet does not know are made
of :mod:`tampered`.
"""

from __future__ import annotations

from collections import Counter

import pytest
import trio
import trio.testing
from fleet_kit import NO_RETRIES, Kit, Questions, open_kit
from tampered import Tampered, url

from scavenge.core.health_settings import HealthSettings
from scavenge.core.health_state import State
from scavenge.core.ledger import Ask
from scavenge.core.retry import RetrySettings
from scavenge.events import EndpointDraining, HealthChanged, LeasesRevoked
from scavenge.rollouts import Example, Rollout
from scavenge.runtime.member import OWN_LAG_S
from scavenge.runtime.ports import Environment, ModelClient, ModelSession
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import Session
from scavenge.testing.engine import EngineSettings
from scavenge.testing.fleet import SimulatedFleet
from scavenge.testing.served import SimulatedServer
from scavenge.types import Answer, ChatRequest, Failed, Healthy, Lost, LostCause, Outcome

HEALTH = HealthSettings(interval=5.0)
FEW = 0.05
"""The part of the attempts that a server may swallow of which nothing comes back."""


def servers(
    *names: str, token_s: float = 0.01, slots: int = 8, cap: int | None = None, **more: object
) -> list[SimulatedServer]:
    """Servers whose replies take some forty times *token_s*."""
    engine = EngineSettings(token_s, 0.0001, slots, max_waiting=more.pop("max_waiting", None))  # type: ignore[arg-type]
    return [SimulatedServer(name, engine, max_concurrent=cap, **more) for name in names]  # type: ignore[arg-type]


def assert_all_ok(kit: Kit, count: int) -> None:
    """Every sample has exactly one result, and it is a good one."""
    assert sorted(kit.lines.keys) == sorted(("test", str(number), 0) for number in range(count))
    assert all(line["status"] == "ok" for line in kit.lines.written)


def states(kit: Kit, name: str) -> list[str]:
    return [event.new for event in kit.events if isinstance(event, HealthChanged) and event.url == url(name)]


def sent(kit: Kit, name: str) -> int:
    return sum(attempt["endpoint"] == url(name) for attempt in kit.lines.attempts())


def outcomes(kit: Kit) -> Counter[object]:
    return Counter(attempt["outcome"] for attempt in kit.lines.attempts())


# --- servers that lie


async def never_answer(inner: ModelClient, request: ChatRequest) -> Answer:
    """Take the request and say nothing, as long as the port allows that."""
    await trio.sleep(request.idle_timeout_s)
    return Answer(Lost("not a byte", LostCause.SILENT))


async def reset(inner: ModelClient, request: ChatRequest) -> Answer:
    await trio.lowlevel.checkpoint()
    return Answer(Lost("connection reset"))


async def test_a_server_that_answers_its_probes_and_hangs_on_every_request_gets_next_to_none(autojump_clock):
    """PrimeIntellect-ai/prime-rl#2370: healthy by its health check, and each real call hangs."""
    fleet = SimulatedFleet(servers("ep1", "ep2", "liar", token_s=0.2))
    async with open_kit(fleet, transport=Tampered(fleet, {"liar": never_answer}), health=HEALTH) as kit:
        await kit.play(kit.job(Questions(800), idle_timeout=30.0, retry=NO_RETRIES))
        assert_all_ok(kit, 800)
        assert "ejected" in states(kit, "liar")
        assert 0 < sent(kit, "liar") < FEW * 800
        assert states(kit, "ep1") == states(kit, "ep2") == ["live"]


async def test_a_server_that_answers_its_probes_and_resets_every_request_gets_next_to_none(autojump_clock):
    """BerriAI/litellm#27362: what cannot be talked to is never set aside, and draws the retries."""
    fleet = SimulatedFleet(servers("ep1", "ep2", "liar", token_s=0.2))
    async with open_kit(fleet, transport=Tampered(fleet, {"liar": reset}), health=HEALTH) as kit:
        await kit.play(kit.job(Questions(800), retry=NO_RETRIES))
        assert_all_ok(kit, 800)
        assert 0 < sent(kit, "liar") < FEW * 800


@pytest.mark.parametrize("status", [404, 502, 503])
async def test_a_dead_tunnel_that_answers_at_once_does_not_swallow_the_work(autojump_clock, status):
    """PrimeIntellect-ai/verifiers#2151: the one without load is dead, and took four in five rollouts."""
    fleet = SimulatedFleet(servers("ep1", "ep2", "gone", token_s=0.2), f"t=5 error gone status={status}")
    async with open_kit(fleet, health=HEALTH) as kit:
        await kit.play(kit.job(Questions(1200), retry=RetrySettings(max_retries=8)))
        assert_all_ok(kit, 1200)
        bad = sum(count for outcome, count in outcomes(kit).items() if outcome != "ok")
        assert 0 < bad < FEW * 1200


async def test_each_attempt_of_a_request_reports_for_itself(autojump_clock):
    """BerriAI/litellm#32574: only the first failure of a request sets a server aside."""
    fleet = SimulatedFleet(servers("ep1", "ep2", "ep3"))
    transport = Tampered(fleet, {"ep1": reset, "ep2": reset})
    async with open_kit(fleet, transport=transport) as kit:
        await kit.play(kit.job(Questions(1), retry=NO_RETRIES))
        (line,) = kit.lines.written
        tried = [attempt["endpoint"] for attempt in line["attempts"]]
        assert len(tried) == len(set(tried))
        assert tried[-1] == url("ep3")
        assert [kit.pool.members[one].health.state for one in tried[:-1]] == [State.EJECTED] * (len(tried) - 1)


async def test_a_health_check_that_breaks_everywhere_takes_nobody_out_of_work(autojump_clock):
    """PrimeIntellect-ai/verifiers#2151: a fault of the control plane must not eject all that serve well."""

    async def broken(inner: ModelClient, path: str) -> Healthy | Outcome:
        result = await inner.probe(path)
        return Failed("HTTP 500: no such table", 500) if trio.current_time() > 2.0 else result

    names = ("ep1", "ep2", "ep3")
    fleet = SimulatedFleet(servers(*names, token_s=0.2))
    async with open_kit(fleet, transport=Tampered(fleet, probes=dict.fromkeys(names, broken)), health=HEALTH) as kit:
        await kit.play(kit.job(Questions(300), retry=NO_RETRIES))
        assert_all_ok(kit, 300)
        assert trio.current_time() > 60
        assert [states(kit, name) for name in names] == [["live"]] * 3
        assert outcomes(kit) == {"ok": 300}


async def test_a_busy_engine_that_is_too_slow_for_its_probes_keeps_its_streams(autojump_clock):
    """PrimeIntellect-ai/verifiers#1599: loaded but healthy, and killed for a late heartbeat."""

    async def hang(inner: ModelClient, path: str) -> Healthy | Outcome:
        if trio.current_time() > 2.0:
            await trio.sleep_forever()
        return await inner.probe(path)

    fleet = SimulatedFleet(servers("ep1", "ep2", token_s=2.0, slots=4, cap=4))
    async with open_kit(fleet, transport=Tampered(fleet, probes={"ep1": hang}), health=HEALTH) as kit:
        await kit.play(kit.job(Questions(40), retry=NO_RETRIES))
        assert_all_ok(kit, 40)
        assert outcomes(kit) == {"ok": 40}
        assert states(kit, "ep1") == ["live"]
        assert sent(kit, "ep1") > 10


async def test_a_newcomer_that_takes_connections_and_says_nothing_holds_nobody_up(autojump_clock):
    """vllm-project/production-stack#431: one health check of a server that is gone stops all dispatch."""

    async def makespan_s(*names: str) -> float:
        began_at = trio.current_time()
        fleet = SimulatedFleet(servers(*names), "t=0 freeze mute" if "mute" in names else "")
        async with open_kit(fleet, health=HEALTH) as kit:
            await kit.play(kit.job(Questions(400), retry=NO_RETRIES))
            assert outcomes(kit) == {"ok": 400}
            return trio.current_time() - began_at

    alone_s = await makespan_s("ep1")
    assert await makespan_s("ep1", "mute") == pytest.approx(alone_s, rel=0.02)


# --- this machine's own fault


async def test_what_a_blocked_loop_of_ours_cut_short_costs_nobody_anything(autojump_clock):
    """UKGovernmentBEIS/inspect_ai#4884: thousands of deadlines passed while our own code kept the loop busy."""
    names = ("ep1", "ep2")

    async def lag(inner: ModelClient, request: ChatRequest) -> Answer:
        if not 3.0 < trio.current_time() < 15.0:
            return await inner.ask(request)
        await trio.sleep(0.5)
        return Answer(Lost("the deadline was noticed late", LostCause.LATE))

    fleet = SimulatedFleet(servers(*names, token_s=0.1))
    async with open_kit(fleet, transport=Tampered(fleet, dict.fromkeys(names, lag)), health=HEALTH) as kit:
        retry = RetrySettings(max_retries=0, max_lost=1)
        await kit.play(kit.job(Questions(200), retry=retry))
        assert_all_ok(kit, 200)
        assert max(len(line["attempts"]) for line in kit.lines.written) > 2
        assert [states(kit, name) for name in names] == [["live"], ["live"]]
        assert not any(isinstance(event, LeasesRevoked) for event in kit.events)
        assert min(sent(kit, name) for name in names) > 60  # both went on afterwards


async def test_a_request_timeout_that_a_blocked_loop_of_ours_brought_about_is_no_timeout(mock_clock):
    """UKGovernmentBEIS/inspect_ai#4884: the endpoint must not be blamed, nor the request pay with a retry."""
    fleet = SimulatedFleet(servers("ep1"))
    asked = 0

    async def hang_once(inner: ModelClient, request: ChatRequest) -> Answer:
        nonlocal asked
        asked += 1
        if asked == 1:
            await trio.sleep_forever()
        return await inner.ask(request)

    async def let_pass(seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            mock_clock.jump(0.1)
            await trio.testing.wait_all_tasks_blocked()

    async with open_kit(fleet, transport=Tampered(fleet, {"ep1": hang_once})) as kit, trio.open_nursery() as nursery:
        settings = RequestSettings(request_timeout=10.0, retry=NO_RETRIES)
        session = Session(kit.pool, 0, settings, kit.ports)
        nursery.start_soon(session.chat, [{"role": "user", "content": "What is 1 + 1?"}])
        await let_pass(1.0)
        assert asked == 1
        mock_clock.jump(10.0 + OWN_LAG_S + 0.5)  # in one go: nothing of ours ran meanwhile
        await trio.testing.wait_all_tasks_blocked()
        await let_pass(10.0)
        assert [attempt.outcome for attempt in session.attempts] == ["lost", "ok"]
        assert states(kit, "ep1") == ["live"]


# --- servers that are taken away


async def test_a_gateway_error_of_an_endpoint_that_leaves_is_free_of_charge(autojump_clock):
    """volcano-sh/kthena#1589: a scale-down ends what is in flight with 502."""

    async def gateway(inner: ModelClient, request: ChatRequest) -> Answer:
        with trio.move_on_at(began_at + 20.0):
            return await inner.ask(request)
        return Answer(Failed("HTTP 502: Bad Gateway", 502))

    fleet = SimulatedFleet(servers("ep1", "ep2", token_s=1.0, cap=4), "t=10 drain ep1")
    async with open_kit(fleet, transport=Tampered(fleet, {"ep1": gateway}), health=HEALTH) as kit:
        began_at = trio.current_time()
        await kit.play(kit.job(Questions(30), retry=NO_RETRIES))
        assert_all_ok(kit, 30)
        moved = [line["attempts"] for line in kit.lines.written if len(line["attempts"]) > 1]
        assert len(moved) >= 2
        assert all([one["outcome"] for one in attempts] == ["lost", "ok"] for attempts in moved)
        assert {attempts[0]["http_status"] for attempts in moved} == {502}


async def test_a_preemption_notice_moves_what_is_not_done_by_its_deadline_free_of_charge(autojump_clock):
    """ai-dynamo/dynamo#13559: what is in flight on a server that is taken away fails for good."""
    script = "t=5 notice ep1 in=5; t=6 join ep2; t=20 notice ep2 in=5; t=21 join ep3"
    fleet = SimulatedFleet(servers("ep1", "ep2", "ep3", token_s=5.0, cap=4), script)
    async with open_kit(fleet, health=HEALTH) as kit:
        retry = RetrySettings(max_retries=0, max_lost=1)
        await kit.play(kit.job(Questions(4), retry=retry))
        assert_all_ok(kit, 4)
        for line in kit.lines.written:
            attempts = [(attempt["endpoint"], attempt["outcome"]) for attempt in line["attempts"]]
            assert attempts == [(url("ep1"), "lost"), (url("ep2"), "lost"), (url("ep3"), "ok")]
        drained = [event.url for event in kit.events if isinstance(event, EndpointDraining)]
        assert drained == [url("ep1"), url("ep2")]


async def test_a_healthy_endpoint_that_is_listed_as_draining_gets_nothing_new(autojump_clock):
    """vllm-project/production-stack#601: a pod that is being ended is healthy, and still receives traffic."""
    fleet = SimulatedFleet(servers("ep1", "ep2", cap=4), "t=3 drain ep1")
    async with open_kit(fleet, health=HEALTH) as kit:
        await kit.play(kit.job(Questions(400), retry=NO_RETRIES))
        assert_all_ok(kit, 400)
        assert outcomes(kit) == {"ok": 400}
        late = [one for one in kit.lines.attempts() if one["started"] > "2027-01-15T08:00:04.2"]
        assert late
        assert {attempt["endpoint"] for attempt in late} == {url("ep2")}


# --- nobody has time


async def test_while_all_ask_for_patience_requests_wait_for_the_first_that_is_back(autojump_clock):
    """BerriAI/litellm#3646: with every deployment cooling down, requests fail at once."""
    script = "t=0 busy ep1 retry_after=90 for=85; t=0 busy ep2 retry_after=30 for=25"
    fleet = SimulatedFleet(servers("ep1", "ep2"), script)
    async with open_kit(fleet) as kit:
        began_at = trio.current_time()
        await kit.play(kit.job(Questions(40), retry=NO_RETRIES))
        assert_all_ok(kit, 40)
        assert 30 <= trio.current_time() - began_at < 90
        assert outcomes(kit)["busy"] <= 16  # no more than were on their way when it was said first
        assert {one["endpoint"] for one in kit.lines.attempts() if one["outcome"] == "ok"} == {url("ep2")}


async def test_more_concurrency_than_a_tiny_engine_takes_opens_no_breaker_and_fails_nothing(autojump_clock):
    """sgl-project/sglang#13894, PrimeIntellect-ai/prime-rl#3309: a full queue is back-pressure, not death."""
    fleet = SimulatedFleet(servers("ep1", "ep2", slots=4, max_waiting=4))
    async with open_kit(fleet, limit=512) as kit:
        await kit.play(kit.job(Questions(600), retry=NO_RETRIES))
        assert_all_ok(kit, 600)
        assert outcomes(kit).keys() == {"ok", "busy"}
        assert "ejected" not in states(kit, "ep1") + states(kit, "ep2")


async def test_oversized_prompts_among_others_set_no_endpoint_aside(autojump_clock):
    """sgl-project/sglang#25811: a few prompts that are too long stop the whole fleet."""

    class Mixed(Questions):
        async def play(self, example: Example, model: ModelSession) -> Rollout:
            long = int(example.id) % 3 == 0
            reply = await model.chat([{"role": "user", "content": "word " * (500 if long else 5)}])
            return Rollout(reply.text, 1.0)

    fleet = SimulatedFleet(servers("ep1", "ep2", context_tokens=100))
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Mixed(300)))
        assert Counter(line["status"] for line in kit.lines.written) == {"error": 100, "ok": 200}
        assert outcomes(kit) == {"ok": 200, "rejected": 100}  # each once, at no endpoint twice
        assert states(kit, "ep1") == states(kit, "ep2") == ["live"]


async def test_retries_of_a_short_outage_are_spread_beyond_its_end(autojump_clock):
    """PrimeIntellect-ai/verifiers#1744: four retries within a second die together in an outage of five."""
    fleet = SimulatedFleet(servers("ep1", "ep2"), "t=2 error ep1 for=5; t=2 error ep2 for=5")
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(200), retry=RetrySettings(max_retries=4)))
        assert_all_ok(kit, 200)
        assert outcomes(kit)["failed"] > 0


# --- slots, time and the other end


async def test_waiting_for_a_slot_is_not_charged_to_the_request_timeout(autojump_clock):
    """openai/openai-python#821, pixeltable/pixeltable#1062: the timer runs while the request is still queued."""
    fleet = SimulatedFleet(servers("ep1", cap=1))
    async with open_kit(fleet) as kit:
        settings = RequestSettings(request_timeout=3.0, idle_timeout=3.0, retry=NO_RETRIES)
        sessions = [Session(kit.pool, age, settings, kit.ports) for age in range(40)]
        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(session.chat, [{"role": "user", "content": f"What is {session.age} + 1?"}])
        assert [[one.outcome for one in session.attempts] for session in sessions] == [["ok"]] * 40
        assert sessions[-1].queued_s > 10


@pytest.mark.parametrize("way", ["timeout", "cancelled", "revoked"])
async def test_a_slot_is_free_only_when_the_server_has_stopped_working_for_it(autojump_clock, way):
    """PrimeIntellect-ai/prime-rl#3285: permits came back while the cancelled work went on, and the load rose."""
    script = "t=8 notice ep1 in=2; t=11 join ep1" if way == "revoked" else ""
    fleet = SimulatedFleet(servers("ep1", token_s=5.0, slots=16, cap=2), script)
    host = fleet.nodes["ep1"].host
    async with open_kit(fleet, limit=16) as kit:

        def server_agrees() -> None:
            assert len(host.in_flight) <= kit.pool.dispatcher.ledger.lent(url("ep1"))

        kit.pool.dispatcher.on_change = server_agrees
        settings = RequestSettings(request_timeout=4.0 if way == "timeout" else None, retry=RetrySettings(1000))

        async def ask(age: int) -> None:
            patience_s = 1.5 + 0.7 * age if way == "cancelled" else 40.0
            while trio.current_time() < 60.0:
                with trio.move_on_after(patience_s):
                    await Session(kit.pool, age, settings, kit.ports).chat([{"role": "user", "content": "hi"}])

        async with trio.open_nursery() as nursery:
            for age in range(8):
                nursery.start_soon(ask, age)
        assert fleet.truth["ep1"].cancelled + fleet.truth["ep1"].lost >= 4
        assert fleet.truth["ep1"].peak_in_flight == 2
        assert not host.in_flight


async def test_the_same_prompt_asked_twice_is_generated_twice(autojump_clock):
    """PrimeIntellect-ai/verifiers#2368: a cache by the body of the request gave stale answers."""
    fleet = SimulatedFleet(servers("ep1"))
    async with open_kit(fleet) as kit:
        session = Session(kit.pool, 0, RequestSettings(), kit.ports)
        for _ in range(2):
            await session.chat([{"role": "user", "content": "What is 1 + 1?"}])
        assert fleet.truth["ep1"].finished == 2


class Talk(Environment):
    """Several turns with the whole conversation in each, and a tool that works after the last."""

    def __init__(self, count: int, turns: int, tool_s: float) -> None:
        self.count, self.turns, self.tool_s = count, turns, tool_s

    def examples(self):
        return (Example(str(number), {}) for number in range(self.count))

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        messages: list[dict[str, str]] = []
        for turn in range(self.turns):
            messages.append({"role": "user", "content": f"turn {turn} of {example.id}"})
            reply = await model.chat(messages)
            messages.append({"role": "assistant", "content": reply.text})
            await trio.sleep(self.tool_s)
        return Rollout([message["content"] for message in messages], 1.0)


async def test_a_turn_that_is_lost_is_asked_again_alone_and_stands_once_in_the_conversation(autojump_clock):
    """PrimeIntellect-ai/verifiers#1739: a fault in the third turn plays all turns again into the same record."""
    fleet = SimulatedFleet(servers("ep1", "ep2", token_s=0.1), "t=15 kill ep1; t=20 restart ep1; t=30 kill ep2")
    async with open_kit(fleet, health=HEALTH) as kit:
        await kit.play(kit.job(Talk(12, 6, 1.0), retry=NO_RETRIES))
        assert_all_ok(kit, 12)
        assert outcomes(kit)["lost"] > 0
        assert sum(truth.finished for truth in fleet.truth.values()) == 12 * 6  # no turn was played twice
        for line in kit.lines.written:
            assert [text for text in line["completion"] if text.startswith("turn")] == [
                f"turn {turn} of {line['example_id']}" for turn in range(6)
            ]
            assert sum(attempt["outcome"] == "ok" for attempt in line["attempts"]) == 6


async def test_sessions_that_are_under_way_use_a_server_that_joins_later(autojump_clock):
    """PrimeIntellect-ai/prime-rl#1704: a list of clients captured at the start never learns of new servers."""
    fleet = SimulatedFleet(servers("ep1", "ep2", token_s=0.1), "t=10 join ep2; t=20 kill ep1; t=20 leave ep1")
    async with open_kit(fleet, health=HEALTH) as kit:
        await kit.play(kit.job(Talk(6, 10, 2.0), retry=NO_RETRIES))
        assert_all_ok(kit, 6)
        for line in kit.lines.written:
            served = [attempt["endpoint"] for attempt in line["attempts"] if attempt["outcome"] == "ok"]
            assert (served[0], served[-1]) == (url("ep1"), url("ep2"))


async def test_rollouts_that_need_no_endpoint_any_more_finish_while_there_is_none(autojump_clock):
    """PrimeIntellect-ai/prime-rl#1617: waiting for an endpoint blocked the collection of what was done."""
    fleet = SimulatedFleet(servers("ep1", cap=8), "t=2 kill ep1; t=500 restart ep1")
    async with open_kit(fleet, health=HEALTH) as kit, trio.open_nursery() as nursery:
        nursery.start_soon(kit.play, kit.job(Talk(60, 1, 30.0), retry=NO_RETRIES))
        await trio.sleep(1.5)
        asked = fleet.truth["ep1"].finished
        assert 0 < asked < 60
        await trio.sleep(200)
        assert len(kit.lines.written) >= asked  # on disk long before the server is back
        assert kit.pool.dispatcher.ledger.waiting > 0
    assert_all_ok(kit, 60)


async def test_two_evaluations_are_not_held_up_by_the_slow_one_of_their_servers(autojump_clock):
    """PrimeIntellect-ai/verifiers#895: each had a limit of its own, and both queued behind the slow node."""
    fleet = SimulatedFleet([*servers("fast", token_s=0.05), *servers("slow", token_s=0.25)])
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(200)), kit.job(Questions(200), "second"))
        assert len(set(kit.lines.keys)) == len(kit.lines.keys) == 400
        fast, slow = fleet.truth["fast"], fleet.truth["slow"]
        assert fast.tokens > 3 * slow.tokens  # alternating would give each as much
        assert fast.peak_in_flight == slow.peak_in_flight == 8  # one limit for both evaluations


async def test_a_group_that_waits_while_its_endpoint_is_smaller_starts_when_it_has_grown(autojump_clock):
    """PrimeIntellect-ai/verifiers#957: a group that no longer fits anywhere is looked at only when it comes."""
    fleet = SimulatedFleet(servers("ep1", cap=8), "t=5 cap ep1 max_concurrent=4; t=100 cap ep1 max_concurrent=8")
    async with open_kit(fleet, health=HEALTH) as kit:
        await trio.sleep(20)
        with trio.fail_after(100):
            held = await kit.pool.acquire(Ask((0,), slots=8))
        assert held.slots == 8
        assert trio.current_time() >= 100
        kit.pool.release(held)
