"""Random churn: what it is made of, and how fast such a fleet could be."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.testing import (
    ChurnRates,
    ChurnSettings,
    EngineSettings,
    Pace,
    SimulatedFleet,
    SimulatedServer,
    faults,
    fleet_paces,
    least_makespan_s,
    most_tokens,
    parse_script,
    random_churn,
)
from scavenge.testing.node import make_hosts

DAY = ChurnSettings(servers=60, duration_s=6 * 3600.0)
NO_RATES = ChurnRates(*[0.0] * len(attrs.fields(ChurnRates)))


def test_the_same_seed_gives_the_same_churn_and_another_seed_another():
    assert random_churn(1, DAY) == random_churn(1, DAY)
    assert random_churn(1, DAY).steps != random_churn(2, DAY).steps


def test_a_churn_is_a_script_that_a_fleet_takes():
    churn = random_churn(3, DAY)
    assert parse_script(churn.script, [server.name for server in churn.servers]) == churn.steps
    SimulatedFleet(churn.servers, churn.steps)


def test_everything_that_can_happen_happens():
    kinds = {type(step.fault) for step in random_churn(1, ChurnSettings(300, 8 * 3600.0, ChurnRates(outage=2))).steps}
    assert kinds == {
        *(faults.Kill, faults.Restart, faults.Join, faults.Leave, faults.Freeze, faults.Error, faults.Garbage),
        *(faults.Cap, faults.Notice, faults.Heal, faults.Outage, faults.Empty, faults.Hang),
    }


@pytest.mark.parametrize("seed", range(5))
def test_some_servers_are_never_touched(seed):
    churn = random_churn(seed, attrs.evolve(DAY, steady_share=0.25, rates=ChurnRates(kill=100)))
    touched = {step.server for step in churn.steps} - {"fleet"}
    assert len(touched) == 45
    assert random_churn(seed, ChurnSettings(servers=1, rates=ChurnRates(outage=0))).steps == ()


@pytest.mark.parametrize("seed", range(5))
def test_in_the_end_every_server_is_well(seed):
    churn = random_churn(seed, DAY)
    assert all(0 <= step.at_s <= DAY.duration_s for step in churn.steps)
    hosts = make_hosts(churn.servers, churn.steps, 0)
    for step in churn.steps:
        if step.server != "fleet":
            hosts[step.server].apply(step.fault, step.at_s)
    assert all(host.alive and host.listed and not host.draining for host in hosts.values())
    assert all(host.next_change_at() == math.inf and host.ceiling_tokens_per_s > 0 for host in hosts.values())


def test_nothing_happens_where_every_rate_is_zero():
    churn = random_churn(1, attrs.evolve(DAY, rates=NO_RATES, late_share=0.0))
    assert churn.steps == ()
    assert churn.script == ""


def test_a_rate_is_how_often_in_an_hour_it_happens_to_a_server():
    churn = random_churn(1, attrs.evolve(DAY, servers=1000, rates=attrs.evolve(NO_RATES, resize=0.5)))
    hours = 6 * (900 - 180 / 8)
    happened = Counter(type(step.fault) for step in churn.steps)[faults.Cap] / hours
    assert 0.45 < happened < 0.55


def test_servers_differ_as_a_data_centre_and_a_laptop_do():
    speeds = [pace.tokens_per_s for server in random_churn(1, DAY).servers for pace in fleet_paces([server], [])]
    assert 15 < max(speeds) / min(speeds) < 37


@pytest.mark.parametrize("capped", [True, False])
def test_a_capped_churn_lists_and_resizes_the_slots(capped):
    churn = random_churn(1, attrs.evolve(DAY, capped=capped))
    caps = defaultdict(list)
    for step in churn.steps:
        if isinstance(step.fault, faults.Cap):
            assert step.fault.max_concurrent == (step.fault.slots if capped else None)
            caps[step.server].append(step.fault.slots)
    for server in churn.servers:
        assert server.max_concurrent == (server.engine.slots if capped else None)
        assert all(1 <= slots <= server.engine.slots for slots in caps[server.name])


@pytest.mark.parametrize("keys", [{"servers": 0}, {"duration_s": 0}, {"steady_share": 1.5}, {"token_s": 0.0}])
def test_settings_that_make_no_sense_are_refused(keys):
    with pytest.raises(ValueError, match=f"'{next(iter(keys))}' must be"):
        ChurnSettings(**keys)


# --- the bound


def server(name: str = "ep1", **settings) -> SimulatedServer:
    """Two tokens a second for one stream, 4 / (0.5 + 0.125 * 4) = 4 for all four."""
    return SimulatedServer(name, EngineSettings(token_s=0.5, load_s=0.125, slots=4), **settings)


def paces(script: str, *servers: SimulatedServer) -> list[tuple[float, float]]:
    servers = servers or (server(),)
    steps = parse_script(script, [one.name for one in servers])
    return [(pace.at_s, pace.tokens_per_s) for pace in fleet_paces(servers, steps)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", [(0, 4)]),
        ("t=1 kill ep1; t=3 restart ep1", [(0, 4), (1, 0), (3, 4)]),
        ("t=5 join ep1", [(0, 0), (5, 4)]),
        ("t=1 leave ep1; t=2 kill ep1; t=9 join ep1", [(0, 4), (1, 0), (9, 4)]),
        ("t=1 freeze ep1 for=2", [(0, 4), (1, 0), (3, 4)]),
        ("t=1 freeze ep1; t=2 slow ep1 x=2 for=9; t=3 heal ep1", [(0, 4), (1, 0), (3, 4)]),
        ("t=1 slow ep1 x=4 for=2", [(0, 4), (1, 1), (3, 4)]),
        ("t=1 error ep1 for=2", [(0, 4), (1, 0), (3, 4)]),
        ("t=1 error ep1 rate=0.5", [(0, 4)]),
        ("t=1 garbage ep1; t=4 restart ep1", [(0, 4), (1, 0), (4, 4)]),
        ("t=1 drain ep1; t=2 busy ep1 for=3; t=6 abort ep1", [(0, 4)]),
        ("t=1 notice ep1 in=2", [(0, 4), (3, 0)]),
        ("t=1 notice ep1 in=2; t=2 join ep1", [(0, 4)]),
        ("t=1 cap ep1 slots=2", [(0, 4), (1, 2 / 0.75)]),
        ("t=1 cap ep1 max_concurrent=2; t=2 cap ep1 max_concurrent=9", [(0, 4), (1, 2 / 0.75), (2, 4)]),
        ("t=1 outage fleet for=2", [(0, 4)]),
        ("t=1 freeze ep1 for=5; t=2 freeze ep1 for=1", [(0, 4), (1, 0), (3, 4)]),
    ],
)
def test_a_server_counts_while_new_work_can_come_to_something_there(script, expected):
    assert paces(script) == expected


def test_servers_add_up():
    assert paces("t=1 kill ep1", server(), server("ep2", max_concurrent=1)) == [(0, 5.6), (1, 1.6)]


def test_noise_can_make_a_server_faster():
    noisy = SimulatedServer("ep1", EngineSettings(token_s=0.5, load_s=0.125, slots=4, noise=0.2))
    assert paces("", noisy) == [(0, 5)]


@pytest.mark.parametrize(
    ("tokens", "expected"), [(0, 0), (4, 1), (40, 10), (40.5, 20.5), (43, 23), (60, 40), (61, math.inf)]
)
def test_the_bound_is_when_the_integral_of_the_paces_reaches_the_work(tokens, expected):
    assert least_makespan_s([Pace(0, 4), Pace(10, 0), Pace(20, 1), Pace(40, 0)], tokens) == expected


def test_without_any_pace_only_no_work_can_be_done():
    assert (least_makespan_s([], 1), least_makespan_s([], 0), most_tokens([], 5)) == (math.inf, 0, 0)


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)), min_size=1, max_size=6),
    st.floats(0.1, 1000),
)
def test_the_most_tokens_of_a_time_take_that_time(spans, within_s):
    at_s, profile = 0.0, []
    for lasts_s, tokens_per_s in spans:
        profile.append(Pace(at_s, tokens_per_s))
        at_s += lasts_s
    assert least_makespan_s(profile, most_tokens(profile, within_s)) == pytest.approx(within_s)
