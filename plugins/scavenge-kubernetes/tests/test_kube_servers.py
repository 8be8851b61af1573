"""What pods and EndpointSlices say of servers, without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from kube_kit import conditions, config, endpoint, endpoint_slice, pod
from scavenge_kubernetes.config import SLICES
from scavenge_kubernetes.roll import Roll
from scavenge_kubernetes.servers import servers_of

GARBAGE = [None, 7, True, "text", [], [None, 7, "x"], {}, {"a": 1}, [[]], [{}], [{"ports": 3}], {"labels": []}]


def one(item, **keys):
    (server,) = servers_of(item, config(**keys))
    return server


def rows(roll, *items, **keys):
    return roll.rows([server for item in items for server in servers_of(item, config(**keys))])


def test_a_pod_tells_its_address_port_name_namespace_node_labels_and_annotations():
    item = pod("a", labels={"app": "vllm", "app.kubernetes.io/name": "x"}, annotations={"cap": "8"})
    assert one(item).facts == {
        "address": "10.0.0.7",
        "port": 8000,
        "name": "a",
        "namespace": "ml",
        "node": "node-1",
        "label.app": "vllm",
        "label.app.kubernetes.io/name": "x",
        "annotation.cap": "8",
    }


def test_an_endpoint_of_a_slice_tells_the_same_with_the_slices_labels():
    facts = one(endpoint_slice("s", endpoint("10.0.0.7", "a")), resource=SLICES).facts
    assert facts == {
        "address": "10.0.0.7",
        "port": 8000,
        "name": "a",
        "namespace": "ml",
        "node": "node-1",
        "label.kubernetes.io/service-name": "vllm",
    }


def test_an_address_of_ipv6_stands_in_brackets():
    assert one(pod("a", "fd00::7")).facts["address"] == "[fd00::7]"
    assert one(endpoint_slice("s", endpoint("fd00::7"), family="IPv6"), resource=SLICES).facts["address"] == "[fd00::7]"


def test_a_slice_of_host_names_has_host_names():
    assert (
        one(endpoint_slice("s", endpoint("gpu.example"), family="FQDN"), resource=SLICES).facts["address"]
        == "gpu.example"
    )


def test_a_pod_of_two_families_has_its_own_first_address_or_one_of_the_wanted_family():
    item = pod("a", "10.0.0.7")
    item["status"]["podIPs"] = [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]
    assert one(item).facts["address"] == "10.0.0.7"
    assert one(item, ip_family="IPv6").facts["address"] == "[fd00::7]"
    assert one(pod("b"), ip_family="IPv6").facts["address"] is None


@pytest.mark.parametrize(
    ("wanted", "port"), [(None, None), ("http", 8000), ("metrics", 9000), (1234, 1234), ("nope", None)]
)
def test_of_several_ports_one_is_meant_by_name_or_by_number(wanted, port):
    item = pod("a")
    item["spec"]["containers"][0]["ports"].append({"name": "metrics", "containerPort": 9000})
    assert one(item, port=wanted).facts["port"] == port


def test_the_only_port_may_be_that_of_a_sidecar_but_not_one_of_udp():
    item = pod("a")
    item["spec"]["containers"][0]["ports"] = [{"containerPort": 53, "protocol": "UDP"}]
    item["spec"]["initContainers"] = [
        {"restartPolicy": "Always", "ports": [{"containerPort": 8001}]},
        {"ports": [{"containerPort": 8002}]},
    ]
    assert one(item).facts["port"] == 8001


def test_a_slice_for_all_ports_has_none_that_could_be_meant():
    item = endpoint_slice("s", endpoint("10.0.0.7"), ports=[{"name": "", "port": None}])
    assert one(item, resource=SLICES).facts["port"] is None
    assert one(item, resource=SLICES, port=8000).facts["port"] == 8000


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_finished_is_no_server(phase):
    item = pod("a")
    item["status"]["phase"] = phase
    assert list(servers_of(item, config())) == []


def test_a_deleted_pod_is_leaving_and_killed_at_its_deletion_timestamp():
    server = one(pod("a", deletionTimestamp="2026-11-30T01:00:00Z"))
    assert (server.leaving, server.gone_at) == (True, datetime(2026, 11, 30, 1, tzinfo=UTC))


STAMPS = ["soon", "2026-11-30T01:00:00", 7, "", "9999-99-99T00:00:00Z", "0001-01-01T00:00:00+14:00"]


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_deletion_timestamp_that_is_no_instant_still_means_leaving(stamp):
    server = one(pod("a", deletionTimestamp=stamp))
    assert (server.leaving, server.gone_at) == (True, None)


def test_a_pod_that_is_about_to_be_evicted_is_leaving():
    item = pod("a")
    item["status"] |= conditions(Ready=True, DisruptionTarget=True)
    assert one(item).leaving


@pytest.mark.parametrize(
    ("states", "ready", "leaving"),
    [
        ({"ready": True, "serving": True, "terminating": False}, True, False),
        ({"ready": None, "serving": None, "terminating": None}, True, False),
        ({"ready": False, "serving": False, "terminating": False}, False, False),
        ({"ready": False, "serving": True, "terminating": True}, True, True),
        ({"ready": False, "serving": False, "terminating": True}, False, True),
        ({"ready": True, "serving": True, "terminating": True}, True, True),  # publishNotReadyAddresses
    ],
)
def test_the_conditions_of_an_endpoint_say_whether_it_serves_and_whether_it_leaves(states, ready, leaving):
    server = one(endpoint_slice("s", endpoint("10.0.0.7", "a", **states)), resource=SLICES)
    assert (server.ready, server.leaving) == (ready, leaving)


@pytest.mark.parametrize("resource", ["pods", SLICES])
@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_garbage_anywhere_in_an_object_is_a_fact_that_is_not_known(resource, garbage):
    whole = pod("a") if resource == "pods" else endpoint_slice("s", endpoint("10.0.0.7", "a"))
    paths = [("metadata",), ("spec",), ("status",), ("endpoints",), ("ports",), ("addressType",)]
    paths += [
        ("metadata", "labels"),
        ("metadata", "uid"),
        ("status", "conditions"),
        ("status", "podIP"),
        ("status", "podIPs"),
    ]
    paths += [("spec", "containers"), ("spec", "nodeName"), ("status", "phase"), ("metadata", "deletionTimestamp")]
    for path in paths:
        item = pod("a") | endpoint_slice("s", endpoint("10.0.0.7", "a")) | whole
        holder = item
        for step in path[:-1]:
            holder[step] = dict(holder.get(step, {}))
            holder = holder[step]
        holder[path[-1]] = garbage
        Roll(config()).rows(servers_of(item, config(resource=resource)))


# --- rows


def test_a_server_gets_a_row_when_it_is_ready_and_none_before():
    roll = Roll(config())
    assert rows(roll, pod("a", ready=False)) == []
    (row,) = rows(roll, pod("a"))
    assert (row.url, row.draining, row.drain_deadline) == ("http://10.0.0.7:8000/v1", None, None)


def test_a_server_that_was_ready_and_is_not_any_more_drains():
    roll = Roll(config())
    rows(roll, pod("a"))
    (row,) = rows(roll, pod("a", ready=False))
    assert row.draining is True
    (row,) = rows(roll, pod("a"))
    assert row.draining is None


def test_what_a_server_was_is_forgotten_with_it():
    roll = Roll(config())
    rows(roll, pod("a"))
    assert rows(roll) == []
    assert rows(roll, pod("a", ready=False)) == []


def test_a_server_that_is_deleted_before_it_was_ready_gets_no_row():
    assert rows(Roll(config()), pod("a", None, ready=False, deletionTimestamp="2026-11-30T01:00:00Z")) == []


def test_a_deleted_server_drains_until_its_deadline_also_when_it_is_not_ready_any_more():
    roll, stamp = Roll(config()), "2026-11-30T01:00:00Z"
    for ready in (True, False):
        (row,) = rows(roll, pod("a", ready=ready, deletionTimestamp=stamp))
        assert (row.draining, row.drain_deadline) == (True, datetime(2026, 11, 30, 1, tzinfo=UTC))


def test_a_server_in_two_slices_has_one_row_and_leaves_when_one_of_them_says_so():
    first, second = endpoint_slice("s1", endpoint("10.0.0.7", "a")), endpoint_slice("s2", endpoint("10.0.0.7", "a"))
    roll = Roll(config())
    assert [row.draining for row in rows(roll, first, second, resource=SLICES)] == [None]
    second = endpoint_slice("s2", endpoint("10.0.0.7", "a", ready=False, terminating=True))
    assert [row.draining for row in rows(roll, first, second, resource=SLICES)] == [True]


@pytest.mark.parametrize("states", [(True, False), (False, True)])
def test_a_server_in_two_slices_is_ready_when_one_of_them_says_so(states):
    slices = [endpoint_slice(f"s{ready}", endpoint("10.0.0.7", "a", ready=ready, serving=ready)) for ready in states]
    assert [row.draining for row in rows(Roll(config()), *slices, resource=SLICES)] == [None]


def test_a_server_with_a_slice_for_each_family_has_one_row_of_ipv4_or_of_the_wanted_family():
    both = [
        endpoint_slice("s6", endpoint("fd00::7", "a"), family="IPv6"),
        endpoint_slice("s4", endpoint("10.0.0.7", "a")),
    ]
    assert [row.url for row in rows(Roll(config()), *both, resource=SLICES)] == ["http://10.0.0.7:8000/v1"]
    only = rows(Roll(config()), *both, resource=SLICES, ip_family="IPv6")
    assert [row.url for row in only] == ["http://[fd00::7]:8000/v1"]


def test_the_order_of_rows_does_not_depend_on_the_order_of_objects():
    items = [pod(name, f"10.0.0.{i}") for i, name in enumerate("cab")]
    assert rows(Roll(config()), *items) == rows(Roll(config()), *reversed(items))


def test_a_server_without_a_fact_that_the_row_needs_has_a_row_that_says_so_and_the_others_theirs():
    bare = pod("bare", "10.0.0.9", labels={"app": "vllm"})
    full = pod("full", labels={"app": "vllm", "model": "m"})
    first, second = rows(Roll(config(model="{label.model}")), bare, full)
    assert "label.model" in str(first.model)
    assert second.model == "m"
