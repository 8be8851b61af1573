from __future__ import annotations

from random import Random

import attrs
import orjson
import pytest

from scavenge.core.check_report import (
    CheckReport,
    EndpointFinding,
    EngineFinding,
    Machine,
    endpoint_table,
    engine_line,
    machine_line,
)
from scavenge.core.health import EndpointHealth
from scavenge.core.health_settings import HealthSettings
from scavenge.core.limits.fixed import UNCAPPED_LIMIT, FixedSettings
from scavenge.errors import Problem
from scavenge.types import Busy, Failed, Healthy, Lost, Misrouted, Rejected, TimedOut

FOUND = EndpointFinding(
    endpoint_id="glm",
    url="http://a/v1",
    model="glm-4",
    max_concurrent=8,
    source="/data/fleet/of/this/project/endpoints.toml",
    draining=False,
    key="GLM_KEY, set",
    proxy="none",
    addresses="10.0.0.1",
    tls="none",
    outcome="healthy",
    listed=True,
    probe_s=0.0123,
    said="",
)
LOST = attrs.evolve(FOUND, url="http://b/v1", outcome="lost", listed=False, said="connection refused")
MACHINE = Machine(1024, "/data/runs", 5 << 30)


def report(*endpoints: EndpointFinding, pools: tuple[str, ...] = ("glm",), **changes: object) -> CheckReport:
    return attrs.evolve(CheckReport("f.toml", "endpoints", MACHINE, pools=pools, endpoints=endpoints), **changes)


@pytest.mark.parametrize(
    ("made", "exit_code", "says"),
    [
        (report(FOUND, LOST), 0, "every pool has a usable endpoint"),
        (report(LOST), 4, "without a usable endpoint: glm"),
        (report(attrs.evolve(FOUND, draining=True)), 4, "without a usable endpoint: glm"),
        (report(FOUND, pools=("glm", "qwen")), 4, "without a usable endpoint: qwen"),
        (report(pools=()), 4, "there is no endpoint"),
        (report(FOUND, problems=(Problem("x", "wrong"),)), 2, "f.toml: 1 problem"),
        (report(LOST, problems=(Problem("x", "wrong"), Problem("y", "wrong"))), 2, "f.toml: 2 problems"),
    ],
)
def test_the_verdict_is_about_the_file_first_then_about_every_pool(made, exit_code, says):
    assert made.exit_code == exit_code
    assert made.verdict().endswith(says)


def test_more_slots_than_file_descriptors_are_warned_of():
    machine = attrs.evolve(MACHINE, descriptors=80)
    made = report(FOUND, attrs.evolve(FOUND, max_concurrent=9), machine=machine)
    (warning,) = made.machine_warnings()
    assert warning.startswith("17 slots need 81 file descriptors, the system grants 80: have the hard limit raised")
    assert report(FOUND, attrs.evolve(FOUND, max_concurrent=8), machine=machine).machine_warnings() == []


@pytest.mark.parametrize(
    ("limit", "caps", "slots"),
    [(None, (None,), UNCAPPED_LIMIT), (None, (8, None), 8 + UNCAPPED_LIMIT), (20, (None, 8, 50), 20 + 8 + 20)],
)
def test_the_fixed_policy_tells_the_slots_of_endpoints_without_a_cap_and_bounds_those_of_the_others(limit, caps, slots):
    endpoints = [attrs.evolve(FOUND, max_concurrent=cap) for cap in caps]
    made = report(*endpoints, admission=FixedSettings(limit), machine=Machine(slots + 63))
    assert machine_line(made) == f"{slots + 63} file descriptors for {slots} slots"
    assert made.machine_warnings()[0].startswith(f"{slots} slots need {slots + 64} file descriptors")
    assert attrs.evolve(made, machine=Machine(slots + 64)).machine_warnings() == []


def test_a_disk_that_is_nearly_full_is_warned_of():
    made = report(FOUND, machine=attrs.evolve(MACHINE, free_bytes=100 << 20))
    assert made.machine_warnings() == ["only 0.1 GiB free in output_dir /data/runs"]
    assert report(FOUND, machine=Machine(1024)).machine_warnings() == []


def test_the_machine_is_told_on_one_line():
    uncapped = attrs.evolve(FOUND, max_concurrent=None)
    assert machine_line(report(FOUND)) == "1024 file descriptors for 8 slots; 5.0 GiB free in output_dir /data/runs"
    made = report(FOUND, uncapped, machine=Machine(1024))
    assert machine_line(made) == "1024 file descriptors for 8 slots and 1 endpoint with no cap"
    made = report(uncapped, uncapped, machine=Machine(1024))
    assert machine_line(made) == "1024 file descriptors for 0 slots and 2 endpoints with no cap"


def test_a_row_tells_what_was_found_of_an_endpoint():
    table = endpoint_table([FOUND, attrs.evolve(LOST, max_concurrent=None, draining=True)])
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    assert (rows[0]["state"], rows[0]["probe"]) == ("live", "healthy, 12 ms")
    assert rows[0]["source"] == f"…{FOUND.source[-23:]}"
    assert (rows[0]["model"], rows[0]["cap"], rows[0]["said"]) == ("glm-4", "8", "–")
    assert (rows[1]["state"], rows[1]["probe"]) == ("draining", "lost, 12 ms")
    assert (rows[1]["model"], rows[1]["cap"], rows[1]["said"]) == ("glm-4 (not confirmed)", "–", "connection refused")


@pytest.mark.parametrize(
    "result",
    [
        Healthy(),
        Healthy(listed=False),
        Misrouted("no such model", curable=True),
        Misrouted("wrong key"),
        Lost("connection refused"),
        Busy("loading"),
        Failed("broken"),
        Rejected("odd"),
        TimedOut("slow"),
    ],
    ids=repr,
)
def test_the_state_is_the_one_in_which_a_run_would_have_the_endpoint_after_the_same_probe(result):
    health = EndpointHealth.listed(HealthSettings(), Random(1), 0.0)
    health.on_probe_sent()
    health.on_probe(result, 1.0)
    found = attrs.evolve(FOUND, outcome=result.name, listed=isinstance(result, Healthy) and result.listed)
    assert found.state == health.state.value
    assert found.usable is (health.room(1.0) != 0)


def test_the_report_goes_into_json_with_its_verdict():
    document = orjson.loads(orjson.dumps(report(LOST, problems=(Problem("x", "wrong"),), warnings=("w",)).as_json()))
    assert document["exit_code"] == 2
    assert document["problems"] == ["x: wrong"]
    assert document["warnings"] == ["w"]
    assert document["unserved"] == ["glm"]
    (found,) = document["endpoints"]
    assert (found["outcome"], found["state"], found["source"]) == ("lost", "probing", FOUND.source)
    assert document["machine"]["descriptors"] == 1024


def test_the_container_engine_is_told_with_its_room():
    assert engine_line(EngineFinding("", "docker 20.10 for linux/amd64", 38 * 10**9, 5 * 10**9)) == (
        "container engine: docker 20.10 for linux/amd64; 38 GB free on the disk of its images"
    )
    assert engine_line(EngineFinding("", "podman 4.3 for linux/arm64")) == (
        "container engine: podman 4.3 for linux/arm64"
    )
    assert engine_line(EngineFinding("nobody listens")) == "container engine: none that answers"


@pytest.mark.parametrize(
    ("found", "warned"),
    [
        (EngineFinding("nobody listens; start it"), ["container images: nobody listens; start it"]),
        (EngineFinding("", "docker", 10**9, 2 * 10**9), ["container images: docker has no room for another image"]),
        (EngineFinding("", "docker", 2 * 10**9, 2 * 10**9), []),
        (EngineFinding("", "docker"), []),
    ],
)
def test_an_engine_that_can_take_no_image_is_warned_of(found, warned):
    warnings = report(FOUND, engine=found).machine_warnings()
    assert [warning.partition(": 1.0 GB")[0] for warning in warnings] == warned
