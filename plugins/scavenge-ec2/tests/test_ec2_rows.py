"""What of an instance stands in its row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs
from ec2_double import TEMPLATE
from scavenge_ec2.config import Ec2Config
from scavenge_ec2.departures import Departures
from scavenge_ec2.rows import Answer, facts_of, rows_of

from scavenge.plugin import EndpointSpec

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
CONFIG = Ec2Config(filters={"tag:role": "vllm"}, **{**TEMPLATE, "url": "http://{public_ip}:8000/v1"})
WHOLE = {
    "InstanceId": "i-1",
    "InstanceType": "g5.xlarge",
    "InstanceLifecycle": "spot",
    "State": {"Name": "running", "Code": 16},
    "Placement": {"AvailabilityZone": "us-east-1a"},
    "PrivateIpAddress": "10.0.0.1",
    "PublicIpAddress": "192.0.2.1",
    "Ipv6Address": "2001:db8::1",
    "PrivateDnsName": "private.internal",
    "PublicDnsName": "public.example",
    "Tags": [{"Key": "model", "Value": "m"}, {"Key": "aws:autoscaling:groupName", "Value": "g"}],
}


def rows(*instances: dict[str, Any], config: Ec2Config = CONFIG) -> list[EndpointSpec]:
    return rows_of(Answer(instances, (), NOW), config, Departures("drain"))


def test_every_fact_that_a_template_may_name_is_told():
    facts = facts_of(WHOLE)
    assert {name for name in facts if not name.startswith("tag.")} == set(Ec2Config.FACTS) - {"tag."}
    assert all(facts.values())
    assert facts["tag.aws:autoscaling:groupName"] == "g"
    assert facts_of({"InstanceId": "i-1"})["lifecycle"] == "on-demand"


def test_a_tag_with_a_colon_in_its_name_can_be_a_placeholder():
    config = attrs.evolve(CONFIG, endpoint_id="{tag.aws:autoscaling:groupName}")
    assert [row.endpoint_id for row in rows(WHOLE, config=config)] == ["g"]


def test_no_tag_hides_a_fact():
    instance = {**WHOLE, "Tags": [{"Key": "../private_ip", "Value": "evil"}, {"Key": "private_ip", "Value": "evil"}]}
    assert facts_of(instance)["private_ip"] == "10.0.0.1"


def test_an_instance_that_comes_twice_over_the_pages_is_one_row():
    later = {**WHOLE, "PublicIpAddress": "192.0.2.2"}
    assert [row.url for row in rows(WHOLE, later)] == ["http://192.0.2.2:8000/v1"]
    assert rows(WHOLE, {**WHOLE, "State": {"Name": "terminated"}}) == []


def test_the_order_of_the_pages_makes_no_difference():
    other = {**WHOLE, "InstanceId": "i-0", "PublicIpAddress": "192.0.2.2"}
    assert rows(WHOLE, other) == rows(other, WHOLE)


def test_a_running_instance_without_its_address_is_a_row_that_says_so():
    (row,) = rows({**WHOLE, "PublicIpAddress": ""})
    assert "public_ip" in str(row.url)
    assert not isinstance(row.url, str)


def test_one_that_shuts_down_and_has_lost_its_address_is_gone():
    assert rows({**WHOLE, "PublicIpAddress": None, "State": {"Name": "shutting-down"}}) == []


def test_what_has_no_id_or_no_state_is_passed_over():
    assert rows({}, {"InstanceId": ""}, {"InstanceId": "i-2"}, {**WHOLE, "State": {}}) == []
    assert rows({**WHOLE, "State": {"Name": "pending"}}, {**WHOLE, "State": {"Name": "a new one"}}) == []
