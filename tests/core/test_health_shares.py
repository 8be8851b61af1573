"""What share of the attempts a server gets that fails fast, next to one that serves slowly: simulated without Trio.

The loop is the simplest that is least-loaded: there is always more work than slots, and each request goes where the
smallest part of the limit is in use.
"""

from __future__ import annotations

import heapq
from itertools import count
from random import Random

import attrs
import pytest

from scavenge.core.health import EndpointHealth
from scavenge.core.health_settings import HealthSettings
from scavenge.core.health_state import State
from scavenge.core.others import others_of
from scavenge.types import Failed, Healthy, Lost, Ok, Outcome, Reply

OK = Ok(Reply("4", "stop"))
FAILS = {
    "fails": Failed("boom", 500),
    "talks garbage": Failed("no JSON", 200),
    "cuts connections": Lost("connection reset"),
}
TEN_MINUTES_S, SERVES_IN_S, FAILS_IN_S = 600.0, 10.0, 0.001
SEEDS = range(6)


@attrs.define(eq=False)
class Server:
    """A server that fails a share of its requests at once, and serves the others in about ten seconds."""

    health: EndpointHealth
    slots: int
    failing: float
    failure: Outcome
    random: Random
    in_flight: int = 0
    attempts: int = 0
    served: int = 0
    ejected_s: float = 0.0

    def limit(self, now: float) -> int:
        room = self.health.room(now)
        return self.slots if room is None else min(self.slots, room)

    def play(self) -> tuple[float, Outcome]:
        self.in_flight += 1
        self.attempts += 1
        if self.random.random() < self.failing:
            return FAILS_IN_S, self.failure
        return SERVES_IN_S * self.random.uniform(0.5, 1.5), OK

    def mind(self, now: float) -> None:
        self.health.wake(now)
        if self.health.probe_due(now):
            self.health.on_probe_sent()
            self.health.on_probe(Healthy(), now)

    def due_at(self) -> float:
        instants = (self.health.next_wake_at(), self.health.next_probe_at)
        return min((at for at in instants if at is not None), default=float("inf"))


def simulate(seed: int, *kinds: tuple[int, float, Outcome]) -> list[Server]:
    """Ten minutes of servers, each given by its slots, the share that fails, and how."""
    random = Random(seed)
    health = HealthSettings()
    servers = [Server(EndpointHealth.listed(health, random, 0.0), *kind, random) for kind in kinds]
    now, number = 0.0, count()
    ends: list[tuple[float, int, Server, Outcome]] = []
    while now < TEN_MINUTES_S:
        for server in servers:
            server.mind(now)
        while fit := [server for server in servers if server.in_flight < server.limit(now)]:
            chosen = min(fit, key=lambda server: server.in_flight / server.limit(now))
            lasts_s, outcome = chosen.play()
            heapq.heappush(ends, (now + lasts_s, next(number), chosen, outcome))
        then = min(ends[0][0] if ends else float("inf"), *(server.due_at() for server in servers))
        for server in servers:
            server.ejected_s += (then - now) * (server.health.state is State.EJECTED)
        now = then
        if ends and ends[0][0] <= now:
            _, _, server, outcome = heapq.heappop(ends)
            server.in_flight -= 1
            server.served += outcome is OK
            others = others_of(server.health, (one.health for one in servers), outcome)
            server.health.on_outcome(outcome, now, others)
    return servers


@pytest.mark.parametrize("failing", [1.0, 0.8, 0.5])
@pytest.mark.parametrize("how", FAILS)
def test_a_server_that_fails_fast_gets_a_few_percent_of_the_attempts_at_most(how: str, failing: float):
    shares = []
    for seed in SEEDS:
        good, bad = simulate(seed, (16, 0.0, FAILS[how]), (64, failing, FAILS[how]))
        shares.append(bad.attempts / (good.attempts + bad.attempts))
        assert bad.attempts - bad.served < 0.05 * (good.attempts + bad.attempts)
    assert sum(shares) / len(shares) < 0.05
    assert max(shares) < 0.07


@pytest.mark.parametrize(("failing", "part"), [(0.05, 0.85), (0.1, 0.8), (0.2, 0.6)])
def test_a_server_that_is_merely_mediocre_is_hardly_ever_ejected_and_goes_on_serving(failing: float, part: float):
    for seed in SEEDS:
        _, mediocre = simulate(seed, (16, 0.0, FAILS["fails"]), (64, failing, FAILS["fails"]))
        assert mediocre.ejected_s < 0.05 * TEN_MINUTES_S
        assert mediocre.served > part * mediocre.slots * TEN_MINUTES_S / SERVES_IN_S


@pytest.mark.parametrize(("failing", "part"), [(0.1, 0.95), (0.3, 0.9), (0.5, 0.75)])
@pytest.mark.parametrize("servers", [1, 3])
def test_where_all_fail_alike_that_costs_the_retries_and_hardly_any_work(servers: int, failing: float, part: float):
    for seed in SEEDS[:3]:
        fleet = simulate(seed, *[(64, failing, FAILS["fails"])] * servers)
        assert sum(s.served for s in fleet) > part * sum(s.slots for s in fleet) * TEN_MINUTES_S / SERVES_IN_S
        assert sum(s.ejected_s for s in fleet) < 0.02 * servers * TEN_MINUTES_S


@pytest.mark.parametrize("slots", [1, 4])
def test_a_lone_server_of_few_slots_that_fails_three_in_ten_goes_on_serving(slots: int):
    served = sum(simulate(seed, (slots, 0.3, FAILS["fails"]))[0].served for seed in SEEDS)
    assert served > 0.9 * len(SEEDS) * slots * TEN_MINUTES_S / SERVES_IN_S


def test_a_server_that_fails_far_more_than_others_that_fail_too_gets_a_few_percent_of_the_attempts():
    for seed in SEEDS[:3]:
        *others, bad = simulate(seed, *[(16, 0.2, FAILS["fails"])] * 2, (64, 0.9, FAILS["fails"]))
        assert bad.attempts < 0.07 * sum(server.attempts for server in (*others, bad))
        assert all(other.served > 0.85 * 16 * TEN_MINUTES_S / SERVES_IN_S for other in others)


def test_a_server_that_fails_everything_is_asked_every_few_seconds_where_nobody_else_can_tell():
    for seed in SEEDS:
        (alone,) = simulate(seed, (64, 1.0, FAILS["fails"]))
        assert TEN_MINUTES_S / 2 < alone.attempts + 5 < TEN_MINUTES_S
        assert alone.ejected_s == 0.0
