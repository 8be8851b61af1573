"""The instances of a service in an answer of ``/v1/health/service``, and the rows that they become. Pure.

What becomes of an instance follows from the worst of its checks, those of its node included, as Consul counts them:

- passing or warning: listed. A warning is no reason to stay away; how the server does is seen by its requests;
- maintenance: listed as draining;
- critical: listed as draining if it has been well since the source was opened, else not listed. A server that loads its
  model is critical and not ready yet; one that was well takes no new work, and keeps what it has until that ends or its
  probes say that it is dead. So checks that all fail at once (their agent restarts) take no server away.

Invariant: ``_well`` has only instances that the last answer had.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import attrs

from scavenge.plugin import EndpointSpec, EndpointTemplate, Listing
from scavenge_consul.answers import Answer, Unsure, check_empty


class State(Enum):
    """The worst of an instance's checks."""

    WELL = "well"
    MAINTENANCE = "maintenance"
    CRITICAL = "critical"


@attrs.frozen
class Instance:
    """One instance of a service: who it is, how it is, and its facts."""

    node: str
    id: str
    state: State
    facts: Mapping[str, object]


@attrs.define
class Instances:
    """Reads one answer after the other; knows which instances have been well."""

    template: EndpointTemplate
    asked_for: str
    anonymous: bool
    _well: frozenset[tuple[str, str]] = frozenset()

    def read(self, answer: Answer) -> Listing:
        """The rows of the instances in a good answer. Raises :class:`Unsure`, and then nothing has changed."""
        instances = parse_instances(answer.body)
        if not instances:
            check_empty(answer, self.asked_for, anonymous=self.anonymous)
        well = {(one.node, one.id) for one in instances if one.state is not State.CRITICAL}
        self._well = frozenset(well | {(one.node, one.id) for one in instances} & self._well)
        return Listing(list(self._rows(instances)), where=self.asked_for)

    def _rows(self, instances: list[Instance]) -> Iterator[EndpointSpec]:
        """Their rows; of several with the same pool and URL (a server registered twice) the healthiest."""
        seen = set()
        for one in sorted(instances, key=lambda one: (one.state is not State.WELL, one.node, one.id)):
            if (one.node, one.id) not in self._well:
                continue
            row = self.template.row(one.facts, draining=one.state is not State.WELL)
            name = (row.endpoint_id, row.url)
            if name not in seen:
                yield row
            if isinstance(row.url, str):
                seen.add(name)


def parse_instances(body: bytes) -> list[Instance]:
    """The instances. Raises :class:`Unsure` unless *body* is the JSON that Consul writes."""
    try:
        entries = json.loads(body)
    except (ValueError, RecursionError):
        raise Unsure("the answer is no JSON, so it is not Consul's; correct `address`, or the proxy there") from None
    if not isinstance(entries, list):
        raise Unsure("the answer is no list of instances, so it is not Consul's; correct `address`")
    return [_instance(index, entry) for index, entry in enumerate(entries)]


def _instance(index: int, entry: object) -> Instance:
    where = f"instance {index} of the answer"
    node, service = _table(entry, "Node", where), _table(entry, "Service", where)
    name, id_ = _text(node, "Node", where), _text(service, "ID", where)
    address = _text(service, "Address", where) or _text(node, "Address", where)
    port = service.get("Port")
    facts: dict[str, object] = {
        "address": f"[{address}]" if ":" in address and not address.startswith("[") else address,
        "dc": node.get("Datacenter"),
        "id": id_,
        "node": name,
        "port": port if type(port) is int and port > 0 else None,
        "service": service.get("Service"),
    }
    facts |= {f"tag.{key}": value for key, value in _pairs(service, where)}
    facts |= {f"meta.{key}": value for key, value in _table(service, "Meta", where).items()}
    facts |= {f"node_meta.{key}": value for key, value in _table(node, "Meta", where).items()}
    return Instance(name, id_, _state(entry, id_, where), facts)


def _pairs(service: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    """The tags that read ``key=value``; of several with one key the first."""
    for tag in reversed(_list(service, "Tags", where)):
        if isinstance(tag, str) and "=" in tag:
            key, _, value = tag.partition("=")
            yield key, value


def _state(entry: Any, service_id: str, where: str) -> State:
    states = set()
    for check in _list(entry, "Checks", where):
        if not isinstance(check, Mapping) or check.get("ServiceID") not in ("", None, service_id):
            continue
        name = str(check.get("CheckID"))
        if name == "_node_maintenance" or name.startswith("_service_maintenance:"):
            return State.MAINTENANCE
        states.add(check.get("Status"))
    return State.WELL if states <= {"passing", "warning"} else State.CRITICAL


def _table(holder: object, key: str, where: str) -> Mapping[str, Any]:
    """A table in an answer. Go writes an empty ``Meta`` as null, and old versions have none."""
    found = holder.get(key) if isinstance(holder, Mapping) else None
    if found is None and key == "Meta":
        return {}
    if not isinstance(found, Mapping):
        raise Unsure(f"{where} has no {key}, so it is not Consul's; correct `address`")
    return found


def _list(holder: Mapping[str, Any], key: str, where: str) -> list[Any]:
    found = holder.get(key)
    if found is not None and not isinstance(found, list):
        raise Unsure(f"{where} has no list of {key}, so it is not Consul's; correct `address`")
    return found or []


def _text(holder: Mapping[str, Any], key: str, where: str) -> str:
    found = holder.get(key)
    if not isinstance(found, str):
        raise Unsure(f"{where} has no text as {key}, so it is not Consul's; correct `address`")
    return found
