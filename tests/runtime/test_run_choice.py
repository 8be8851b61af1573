"""Where a run sends its requests: away from what fails, to what is fast, and never all to the same place at once."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import trio
from fleet_kit import Questions, open_kit

from scavenge.core.ramp import FIRST_ROOM
from scavenge.core.retry import RetrySettings
from scavenge.events import AttemptEnded
from scavenge.rollouts import Example, Rollout
from scavenge.runtime.ports import Environment, ModelSession
from scavenge.testing.engine import EngineSettings
from scavenge.testing.fleet import SimulatedFleet
from scavenge.testing.served import SimulatedServer


def server(name: str, token_s: float = 0.2, load_s: float = 0.001, slots: int = 16) -> SimulatedServer:
    return SimulatedServer(name, EngineSettings(token_s, load_s, slots))


def url(name: str) -> str:
    return f"http://{name}.sim/v1"


PATIENT = RetrySettings(max_retries=50)


@pytest.mark.parametrize("fault", ["garbage bad", "error bad", "error bad rate=0.8", "error bad rate=0.5", "kill bad"])
async def test_what_fails_fast_gets_a_few_percent_of_the_attempts_at_most(autojump_clock, fault):
    fleet = SimulatedFleet([server("good"), server("bad", slots=64)], f"t=0 {fault}")
    async with open_kit(fleet, limit=64) as kit:
        await kit.play(kit.job(Questions(1500), retry=PATIENT))
        assert all(line["status"] == "ok" for line in kit.lines.written)
        attempts = kit.lines.attempts()
        to_bad = [attempt for attempt in attempts if attempt["endpoint"] == url("bad") and attempt["outcome"] != "ok"]
        assert len(to_bad) < 0.05 * len(attempts)


async def test_while_there_are_slots_enough_the_fast_server_gets_the_work(autojump_clock):
    fleet = SimulatedFleet([server("h100", 0.01, 0.0002, 64), server("laptop", 0.05, 0.05, 64)])
    async with open_kit(fleet, limit=64) as kit:
        await kit.play(kit.job(Questions(600), max_concurrent=8))
        served = Counter(attempt["endpoint"] for attempt in kit.lines.attempts())
        assert served[url("laptop")] < 0.05 * 600


async def test_every_slot_is_used_while_there_is_more_work_than_slots(autojump_clock):
    fleet = SimulatedFleet([server("h100", 0.01, 0.0002, 8), server("laptop", 0.05, 0.05, 8)])
    async with open_kit(fleet) as kit:
        await kit.play(kit.job(Questions(600)))
        assert fleet.truth["laptop"].peak_in_flight == 8
        assert fleet.truth["h100"].finished > 5 * fleet.truth["laptop"].finished


async def test_an_endpoint_that_comes_back_opens_up_slowly(autojump_clock):
    fleet = SimulatedFleet([server("ep1", 10.0, 0.001, 64), server("ep2", 10.0, 0.001, 64)], "t=1000 join ep2")
    counts: list[int] = []
    async with open_kit(fleet, limit=64) as kit, trio.open_nursery() as nursery:
        nursery.start_soon(kit.play, kit.job(Questions(1000)))
        await trio.sleep(1001)
        for _ in range(8):
            await trio.sleep(4)
            counts.append(fleet.nodes["ep2"].host.running)
        nursery.cancel_scope.cancel()
    assert counts[0] <= 2 * FIRST_ROOM
    assert counts == sorted(counts)
    assert counts[-1] == 64


class Talks(Environment):
    """Many turns, with a pause between them."""

    multi_turn = True

    def __init__(self, count: int, turns: int) -> None:
        self.count, self.turns = count, turns

    def examples(self):
        return (Example(str(number), {}) for number in range(self.count))

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        for turn in range(self.turns):
            await model.chat([{"role": "user", "content": f"turn {turn} of {example.id}"}])
            await trio.sleep(3)
        return Rollout("", 1.0)


async def test_the_sessions_of_a_dead_endpoint_spread_over_the_others_and_stay_there(autojump_clock):
    fleet = SimulatedFleet([server(f"ep{number}", slots=32) for number in (1, 2, 3, 4)], "t=60 kill ep1")
    async with open_kit(fleet, limit=32) as kit:
        await kit.play(kit.job(Talks(80, 20)))
        assert all(line["status"] == "ok" for line in kit.lines.written)
        paths = [[a["endpoint"] for a in line["attempts"] if a["outcome"] == "ok"] for line in kit.lines.written]
        moved = [path for path in paths if url("ep1") in path and path[-1] != url("ep1")]
        assert len(moved) >= 5
        after = Counter(path[-1] for path in moved)
        assert after.keys() <= {url("ep2"), url("ep3"), url("ep4")}
        assert max(after.values()) < len(moved), "all went to one endpoint"
        moves = [sum(one != other for one, other in pairwise(path)) for path in moved]
        assert sum(moves) <= 1.5 * len(moved)  # an endpoint that is full for a moment costs some a second move
        peaks = [fleet.truth[name].peak_in_flight for name in ("ep2", "ep3", "ep4")]
        assert max(peaks) <= 32


async def test_the_tokens_of_servers_that_count_none_are_taken_from_the_text(autojump_clock):
    async with open_kit(SimulatedFleet([server("ep1")])) as kit:
        await kit.play(kit.job(Questions(30)))
        ended = [event for event in kit.events if isinstance(event, AttemptEnded)]
        (seen,) = kit.pool.status().endpoints
        assert len(ended) == seen.requests == 30
        assert seen.tokens_per_s is not None
        assert 2.0 < seen.tokens_per_s < 6.0


async def test_a_long_reply_that_is_coming_ends_a_probation(autojump_clock):
    slow = [SimulatedServer("ep1", EngineSettings(60.0, 0.001, 16))]  # replies take a quarter of an hour
    async with (
        open_kit(SimulatedFleet(slow, "t=100 kill ep1; t=160 restart ep1")) as kit,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(kit.play, kit.job(Questions(40)))
        await trio.sleep(260)
        (seen,) = kit.pool.status().endpoints
        assert seen.state == "live"
        assert seen.in_flight == 8
        nursery.cancel_scope.cancel()
