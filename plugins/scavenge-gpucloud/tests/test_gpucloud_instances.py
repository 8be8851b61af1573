"""What the fields of an instance mean, and which instances become rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from gpucloud_double import Machine
from gpucloud_kit import CASES, each_cloud
from scavenge_gpucloud.clouds import read_prime, read_runpod, read_vast
from scavenge_gpucloud.instance import Instance, host, port, read_instances, rows
from scavenge_gpucloud.pages import Unclear

NOW = 1_800_000_000.0


def listed(case, *machines, now=NOW, **keys):
    config = case.template(**keys)
    items = [item if isinstance(item, dict) else case.shown(item) for item in machines]
    return rows(
        read_instances(items, case.cloud.read),
        config,
        now,
        name_prefix=config.name_prefix,
        statuses=config.statuses,
        drain_before_s=config.drain_before_s,
    )


@each_cloud
def test_a_running_instance_is_a_row_with_its_address_and_its_port_outside(case):
    (row,) = listed(case, Machine(1, port=40123, ip="203.0.113.7"))
    assert row.url == "http://203.0.113.7:40123/v1"
    assert row.draining is None
    assert row.drain_deadline is None


@each_cloud
def test_every_fact_is_told(case):
    text = "{id} {name} {status} {address} {port.8000} {gpu} {gpu_count} {interruptible}"
    (row,) = listed(case, Machine(7, port=40123), model=text)
    assert not [word for word in row.model.split() if word in ("None", "")]
    assert row.model.startswith({"runpod": "pod7", "vast": "7", "prime": "prime-7"}[name_of(case)] + " vllm-1 ")
    assert row.model.endswith(" 2 true")


def name_of(case):
    return next(name for name, one in CASES.items() if one is case)


@each_cloud
@pytest.mark.parametrize("state", ["starting", "stopped"])
def test_an_instance_that_has_not_started_or_has_stopped_is_not_listed(case, state):
    assert listed(case, Machine(1, state=state), Machine(2)) == listed(case, Machine(2))


@each_cloud
def test_an_instance_whose_host_the_cloud_does_not_hear_of_stays_for_the_health_check_to_judge(case):
    (row,) = listed(case, Machine(1, state="lost"))
    assert row.draining is None


@pytest.mark.parametrize("name", ["vast", "prime"])
def test_an_instance_that_is_being_taken_away_drains(name):
    (row,) = listed(CASES[name], Machine(1, state="going"))
    assert row.draining is True


@each_cloud
def test_only_instances_whose_name_begins_so_are_listed(case):
    machines = [Machine(1, 1, name="vllm-a"), Machine(2, 2, name="train"), Machine(3, 3, name="")]
    assert len(listed(case, *machines)) == 3
    assert [row.url for row in listed(case, *machines, name_prefix="vllm-")] == ["http://127.0.0.1:1/v1"]


@each_cloud
def test_other_statuses_count_where_the_configuration_says_so(case):
    status = listed(case, Machine(1), model="{status}")[0].model
    assert listed(case, Machine(1), statuses=["odd"]) == []
    assert len(listed(case, Machine(1), statuses=["odd", status.swapcase()])) == 1


@each_cloud
def test_rows_stand_in_the_order_of_ids_however_the_cloud_shuffles(case):
    machines = [Machine(number, 40000 + number) for number in (2, 10, 1)]
    assert listed(case, *machines) == listed(case, *reversed(machines))
    assert [row.url[-8:-3] for row in listed(case, *machines)] == ["40001", "40002", "40010"]


@each_cloud
def test_an_instance_that_opens_another_port_says_so_in_its_row_and_the_others_stand(case):
    wrong, right = listed(case, Machine(1, inside=9000), Machine(2, port=40002))
    assert "{port.8000}" in str(wrong.url)
    assert right.url == "http://127.0.0.1:40002/v1"


@each_cloud
def test_a_url_that_needs_no_address_is_listed_as_soon_as_the_instance_runs(case):
    shown = {**case.shown(Machine(1)), "publicIp": "", "portMappings": None, "public_ipaddr": None, "ports": None}
    shown |= {"ip": [None], "primePortMapping": None}
    assert listed(case, shown) == []
    (row,) = listed(case, shown, url="https://{id}-8000.proxy.example.com/v1")
    assert row.url.endswith("-8000.proxy.example.com/v1")


@each_cloud
def test_an_item_that_cannot_be_understood_costs_itself_only(case):
    assert len(listed(case, {"id": 5}, Machine(1))) == 1


@each_cloud
def test_a_list_of_which_nothing_can_be_understood_is_not_empty(case):
    with pytest.raises(Unclear):
        listed(case, {"id": 5, "state": "up"}, {"id": 6, "state": "up"})


@each_cloud
@pytest.mark.parametrize(
    "junk", [None, True, 3, -1.5, "", "x" * 100, [], [None], [[]], {}, {"a": []}, {"8000/tcp": [3]}]
)
def test_junk_in_any_field_costs_no_more_than_that_instance(case, junk):
    shown = case.shown(Machine(1))
    for key in shown:
        if key != "id":
            assert len(listed(case, {**shown, key: junk}, Machine(2))) in (1, 2)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("prime", {"installationStatus": "PENDING"}),
        ("vast", {"actual_status": "offline", "intended_status": "stopped"}),
        ("vast", {"actual_status": None}),
    ],
)
def test_an_instance_that_the_cloud_has_not_set_up_is_not_listed_although_it_has_an_address(name, fields):
    assert listed(CASES[name], {**CASES[name].shown(Machine(1)), **fields}) == []


# --- what each cloud has of its own


def test_a_runpod_pod_that_runs_without_an_address_yet_is_not_reachable():
    pod = read_runpod({"id": "a", "desiredStatus": "RUNNING", "publicIp": "", "portMappings": None})
    assert not pod.reachable
    assert pod.address is None


def test_a_runpod_gpu_is_also_found_in_the_machine():
    pod = read_runpod({"id": "a", "desiredStatus": "RUNNING", "machine": {"gpuDisplayName": "A40"}, "gpuCount": 4})
    assert (pod.gpu, pod.gpu_count, pod.interruptible) == ("A40", 4, None)


@pytest.mark.parametrize(
    ("fields", "ready", "leaving"),
    [
        ({"actual_status": "running"}, True, False),
        ({"actual_status": "running", "intended_status": "running", "cur_state": "running"}, True, False),
        ({"actual_status": "running", "intended_status": "stopped"}, False, True),  # its user stopped it
        ({"actual_status": "running", "cur_state": "stopped"}, False, True),  # outbid
        ({"actual_status": "running", "next_state": "stopped"}, False, True),
        ({"actual_status": "running", "cur_state": "unloaded"}, False, True),  # destroyed
        ({"actual_status": "exited", "cur_state": "stopped"}, False, False),
        ({"actual_status": "offline", "intended_status": "stopped"}, False, False),
        ({"actual_status": "offline", "intended_status": "running"}, True, False),
        ({"actual_status": None, "cur_state": "running"}, True, False),
    ],
)
def test_what_vast_says_of_an_instance_in_four_fields(fields, ready, leaving):
    one = read_vast({"id": 1, **fields})
    assert (one.ready, one.leaving) == (ready, leaving)


def test_a_vast_instance_that_is_being_provisioned_has_no_status_yet():
    assert read_vast({"id": 1, "actual_status": None}).status == "provisioning"


def test_a_vast_port_is_the_tcp_port_outside():
    ports = {
        "8000/tcp": [{"HostPort": "x"}, {"HostPort": "40001"}, {"HostPort": "40002"}],
        "9000/udp": [{"HostPort": "1"}],
    }
    assert read_vast({"id": 1, "actual_status": "running", "ports": ports}).ports == {8000: 40001}


def test_a_vast_instance_drains_when_the_end_of_its_rental_is_near():
    vast = CASES["vast"]
    (row,) = listed(vast, Machine(1, ends_at=NOW + 120.0), drain_before=180)
    assert row.drain_deadline == datetime.fromtimestamp(NOW + 120.0, UTC)
    for ends_at, drain_before in ((NOW + 200, 180), (NOW + 120, 0), (NOW - 1, 180), (None, 180)):
        (row,) = listed(vast, Machine(1, ends_at=ends_at), drain_before=drain_before)
        assert row.drain_deadline is None


@pytest.mark.parametrize("ends_at", [float("inf"), float("nan"), 1e300, 10**400, True, "soon", -5])
def test_an_end_that_is_no_time_is_none(ends_at):
    assert read_vast({"id": 1, "actual_status": "running", "end_date": ends_at}).ends_at is None


def test_a_prime_pod_that_is_active_and_still_being_installed_is_not_ready():
    base = {"id": "a", "status": "ACTIVE", "ip": "203.0.113.7"}
    assert read_prime(base).ready
    assert read_prime({**base, "installationStatus": "FINISHED"}).ready
    assert not read_prime({**base, "installationStatus": "PENDING"}).ready
    assert not read_prime({**base, "installationStatus": "ERROR"}).ready


@pytest.mark.parametrize(
    ("ip", "address"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ([None], None),
        (None, None),
        ([], None),
        (["203.0.113.7", "203.0.113.8"], "203.0.113.7"),
    ],
)
def test_a_prime_address_is_a_text_or_a_list(ip, address):
    assert read_prime({"id": "a", "status": "ACTIVE", "ip": ip}).address == address


def test_a_prime_port_that_is_no_number_is_not_known():
    mapping = [{"internal": "8000", "external": "https://x.example.com"}, {"internal": "22", "external": "2222"}, None]
    mapping.append({"internal": "53", "external": "5353", "protocol": "UDP"})
    assert read_prime({"id": "a", "status": "ACTIVE", "primePortMapping": mapping}).ports == {22: 2222}


@pytest.mark.parametrize(
    ("value", "address"),
    [
        (" 203.0.113.7 \n", "203.0.113.7"),
        ("2001:db8::1", "[2001:db8::1]"),
        ("gpu-1.example.com", "gpu-1.example.com"),
        ("0.0.0.0", None),
        ("", None),
        ("a b", None),
        ("evil.example.com/x?", None),
        ("user@host", None),
        ("-x", None),
        ("x" * 300, None),
        (7, None),
        (None, None),
    ],
)
def test_an_address_is_what_can_be_dialled(value, address):
    assert host(value) == address


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (8000, 8000),
        ("8000", 8000),
        (" 8000 ", 8000),
        (0, None),
        (65536, None),
        ("-1", None),
        (True, None),
        (80.0, None),
    ],
)
def test_a_port_is_a_number_from_1_to_65535(value, number):
    assert port(value) == number


def test_an_item_that_json_can_hold_never_breaks_the_reading():
    deep = json.loads("[" * 200 + "]" * 200)
    for read in (read_runpod, read_vast, read_prime):
        keys = ("desiredStatus", "actual_status", "status", "publicIp", "portMappings", "ports", "ip", "gpu")
        for key in keys:
            try:
                found = read({"id": "a", key: deep})
            except Unclear:
                continue
            assert isinstance(found, Instance)
