"""A whole run in memory: evaluations over simulated servers that die, join, freeze and refuse, on virtual time."""

from __future__ import annotations

import json
import signal
import sys

import pytest
import trio
from fleet_kit import NO_RETRIES, POOL, Questions, open_kit

from scavenge.core.health_settings import HealthSettings
from scavenge.core.retry import RetrySettings
from scavenge.core.sessions.follow import Follow, FollowSettings
from scavenge.core.sessions.table import MakeSessions
from scavenge.errors import (
    CircuitBroken,
    ConfigError,
    EnvironmentBroken,
    InfrastructureError,
    NoEndpointsError,
    ScavengeError,
)
from scavenge.events import (
    AttemptEnded,
    EndpointLeft,
    EvalGaveUp,
    HealthChanged,
    LeasesRevoked,
    PoolWaiting,
    RolloutFinished,
    Warned,
)
from scavenge.rollouts import Example, Rollout
from scavenge.runtime.ports import Environment, ModelSession
from scavenge.runtime.run import RunLimits
from scavenge.testing.engine import EngineSettings
from scavenge.testing.fleet import SimulatedFleet
from scavenge.testing.host import SimulatedServer
from scavenge.types import Endpoint, EndpointId, Url


def servers(*names: str, slots: int = 8, cap: int | None = None, **settings: object) -> list[SimulatedServer]:
    engine = EngineSettings(0.01, 0.001, slots)
    return [SimulatedServer(name, engine, max_concurrent=cap, **settings) for name in names]  # type: ignore[arg-type]


def whole(keys: list[object], count: int) -> bool:
    """Whether every sample has exactly one result."""
    return sorted(keys) == sorted(("test", str(number), 0) for number in range(count))


async def test_every_sample_of_a_quiet_run_has_one_result(autojump_clock):
    async with open_kit(SimulatedFleet(servers("ep1", "ep2"))) as kit:
        await kit.play(kit.job(Questions(100)))
        assert whole(kit.lines.keys, 100)
        assert all(line["status"] == "ok" and len(line["attempts"]) == 1 for line in kit.lines.written)
        assert kit.run.stopped_by is None
        assert {attempt["endpoint"] for attempt in kit.lines.attempts()} == {"http://ep1.sim/v1", "http://ep2.sim/v1"}


async def test_a_server_killed_in_the_middle_costs_its_requests_nothing_but_time(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", "ep2", cap=8), "t=2 kill ep1")
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(200), retry=NO_RETRIES))
        assert whole(kit.lines.keys, 200)
        assert all(line["status"] == "ok" for line in kit.lines.written)
        moved = [line for line in kit.lines.written if len(line["attempts"]) > 1]
        assert moved
        for line in moved:
            assert [attempt["endpoint"] for attempt in line["attempts"]] == ["http://ep1.sim/v1", "http://ep2.sim/v1"]
            assert [attempt["outcome"] for attempt in line["attempts"]] == ["lost", "ok"]
        assert fleet.truth["ep2"].peak_in_flight <= 8


async def test_a_server_that_joins_is_given_work(autojump_clock):
    async with open_kit(SimulatedFleet(servers("ep1", "ep2"), "t=3 join ep2")) as kit:
        await kit.play(kit.job(Questions(200)))
        assert whole(kit.lines.keys, 200)
        assert {attempt["endpoint"] for attempt in kit.lines.attempts()} == {"http://ep1.sim/v1", "http://ep2.sim/v1"}


async def test_a_dead_server_that_comes_back_is_given_work_again(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", "ep2"), "t=1 kill ep1; t=8 restart ep1")
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(600)))
        assert whole(kit.lines.keys, 600)
        states = [event.new for event in kit.events if isinstance(event, HealthChanged) and "ep1" in event.url]
        assert states[:4] == ["live", "ejected", "probation", "live"]


async def test_requests_on_a_frozen_server_move_when_it_falls_silent(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", "ep2", cap=4), "t=2 freeze ep1")
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(150), idle_timeout=20.0, retry=NO_RETRIES))
        assert whole(kit.lines.keys, 150)
        assert all(line["status"] == "ok" for line in kit.lines.written)
        assert any(
            "no bytes" in e.why or "silent" in e.why or "heard" in e.why or "probe" in e.why
            for e in kit.events
            if isinstance(e, HealthChanged) and e.new == "ejected"
        )


async def test_a_frozen_server_found_by_its_probe_loses_its_leases_long_before_the_idle_timeout(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", "ep2", cap=4), "t=2 freeze ep1")
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(150), idle_timeout=100_000.0, retry=NO_RETRIES))
        assert whole(kit.lines.keys, 150)
        assert [event.leases for event in kit.events if isinstance(event, LeasesRevoked)] == [4]
        assert trio.current_time() < 1000


async def test_a_removed_server_finishes_what_it_has_and_gets_nothing_new(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", "ep2", cap=4), "t=2 leave ep1")
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(200), retry=NO_RETRIES))
        assert whole(kit.lines.keys, 200)
        assert all(len(line["attempts"]) == 1 for line in kit.lines.written)
        assert [event.url for event in kit.events if isinstance(event, EndpointLeft)] == ["http://ep1.sim/v1"]
        assert not kit.pool.departing


async def test_a_removed_server_that_is_dead_loses_its_leases(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", "ep2", cap=4), "t=2 freeze ep1; t=2.1 leave ep1")
    async with open_kit(fleet, health=None) as kit:
        await kit.play(kit.job(Questions(100), idle_timeout=100_000.0, retry=NO_RETRIES))
        assert whole(kit.lines.keys, 100)
        assert sum(event.leases for event in kit.events if isinstance(event, LeasesRevoked)) == 4


async def test_a_server_that_fails_fast_is_no_black_hole(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", "ep2"), "t=1 garbage ep1")
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(800)))
        assert whole(kit.lines.keys, 800)
        to_bad = [a for a in kit.lines.attempts() if a["outcome"] == "failed"]
        assert 0 < len(to_bad) < 0.05 * len(kit.lines.attempts())


async def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", cap=4), "t=1 busy ep1 retry_after=30 for=5")
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(60), retry=NO_RETRIES))
        assert whole(kit.lines.keys, 60)
        assert all(line["status"] == "ok" for line in kit.lines.written)
        refused = [attempt for attempt in kit.lines.attempts() if attempt["outcome"] == "busy"]
        assert 1 <= len(refused) <= 4
        assert trio.current_time() > 30


async def test_a_run_starts_with_no_endpoint_and_goes_on_when_one_appears(autojump_clock):
    async with open_kit(SimulatedFleet(servers("ep1"), "t=60 join ep1")) as kit:
        await kit.play(kit.job(Questions(20)))
        assert whole(kit.lines.keys, 20)
        waits = [event.why for event in kit.events if isinstance(event, PoolWaiting)]
        assert "no endpoint is listed" in waits[0]
        assert waits[-1] == ""


async def test_a_wait_that_is_over_at_once_is_told_to_be_over(autojump_clock):
    async with open_kit(SimulatedFleet(servers("ep1"), "t=0.5 join ep1")) as kit:
        await kit.play(kit.job(Questions(20)))
        assert [bool(event.why) for event in kit.events if isinstance(event, PoolWaiting)] == [True, False]


async def test_a_run_gives_up_after_the_stall_timeout_and_keeps_its_results(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", cap=4), "t=2 kill ep1")
    async with open_kit(fleet, limits=RunLimits(stall_timeout=120.0)) as kit:
        await kit.play(kit.job(Questions(500)))
        assert [type(error) for error in kit.run.stalled] == [NoEndpointsError]
        assert 0 < len(kit.lines.written) < 500
        assert all(line["status"] == "ok" for line in kit.lines.written)
        assert [event.eval for event in kit.events if isinstance(event, EvalGaveUp)] == ["test"]
        assert 120 <= trio.current_time() < 140


async def test_a_stalled_pool_ends_only_its_own_evaluations(autojump_clock):
    fleet = SimulatedFleet([*servers("ep1"), *servers("ep2", endpoint_id="other")], "t=0.5 kill ep2")
    async with open_kit(fleet, limits=RunLimits(stall_timeout=5.0), wanted=(POOL, EndpointId("other"))) as kit:
        other = kit.fleet.pools[EndpointId("other")]
        await kit.play(kit.job(Questions(900)), kit.job(Questions(900), "starved", pool=other))
        done = [key for key in kit.lines.keys if key[0] == "test"]
        assert whole(done, 900)
        assert len(kit.run.stalled) == 1


async def test_nothing_but_refusals_for_the_stall_timeout_gives_up_too(autojump_clock):
    fleet = SimulatedFleet(servers("ep1"), "t=0 busy ep1 retry_after=1 for=1000")
    async with open_kit(fleet, limits=RunLimits(stall_timeout=60.0)) as kit:
        await kit.play(kit.job(Questions(5)))
        assert len(kit.run.stalled) == 1
        assert kit.lines.written == []


async def test_many_failures_in_a_row_break_the_circuit(autojump_clock):
    fleet = SimulatedFleet(servers("ep1"), "t=0.5 error ep1 status=500 rate=1")
    async with open_kit(fleet, limits=RunLimits(max_consecutive_failures=7)) as kit:
        await kit.play(kit.job(Questions(500), retry=RetrySettings(max_retries=1)))
        assert isinstance(kit.run.stopped_by, CircuitBroken)
        errors = [line for line in kit.lines.written if line["status"] == "error"]
        assert 7 <= len(errors) <= 7 + 8
        assert "500" in errors[0]["error"]["message"]


async def test_a_prompt_that_is_too_long_is_its_own_samples_error_and_breaks_nothing(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", context_tokens=2))
    async with open_kit(fleet, limits=RunLimits(max_consecutive_failures=3)) as kit:
        await kit.play(kit.job(Questions(30)))
        assert whole(kit.lines.keys, 30)
        assert kit.run.stopped_by is None
        assert all(len(line["attempts"]) == 1 for line in kit.lines.written)


async def test_a_wrong_model_waits_where_listings_may_change_and_fails_the_sample_where_not(autojump_clock):
    def wrong() -> SimulatedFleet:
        return SimulatedFleet(servers("ep1", secret="k"))

    async with open_kit(wrong(), limits=RunLimits(stall_timeout=30.0)) as kit:
        await kit.play(kit.job(Questions(5)))
        assert len(kit.run.stalled) == 1
    async with open_kit(wrong(), elastic=False, limits=RunLimits(max_consecutive_failures=0)) as kit:
        await kit.play(kit.job(Questions(5)))
        assert [line["error"]["type"] for line in kit.lines.written] == ["RequestFailed"] * 5
        assert "bearer token is missing" in kit.lines.written[0]["error"]["message"]


async def test_an_evaluation_never_has_more_rollouts_under_way_than_it_allows(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", "ep2"))
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(40), max_concurrent=3))
        assert whole(kit.lines.keys, 40)
        assert sum(truth.peak_in_flight for truth in fleet.truth.values()) <= 3 * 2
        assert max(truth.peak_in_flight for truth in fleet.truth.values()) <= 3


async def test_two_evaluations_share_the_slots_of_a_pool(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", cap=4))
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(50)), kit.job(Questions(50), "second"))
        assert len(kit.lines.keys) == len(set(kit.lines.keys)) == 100
        assert fleet.truth["ep1"].peak_in_flight == 4


async def test_the_reader_stays_close_to_the_work(autojump_clock):
    questions = Questions(100_000)
    async with open_kit(SimulatedFleet(servers("ep1"))) as kit:
        with trio.move_on_after(20):
            await kit.play(kit.job(questions))
        assert 0 < len(kit.lines.written) < 1000
        assert questions.read < 2000


class Twice(Environment):
    """Asks twice and counts how many rollouts are under way."""

    def __init__(self, count: int = 30) -> None:
        self.count = count
        self.under_way = self.peak = 0

    def examples(self):
        return (Example(str(number), {}) for number in range(self.count))

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        try:
            first = await model.chat([{"role": "user", "content": "What is 1 + 1?"}])
            await trio.sleep(5)
            second = await model.chat([{"role": "user", "content": f"{first.text} And 2 + 2?"}], temperature=0)
        finally:
            self.under_way -= 1
        return Rollout([first.text, second.text], 1.0)


FOLLOW = MakeSessions("follow", lambda: Follow(FollowSettings()))


async def test_sessions_under_way_follow_the_slots_and_hold_none_while_a_tool_works(autojump_clock):
    environment, fleet = Twice(60), SimulatedFleet(servers("ep1", "ep2", cap=4))
    async with open_kit(fleet, sessions=FOLLOW) as kit:
        await kit.play(kit.job(environment))
        assert whole(kit.lines.keys, 60)
        assert environment.peak == 4 + 4 + 5
        assert all(len(line["attempts"]) == 2 for line in kit.lines.written)


async def test_a_session_asks_again_where_its_prefix_is(autojump_clock):
    async with open_kit(SimulatedFleet(servers("ep1", "ep2", "ep3"))) as kit:
        await kit.play(kit.job(Twice(9), max_concurrent=2))
        assert all(len({a["endpoint"] for a in line["attempts"]}) == 1 for line in kit.lines.written)


class Shaky(Environment):
    """Fails in its own code the first times that each example is played."""

    multi_turn = False

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.played: dict[str, int] = {}

    def examples(self):
        return (Example(str(number), {}) for number in range(10))

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        reply = await model.chat([{"role": "user", "content": "What is 1 + 1?"}])
        self.played[example.id] = self.played.get(example.id, 0) + 1
        if self.played[example.id] <= self.failures:
            raise ValueError(f"shaky {example.id}")
        return Rollout(reply.text, 1.0)


async def test_a_rollout_that_failed_in_its_environment_is_started_afresh_as_often_as_allowed(autojump_clock):
    async with open_kit(SimulatedFleet(servers("ep1"))) as kit:
        await kit.play(kit.job(Shaky(2), rollout_retries=2))
        assert all(line["status"] == "ok" and len(line["attempts"]) == 3 for line in kit.lines.written)
        tokens = sum(event.tokens for event in kit.events if isinstance(event, AttemptEnded))
        assert sum(line["usage"]["completion_tokens"] for line in kit.lines.written) == tokens
    async with open_kit(SimulatedFleet(servers("ep1"))) as kit:
        await kit.play(kit.job(Shaky(3), rollout_retries=2))
        assert whole(kit.lines.keys, 10)
        assert kit.lines.written[0]["error"]["type"] == "ValueError"


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Fails(Questions):
    async def play(self, example: Example, model: ModelSession) -> Rollout:
        raise Speechless


async def test_an_error_whose_text_cannot_be_made_is_its_rollouts_and_no_other_is_lost(autojump_clock):
    async with open_kit(SimulatedFleet(servers("ep1", cap=1))) as kit:
        await kit.play(kit.job(Fails(3)))
        assert [line["error"]["type"] for line in kit.lines.written] == ["Speechless"] * 3
        assert whole(kit.lines.keys, 3)


class Odd(Questions):
    async def play(self, example: Example, model: ModelSession) -> Rollout:
        return "a string"  # type: ignore[return-value]


async def test_an_environment_that_returns_something_else_is_told_so_and_asks_no_model(autojump_clock):
    async with open_kit(SimulatedFleet(servers("ep1", cap=1))) as kit:
        await kit.play(kit.job(Odd(3)))
        assert "returned str" in kit.lines.written[0]["error"]["message"]
        assert whole(kit.lines.keys, 3)


class Torn(Questions):
    def examples(self):
        yield from super().examples()
        raise OSError("the disk is gone")


class Sticky(Questions):
    async def close(self) -> None:
        raise OSError("the door sticks")


async def test_an_environment_that_cannot_be_closed_costs_a_warning_and_no_result(autojump_clock):
    async with open_kit(SimulatedFleet(servers("ep1"))) as kit:
        await kit.play(kit.job(Sticky(3)))
        assert whole(kit.lines.keys, 3)
        (warned,) = [event.message for event in kit.events if isinstance(event, Warned)]
        line = Sticky.close.__code__.co_firstlineno + 1
        assert warned == f"eval 'test': close() failed: OSError: the door sticks (test_run.py, line {line})"


async def test_a_multi_turn_evaluation_of_a_hopeless_pool_fails_its_samples_at_once(autojump_clock):
    limits = RunLimits(max_consecutive_failures=0)
    async with open_kit(SimulatedFleet(servers("ep1", secret="k")), elastic=False, limits=limits) as kit:
        await kit.play(kit.job(Twice(4)))
        assert [line["error"]["type"] for line in kit.lines.written] == ["RequestFailed"] * 4
        assert trio.current_time() < 60


async def test_a_model_that_is_never_found_is_a_stall_although_probes_are_answered(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", model="other"))
    health = HealthSettings(path="/health")
    async with open_kit(fleet, health=health, limits=RunLimits(stall_timeout=300.0), rename="sim") as kit:
        with trio.fail_after(3600):
            await kit.play(kit.job(Questions(3)))
        assert len(kit.run.stalled) == 1
        assert "is misconfigured" in str(kit.run.stalled[0])


async def test_servers_that_always_ask_for_more_patience_are_a_stall(autojump_clock):
    fleet = SimulatedFleet(servers("ep1"), "t=0 busy ep1 retry_after=200 for=100000")
    async with open_kit(fleet, limits=RunLimits(stall_timeout=600.0)) as kit:
        with trio.fail_after(3600):
            await kit.play(kit.job(Questions(3)))
        assert len(kit.run.stalled) == 1


class Locked(Questions):
    async def open(self) -> None:
        raise PermissionError("no entry")


class Leaving(Questions):
    async def open(self) -> None:
        sys.exit("no licence")


class Strange(Questions):
    def examples(self):
        return ["a string"]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        (Locked(3), r"cannot be opened: PermissionError: no entry \(test_run\.py, line \d+\)$"),
        (Leaving(3), r"cannot be opened: SystemExit: no licence \(test_run\.py, line \d+\)$"),
        (Torn(3), r"its dataset cannot be read on: OSError: the disk is gone \(test_run\.py, line \d+\)$"),
        (Strange(3), r"TypeError: examples\(\) yields str, not scavenge\.Example$"),
    ],
)
async def test_an_environment_that_breaks_is_named_with_what_it_did(autojump_clock, environment: Questions, why: str):
    async with open_kit(SimulatedFleet(servers("ep1"))) as kit:
        with pytest.raises(EnvironmentBroken, match=f"eval 'test': .*{why}"):
            await kit.run.play([kit.job(environment)])


class Cautious(Questions):
    """Catches what the model raises and tells it as its own, two errors at once."""

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        async with trio.open_nursery() as nursery:
            for number in range(2):
                nursery.start_soon(self.fail, number)
        raise AssertionError

    async def fail(self, number: int) -> None:
        raise ValueError(f"fault {number}")


async def test_several_errors_of_a_rollout_are_all_in_its_result(autojump_clock):
    async with open_kit(SimulatedFleet(servers("ep1"))) as kit:
        await kit.play(kit.job(Cautious(1)))
        (line,) = kit.lines.written
        assert line["error"]["type"] == "ExceptionGroup"
        place = f"(test_run.py, line {Cautious.fail.__code__.co_firstlineno + 1})"
        said = {f"ValueError: fault {number} {place}" for number in range(2)}
        assert said == set(line["error"]["message"].split("; "))


class Wrong(Questions):
    """Each example fails in a way of its own."""

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        match example.id:
            case "0":
                raise InfrastructureError("the sandbox is gone")
            case "1":
                raise AssertionError
            case "2":
                json.loads("{")
            case "3":
                sys.exit(2)
        raise LookupError("no such row")


async def test_what_an_environment_raises_is_told_with_its_innermost_line_there_unless_it_is_a_sentence(
    autojump_clock,
):
    async with open_kit(SimulatedFleet(servers("ep1"))) as kit:
        await kit.play(kit.job(Wrong(5)))
    first = Wrong.play.__code__.co_firstlineno
    assert {line["example_id"]: line["error"]["message"] for line in kit.lines.written} == {
        "0": "the sandbox is gone",
        "1": f"(test_run.py, line {first + 5})",
        "2": "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
        f" (test_run.py, line {first + 7})",
        "3": f"2 (test_run.py, line {first + 9})",
        "4": f"no such row (test_run.py, line {first + 10})",
    }


async def test_a_request_that_is_lost_again_and_again_is_poison(autojump_clock):
    script = "; ".join(f"t={second} restart ep1" for second in range(1, 60))
    slow = [SimulatedServer("ep1", EngineSettings(5.0, 0.0, 8))]
    async with open_kit(SimulatedFleet(slow, script)) as kit:
        await kit.play(kit.job(Questions(1), retry=RetrySettings(max_lost=3)))
        (line,) = kit.lines.written
        assert line["error"]["type"] == "PoisonRequest"
        assert [attempt["outcome"] for attempt in line["attempts"]] == ["lost"] * 4


async def test_a_request_that_takes_longer_than_its_timeout_is_tried_again_and_then_failed(autojump_clock):
    slow = [SimulatedServer("ep1", EngineSettings(5.0, 0.0, 8))]
    async with open_kit(SimulatedFleet(slow)) as kit:
        await kit.play(kit.job(Questions(1), request_timeout=10.0, retry=RetrySettings(max_retries=1)))
        (line,) = kit.lines.written
        assert [attempt["outcome"] for attempt in line["attempts"]] == ["timeout", "timeout"]
        assert "request_timeout = 10 s" in line["error"]["message"]


async def test_a_dataset_that_cannot_be_read_on_ends_the_run_and_keeps_the_results(autojump_clock):
    async with open_kit(SimulatedFleet(servers("ep1"))) as kit:
        with pytest.raises(EnvironmentBroken, match="disk is gone"):
            await kit.run.play([kit.job(Torn(3))])


async def test_a_stopped_run_keeps_what_was_finished_and_owes_the_rest(autojump_clock):
    class Stop(ScavengeError):
        exit_code = 128 + signal.SIGINT

    async with open_kit(SimulatedFleet(servers("ep1"))) as kit:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kit.play, kit.job(Questions(500)))
            await trio.sleep(10)
            kit.run.stop(Stop("interrupted"))
            kit.run.stop(CircuitBroken("too late"))
        assert isinstance(kit.run.stopped_by, Stop)
        finished = [event for event in kit.events if isinstance(event, RolloutFinished)]
        assert 0 < len(kit.lines.written) == len(finished) < 500
        assert kit.pool.dispatcher.ledger.lent(next(iter(kit.pool.members))) == 0
        assert kit.pool.dispatcher.ledger.waiting == 0


async def test_a_pool_that_nothing_is_listed_for_is_an_error_with_the_nearest_name_unless_elastic(autojump_clock):
    fleet = SimulatedFleet(servers("ep1"))
    with pytest.raises(ConfigError, match="did you mean 'sim'"):
        async with open_kit(fleet, elastic=False, wanted=(EndpointId("sims"),)):
            pytest.fail("started")
    async with open_kit(SimulatedFleet(servers("ep1")), wanted=(EndpointId("sims"),)) as kit:
        assert [e.why for e in kit.events if isinstance(e, PoolWaiting)] == [
            "no endpoint has this id; listed are 'sim'; did you mean 'sim'?"
        ]


async def test_a_wait_from_the_start_is_told_once(autojump_clock):
    fleet = SimulatedFleet(servers("ep1"), "t=30 join ep1")
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(200)))
        told = [event.why for event in kit.events if isinstance(event, PoolWaiting)]
    assert told == ["no endpoint is listed", ""]


async def test_the_reason_of_a_wait_follows_what_is_known(autojump_clock):
    secret = [SimulatedServer("ep1", EngineSettings(0.01, 0.001, 8), secret="right")]
    async with open_kit(SimulatedFleet(secret, "t=30 join ep1"), limits=RunLimits(stall_timeout=60)) as kit:
        await kit.play(kit.job(Questions(3)))
        told = [event.why for event in kit.events if isinstance(event, PoolWaiting)]
    assert told[0] == "no endpoint is listed"
    assert len(told) == 2
    assert "ep1.sim" in told[1]
    assert "401" in told[1]
    assert "401" in str(kit.run.stalled[0])


async def test_a_misspelt_pool_keeps_its_hint_until_the_run_gives_up(autojump_clock):
    settings = {"wanted": (EndpointId("sin"),), "limits": RunLimits(stall_timeout=20)}
    async with open_kit(SimulatedFleet(servers("ep1")), **settings) as kit:
        await kit.play(kit.job(Questions(3), pool=kit.fleet.pools[EndpointId("sin")]))
        assert "did you mean 'sim'" in str(kit.run.stalled[0])


async def test_what_a_source_lists_under_the_id_of_a_fixed_server_changes_nothing_there(autojump_clock):
    fleet = SimulatedFleet(servers("ep1", "ep2"), "t=5 leave ep1")
    fixed = Endpoint(POOL, "sim", Url("http://ep1.sim/v1"))
    async with open_kit(fleet, fixed=[fixed]) as kit:
        await kit.play(kit.job(Questions(200)))
        assert whole(kit.lines.keys, 200)
        assert {attempt["endpoint"] for attempt in kit.lines.attempts()} == {fixed.url}
        assert list(kit.pool.members) == [fixed.url]
