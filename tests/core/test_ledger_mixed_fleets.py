"""Mixed fleets: the ledger goes by speeds, which the replies of simulated servers tell; nobody waits needlessly."""

from __future__ import annotations

import pytest

from mixed_fleet import MixedFleet, come_every, keep_in_flight
from scavenge.core.ledger import Ask, SlotLedger
from scavenge.core.pace import FORGET_AFTER_S, Line

FAST, SLOW = Line(0.01, 0.0002), Line(0.05, 0.05)
H100, MIDDLING, LAPTOP = (0.008, 0.00005, 64), (0.015, 0.0005, 32), (0.05, 0.05, 8)
MIXED = {
    "two kinds": {"fast": (0.01, 0.0002, 64), "slow": LAPTOP},
    "three kinds": {"fast": H100, "middling": MIDDLING, "slow": LAPTOP},
    "twins": {"fast": H100, "fast 2": H100, "middling": MIDDLING, "middling 2": MIDDLING, "slow": LAPTOP},
}


def places(asks, **servers):
    ledger = SlotLedger()
    for url, (limit, line) in servers.items():
        ledger.join(url, limit)
        ledger.set_line(url, line)
    for number in range(asks):
        ledger.enqueue(Ask((number,)))
    return [lease.url for _, lease in ledger.grant()]


@pytest.mark.parametrize(
    ("asks", "fast", "slow", "to_fast"),
    [
        (10, (64, FAST), (8, SLOW), 10),
        (64, (64, FAST), (8, SLOW), 64),
        (10, (4, FAST), (8, SLOW), 4),
        (72, (64, FAST), (8, SLOW), 64),
        (80, (64, FAST), (8, SLOW), 64),
        (10, (64, Line(0.0, 0.02)), (8, SLOW), 8),
        (10, (64, FAST), (8, FAST), 5),
        (40, (64, FAST), (8, FAST), 32),
    ],
)
def test_each_request_goes_where_it_is_expected_to_be_done_first(asks, fast, slow, to_fast):
    chosen = places(asks, fast=fast, slow=slow)
    assert chosen.count("fast") == to_fast
    assert len(chosen) == min(asks, fast[0] + slow[0]), "somebody waits while a slot is free"


def test_the_slow_one_gets_its_first_request_when_the_fast_one_is_as_slow_under_its_load():
    chosen = places(40, fast=(64, Line(0.05, 0.005)), slow=(8, SLOW))
    assert chosen.index("slow") == pytest.approx(10, abs=2)


@pytest.mark.parametrize("at_once", [4, 12, 48, 96, 200])
@pytest.mark.parametrize("name", MIXED)
def test_at_a_constant_number_of_requests_the_mean_is_no_worse_than_by_load_alone(name, at_once):
    """Each step of the simulation checks too that nobody waits while a slot is free."""
    by_load = keep_in_flight(MixedFleet(MIXED[name], learning=False), 400, at_once)
    by_speed = keep_in_flight(MixedFleet(MIXED[name]), 400, at_once)
    assert len(by_speed.served) == len(by_load.served) == 400
    assert by_speed.mean_s <= 1.01 * by_load.mean_s
    if at_once <= 12:
        assert by_speed.mean_s <= 0.9 * by_load.mean_s


@pytest.mark.parametrize("every_s", [2.0, 0.3, 0.1, 0.04])
@pytest.mark.parametrize("name", MIXED)
def test_at_a_constant_rate_of_requests_the_mean_is_no_worse_than_by_load_alone(name, every_s):
    by_load = come_every(MixedFleet(MIXED[name], learning=False), 400, every_s)
    by_speed = come_every(MixedFleet(MIXED[name]), 400, every_s)
    assert len(by_speed.served) == 400
    assert by_speed.mean_s <= 1.01 * by_load.mean_s


@pytest.mark.parametrize("at_once", [2, 10, 40, 80, 160])
@pytest.mark.parametrize("server", [(0.01, 0.0002), (0.01, 0.01)])
def test_equal_servers_get_equal_shares(server, at_once):
    fleet = keep_in_flight(MixedFleet({"a": (*server, 40), "b": (*server, 40)}), 400, at_once)
    shares = fleet.shares()
    assert abs(shares["a"] - shares["b"]) < 0.15


@pytest.mark.parametrize("at_once", [2, 10, 40, 100])
def test_after_fifty_replies_predictions_at_the_loads_seen_are_within_a_fifth(at_once):
    fleet = keep_in_flight(MixedFleet({"a": (0.01, 0.0002, 40), "b": (0.01, 0.01, 40)}), 400, at_once)
    off = sorted(map(abs, fleet.errors[50:-at_once]))  # at the end the load falls faster than replies come
    assert off[int(0.95 * len(off))] < 0.2


@pytest.mark.parametrize("every_s", [1.0, 0.2, 0.05])
def test_most_predictions_are_as_good_while_the_load_wanders(every_s):
    fleet = come_every(MixedFleet({"a": (0.01, 0.0002, 40), "b": (0.01, 0.001, 40)}), 400, every_s)
    off = sorted(map(abs, fleet.errors[50:350]))
    assert off[int(0.75 * len(off))] < 0.2


def test_a_server_that_was_slow_for_a_while_is_tried_again_once_its_speed_is_forgotten():
    fleet = MixedFleet({"a": (0.01, 0.001, 8), "b": (0.01, 0.001, 8)})
    for _ in range(10):
        fleet.paces["b"].observe(100, 100.0, 1, fleet.now)
    fleet.ledger.set_line("b", fleet.paces["b"].line())
    come_every(fleet, 40, 3.0)
    assert fleet.shares() == {"a": 1, "b": 0}
    assert fleet.paces["b"].forget_if_stale(fleet.now + FORGET_AFTER_S, 0)
    fleet.ledger.set_line("b", fleet.paces["b"].line())
    keep_in_flight(fleet, 40, 2)
    assert fleet.shares(since=40)["b"] == pytest.approx(0.5, abs=0.1)
