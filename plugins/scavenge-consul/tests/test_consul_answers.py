"""What answers are worth, and the rows that they become: without any I/O."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scavenge_consul import ConsulConfig
from scavenge_consul.answers import Answer, Unsure, check_answer
from scavenge_consul.instances import Instances, State, parse_instances
from scavenge_consul.pacing import Pace, Watch
from scavenge_consul.stored import parse_rows

from scavenge.plugin import Listing

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["Node", "Service", "Checks", "ID", "Tags", "Meta", "Port", "x"]), inner)
    ),
    max_leaves=12,
)
TEMPLATE = {"endpoint_id": "pool", "model": "{meta.model|m}", "url": "http://{address}:{port}/v1"}


def entry(node: str = "n1", *statuses: str, address: str = "", port: object = 8000, **service: Any) -> dict[str, Any]:
    checks = [{"CheckID": f"c{n}", "ServiceID": f"llm-{node}", "Status": one} for n, one in enumerate(statuses)]
    return {
        "Node": {"Node": node, "Address": "10.0.0.1", "Datacenter": "dc1", "Meta": {"rack": "r1"}},
        "Service": {"ID": f"llm-{node}", "Service": "llm", "Address": address, "Port": port, **service},
        "Checks": checks,
    }


def answer(*entries: Any, **headers: str) -> Answer:
    return Answer(200, {"x-consul-index": "7", **headers}, json.dumps(entries).encode())


def reader(anonymous: bool = False, **keys: Any) -> Instances:
    return Instances(ConsulConfig(service="llm", **{**TEMPLATE, **keys}), "service llm", anonymous)


class one_line_at_most:  # noqa: N801  # reads as a statement
    """What is raised inside is an ``Unsure`` with one line of text, or nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, Unsure) and len(str(error).splitlines()) == 1


def rows(listing: Listing) -> list[Any]:
    return list(listing.endpoints)


def test_an_instance_without_an_address_has_that_of_its_node():
    assert [row.url for row in rows(reader().read(answer(entry())))] == ["http://10.0.0.1:8000/v1"]


@pytest.mark.parametrize("address", ["fd00::1", "[fd00::1]"])
def test_an_ipv6_address_stands_in_brackets(address):
    (row,) = rows(reader().read(answer(entry(address=address))))
    assert row.url == "http://[fd00::1]:8000/v1"


def test_every_fact_has_its_place_in_a_row():
    texts = "{address} {dc} {id} {meta.a} {node} {node_meta.rack} {port} {service} {tag.gpu}"
    one = entry(address="h", Tags=["blue", "gpu=h100", "gpu=a100"], Meta={"a": "b"})
    (row,) = rows(reader(model=texts, max_concurrent="{port}").read(answer(one)))
    assert row.model == "h dc1 llm-n1 b n1 r1 8000 llm h100"
    assert row.max_concurrent == 8000


@pytest.mark.parametrize("port", [0, -1, None, True, "8000", 80.5])
def test_an_instance_without_a_port_costs_itself_only(port):
    good, bad = rows(reader().read(answer(entry("n2", address="x"), entry("n3", port=port))))
    assert good.url == "http://x:8000/v1"
    assert str(bad.url) == "a text with {port} in it, which is not known of this server"


def test_the_worst_check_tells_how_an_instance_is():
    def state(*checks: tuple[str, str, str]) -> State:
        made = [{"CheckID": name, "ServiceID": of, "Status": status} for name, of, status in checks]
        (one,) = parse_instances(json.dumps([{**entry(), "Checks": made}]).encode())
        return one.state

    assert state() is State.WELL
    assert state(("serfHealth", "", "passing"), ("c", "llm-n1", "warning")) is State.WELL
    assert state(("serfHealth", "", "critical"), ("c", "llm-n1", "passing")) is State.CRITICAL
    assert state(("c", "llm-n1", "a new word")) is State.CRITICAL
    assert state(("c", "another", "critical")) is State.WELL
    assert state(("c", "llm-n1", "critical"), ("_node_maintenance", "", "critical")) is State.MAINTENANCE
    assert state(("_service_maintenance:llm-n1", "llm-n1", "critical")) is State.MAINTENANCE


def test_an_instance_in_maintenance_is_listed_from_the_first_on():
    one = entry("n1", "passing")
    one["Checks"].append({"CheckID": "_node_maintenance", "ServiceID": "", "Status": "critical"})
    assert [row.draining for row in rows(reader().read(answer(one)))] == [True]


def test_one_that_was_well_drains_until_it_is_gone_and_comes_back_as_a_new_one():
    view = reader()
    assert [row.draining for row in rows(view.read(answer(entry("n1", "passing"))))] == [None]
    assert [row.draining for row in rows(view.read(answer(entry("n1", "critical"))))] == [True]
    assert rows(view.read(answer())) == []
    assert rows(view.read(answer(entry("n1", "critical")))) == []


def test_a_server_that_is_registered_twice_is_listed_once_as_its_healthier_self():
    view = reader()
    twice = [entry("n1", "passing", address="x"), entry("n2", "passing", address="x")]
    view.read(answer(*twice))
    twice[0]["Checks"][0]["Status"] = "critical"
    (row,) = rows(view.read(answer(*twice)))
    assert row.draining is None


def test_the_order_of_an_answer_does_not_matter():
    entries = [entry(f"n{n}", address=f"h{n}") for n in range(5)]
    assert reader().read(answer(*entries)) == reader().read(answer(*reversed(entries)))


def test_an_answer_that_is_not_believed_changes_nothing():
    view = reader()
    view.read(answer(entry("n1", "passing")))
    with pytest.raises(Unsure):
        view.read(answer(entry("n1", "critical"), {"Node": 1}))
    assert [row.draining for row in rows(view.read(answer(entry("n1", "critical"))))] == [True]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"Node": None}, "instance 1 of the answer has no Node"),
        ({"Service": []}, "instance 1 of the answer has no Service"),
        ({"Service": {"ID": 7, "Address": ""}}, "instance 1 of the answer has no text as ID"),
        ({"Service": {"ID": "a", "Address": "", "Tags": {}}}, "instance 1 of the answer has no list of Tags"),
        ({"Service": {"ID": "a", "Address": "", "Meta": 3}}, "instance 1 of the answer has no Meta"),
        ({"Checks": "passing"}, "instance 1 of the answer has no list of Checks"),
    ],
)
def test_an_entry_that_is_none_of_consuls_makes_the_whole_answer_none(broken, said):
    with pytest.raises(Unsure, match=said):
        reader().read(answer(entry(), {**entry(), **broken}))


def test_what_go_leaves_out_or_writes_as_null_is_empty():
    one = entry(Tags=None, Meta=None)
    one["Checks"] = None
    del one["Node"]["Meta"]
    assert len(rows(reader().read(answer(one)))) == 1


@pytest.mark.parametrize(
    ("anonymous", "policy", "believed"),
    [(False, "deny", True), (True, "allow", True), (True, "deny", False), (True, "", False)],
)
def test_an_empty_answer_counts_only_where_nothing_can_be_hidden(anonymous, policy, believed):
    headers = {"x-consul-default-acl-policy": policy} if policy else {}
    if believed:
        assert rows(reader(anonymous).read(answer(**headers))) == []
    else:
        with pytest.raises(Unsure, match="does not say whether it hides some"):
            reader(anonymous).read(answer(**headers))


@settings(max_examples=60)
@given(JSON | st.lists(JSON, max_size=3))
def test_no_json_whatsoever_raises_anything_else(value):
    with one_line_at_most():
        listing = reader().read(Answer(200, {}, json.dumps(value).encode()))
        assert isinstance(value, list)
        assert len(rows(listing)) <= len(value)


@given(st.binary(max_size=60) | st.text(alphabet='[]end pointx=1"\n', max_size=60).map(str.encode))
def test_no_stored_bytes_whatsoever_raise_anything_else(data):
    with one_line_at_most():
        assert isinstance(parse_rows(data, "key k"), list)


@given(st.text(max_size=30), st.integers(0, 999))
def test_no_headers_whatsoever_raise_anything_else(text, status):
    headers = dict.fromkeys(["x-consul-index", "x-consul-lastcontact", "x-consul-knownleader", "retry-after"], text)
    with one_line_at_most():
        assert check_answer(Answer(status, headers, text.encode("utf-8", "replace")), "service llm") >= 1


def test_stored_rows_stay_as_they_are():
    assert parse_rows(b"[[endpoint]]\nurl = 1\n[[endpoint]]\n", "key k") == [{"url": 1}, {}]
    assert parse_rows(b"# none\n", "key k") == []
    with pytest.raises(Unsure, match="list of tables"):
        parse_rows(b"[endpoint]\nurl = 1\n", "key k")


def test_an_index_below_1_counts_as_1():
    assert Answer(200, {"x-consul-index": "0"}, b"").index == 1


@given(st.lists(st.integers(1, 5)))
def test_an_index_that_goes_back_is_not_waited_on(indexes):
    watch, last = Watch(), 0
    for index in indexes:
        assert watch.note(index) is (index < last)
        assert watch.take() == (0 if index < last else index)
        assert watch.take() == 0
        last = index


@given(st.lists(st.floats(0, 3), min_size=3))
def test_no_more_than_the_burst_and_one_a_second_go_out(gaps):
    pace, now, sent = Pace(Random(0)), 0.0, []
    for gap in gaps:
        now = pace.next_at(now + gap)
        sent.append(now)
    for first, third in zip(sent, sent[2:], strict=False):
        assert third - first >= 1 - 1e-9


@given(st.integers(0, 2**32), st.integers(1, 40), st.floats(0, 1e9))
def test_a_back_off_is_never_longer_than_half_of_a_sources_time(seed, failures, retry_after_s):
    pace = Pace(Random(seed))
    for _ in range(failures):
        pace.on_failure(100.0, retry_after_s)
    assert 100.5 <= pace.next_at(100.0) <= 130
    pace.on_answer()
    pace.on_failure(200.0, 0.0)
    assert 200.5 <= pace.next_at(200.0) <= 201
