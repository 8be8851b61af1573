"""The row of each instance: what EC2 tells of it, filled into the template. Pure.

It decides which instances are servers: those that run, and those that are about to end. One that is not up yet, or
that has ended, is not listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import attrs

from scavenge.plugin import EndpointSpec
from scavenge_ec2.config import Ec2Config
from scavenge_ec2.departures import LEAVING_STATES, Departures, state_of, tags_of

LISTED_STATES = ("running", *sorted(LEAVING_STATES))
"""The states of instances that are asked for."""


@attrs.frozen
class Answer:
    """What EC2 answered: instances and spot requests as the SDK gives them."""

    instances: tuple[Mapping[str, Any], ...]
    requests: tuple[Mapping[str, Any], ...]
    """The spot requests that tell of a notice; none where nobody asked."""
    at: datetime
    """When, by this machine's clock."""
    ahead: timedelta = timedelta()
    """How much this machine's clock is ahead of EC2's."""


def rows_of(answer: Answer, config: Ec2Config, departures: Departures) -> list[EndpointSpec]:
    """The rows of the instances of an answer, in the order of their ids; *departures* learns what it says."""
    known = {
        one["InstanceId"]: one for one in answer.instances if one.get("InstanceId")
    }  # the last page's is the newest
    instances = {name: known[name] for name in sorted(known) if state_of(known[name]) in LISTED_STATES}
    leaving = departures.of(instances.values(), answer.requests, answer.at, answer.ahead)
    rows = []
    for instance_id, instance in instances.items():
        departure = leaving.get(instance_id)
        deadline = None if departure is None else departure.deadline
        row = config.row(facts_of(instance), draining=departure is not None, drain_deadline=deadline)
        if state_of(instance) not in LEAVING_STATES or isinstance(row.url, str):
            rows.append(row)  # one that ends loses its public address, and with it what is known of its server
    return rows


def facts_of(instance: Mapping[str, Any]) -> dict[str, object]:
    """The facts of an instance by their names in a template."""
    facts = {name: instance.get(key) for name, key in _FACTS.items()}
    facts["az"] = instance.get("Placement", {}).get("AvailabilityZone")
    facts["lifecycle"] = instance.get("InstanceLifecycle") or "on-demand"
    return {**facts, **{f"tag.{key}": value for key, value in tags_of(instance).items()}}


_FACTS = {
    "private_ip": "PrivateIpAddress",
    "public_ip": "PublicIpAddress",
    "ipv6": "Ipv6Address",
    "private_dns": "PrivateDnsName",
    "public_dns": "PublicDnsName",
    "instance_id": "InstanceId",
    "instance_type": "InstanceType",
}
