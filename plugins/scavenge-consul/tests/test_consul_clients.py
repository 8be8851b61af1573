"""The stand-in of the agent, seen by a client that others wrote: what the tests rely on is what Consul's clients do."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import consul
import pytest
from consul_kit import start_agent, stop_agent


@pytest.fixture
def client() -> Iterator[consul.Consul]:
    process, port = start_agent()
    made = consul.Consul(host="127.0.0.1", port=port)
    yield made
    made.http.session.close()
    stop_agent(process)


def ids(entries: list[dict[str, dict[str, str]]]) -> set[str]:
    return {entry["Service"]["ID"] for entry in entries}


def test_instances_come_change_and_go(client):
    index, entries = client.health.service("llm")
    assert entries == []
    assert int(index) > 0
    client.agent.service.register(
        "llm", service_id="a", address="10.0.0.1", port=8000, tags=["gpu"], meta={"Name": "x"}
    )
    client.agent.service.register("llm", service_id="b", check=consul.Check.ttl("10s"))
    index, entries = client.health.service("llm")
    assert ids(entries) == {"a", "b"}
    assert entries[0]["Service"]["Meta"] == {"Name": "x"}
    assert ids(client.health.service("llm", passing=True)[1]) == {"a"}
    assert ids(client.health.service("llm", tag="gpu")[1]) == {"a"}
    client.agent.check.ttl_pass("service:b:0")
    assert ids(client.health.service("llm", passing=True)[1]) == {"a", "b"}
    client.agent.service.maintenance("a", enable="true", reason="driver")
    assert ids(client.health.service("llm", passing=True)[1]) == {"b"}
    client.agent.service.maintenance("a", enable="false")
    client.agent.maintenance("true", reason="node")
    assert client.health.service("llm", passing=True)[1] == []
    client.agent.maintenance("false")
    for service_id in ("a", "b"):
        client.agent.service.deregister(service_id)
    gone, entries = client.health.service("llm")
    assert entries == []
    assert int(gone) > int(index)


def test_a_blocking_query_ends_with_a_change_and_not_with_another_services(client):
    client.agent.service.register("llm", service_id="a")
    index, _ = client.health.service("llm")
    client.agent.service.register("another")
    client.kv.put("k", "v")
    assert client.health.service("llm", index=index, wait="100ms")[0] == index
    registers = threading.Timer(0.2, client.agent.service.register, ["llm"], {"service_id": "b"})
    registers.start()
    moved, entries = client.health.service("llm", index=index, wait="60s")
    registers.join()
    assert ids(entries) == {"a", "b"}
    assert int(moved) > int(index)


def test_keys_are_stored_waited_for_and_deleted(client):
    index, missing = client.kv.get("a/b")
    assert missing is None
    puts = threading.Timer(0.2, client.kv.put, ["a/b", "text"])
    puts.start()
    index, value = client.kv.get("a/b", index=index, wait="60s")
    puts.join()
    assert value["Value"] == b"text"
    assert int(value["ModifyIndex"]) == int(index)
    client.kv.delete("a/b")
    assert client.kv.get("a/b")[1] is None


def test_what_cannot_be_answered_is_refused(client):
    with pytest.raises(consul.ConsulException, match="No path to datacenter"):
        client.health.service("llm", dc="elsewhere")
    with pytest.raises(consul.ConsulException, match="Invalid wait time"):
        client.health.service("llm", index="1", wait="soon")
    with pytest.raises(consul.ConsulException, match="Invalid index"):
        client.health.service("llm", index="-1")
