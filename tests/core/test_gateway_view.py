"""What a gateway says of itself."""

from __future__ import annotations

import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.endpoints_view import as_json
from scavenge.core.gateway_view import UNNAMED, health_of, status_document
from scavenge.core.health_state import State
from scavenge.status import EndpointStatus, FleetStatus, GatewayStatus, PoolStatus, SessionsStatus, SourceStatus
from scavenge.types import EndpointId, Url

OPEN = GatewayStatus(connections=3, calls=2, sessions=1)
STOPPING = attrs.evolve(OPEN, stopping=True)


def pool(*states: str, name: str = "glm", waiting: int = 0) -> PoolStatus:
    endpoints = (
        EndpointStatus(Url(f"http://10.0.0.{n}/v1"), state, f"key sk-abc at http://10.0.0.{n}", n, 8)
        for n, state in enumerate(states, 1)
    )
    return PoolStatus(EndpointId(name), tuple(endpoints), waiting)


@pytest.mark.parametrize(
    ("pools", "status", "state"),
    [
        ([["live"]], 200, "serving"),
        ([["probation", "ejected"], ["live"]], 200, "serving"),
        ([["live"], ["ejected"]], 200, "degraded"),
        ([["live"], []], 200, "degraded"),
        ([["paused", "ejected"]], 503, "waiting"),
        ([["draining"], []], 503, "waiting"),
        ([[]], 503, "waiting"),
        ([], 503, "waiting"),
    ],
)
def test_the_state_says_how_many_pools_are_served(pools, status, state):
    fleet = FleetStatus(tuple(pool(*states, name=f"p{index}") for index, states in enumerate(pools)))
    code, document = health_of(fleet, OPEN)
    assert (code, document["state"]) == (status, state)
    assert health_of(fleet, STOPPING)[0] == 503
    assert health_of(fleet, STOPPING)[1] == {**document, "state": "stopping"}


def test_each_pool_is_told_with_its_counts_and_why_none_of_its_endpoints_works():
    fleet = FleetStatus((pool("live", "ejected"), pool("probing", "ejected", "ejected", name="b", waiting=7), pool()))
    assert health_of(fleet, OPEN)[1]["pools"] == [
        {"endpoint_id": "glm", "endpoints": 2, "working": 1, "in_flight": 3, "waiting": 0},
        {
            "endpoint_id": "b", "endpoints": 3, "working": 0, "in_flight": 6, "waiting": 7,
            "why": "2 ejected, 1 probing",
        },
        {
            "endpoint_id": "glm", "endpoints": 0, "working": 0, "in_flight": 0, "waiting": 0,
            "why": "no endpoint is listed",
        },
    ]  # fmt: skip


def test_an_empty_fleet_and_a_lost_network_say_so():
    assert health_of(FleetStatus(()), OPEN)[1] == {"state": "waiting", "pools": [], "why": "no endpoint is listed yet"}
    lost = FleetStatus((pool("ejected"),), network_down_s=75.0)
    assert health_of(lost, OPEN)[1]["why"] == "this machine has had no network for 1:15"
    assert "why" not in health_of(FleetStatus((pool("ejected"),)), OPEN)[1]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("glm@http://10.0.0.7:8000/v1 with MY_KEY", "glm"),
        ("zai-org/GLM-4.7@HTTPS://me:pw@h/v1", "zai-org/GLM-4.7"),
        ("http://h/v1", UNNAMED),
        ("x http://h\nkey", "x"),
        ("me@home", "me@home"),
    ],
)
def test_the_name_of_a_fixed_server_is_told_without_its_place(name, shown):
    (told,) = health_of(FleetStatus((pool("live", name=name),)), OPEN)[1]["pools"]  # type: ignore[misc]
    assert told["endpoint_id"] == shown


STATES = st.sampled_from([*(state.value for state in State), "draining"])


@given(st.lists(st.tuples(st.lists(STATES, max_size=4), st.integers(0, 9)), max_size=4), st.none() | st.floats(0, 1e6))
def test_health_shows_no_word_of_others(pools, network_down_s):
    sources = (SourceStatus("http://list.example?token=x", 1, None, "http://list.example refused sk-abc"),)
    fleet = FleetStatus(tuple(pool(*states, waiting=n) for states, n in pools), sources, network_down_s)
    code, document = health_of(fleet, OPEN)
    text = orjson.dumps(document).decode()
    assert not any(word in text for word in ("http", "10.0.0", "sk-", "token", "key"))
    assert (code == 200) == (document["state"] in ("serving", "degraded"))
    assert all(("why" in told) == (told["working"] == 0) for told in document["pools"])  # type: ignore[attr-defined]


def test_the_whole_status_has_the_gateways_figures_beside_the_fleets():
    sessions = SessionsStatus("budget", 1, 0)
    fleet = FleetStatus(
        (attrs.evolve(pool("live", waiting=2), sessions=sessions),), (SourceStatus("file", 1, 0.12345),)
    )
    document = status_document(fleet, OPEN)
    assert document == {
        "state": "serving",
        "gateway": {"connections": 3, "calls": 2, "sessions": 1, "stopping": False},
        **as_json(fleet),
    }
    assert orjson.loads(orjson.dumps(document)) == document
    assert status_document(fleet, STOPPING)["state"] == "stopping"
