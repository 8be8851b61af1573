"""What objects of the Kubernetes API say of the servers behind them. Pure, and surprised by nothing.

An object may hold anything where something else was expected; that is a fact which is not known, and costs that server
only. Knows neither how objects are fetched nor what becomes of the servers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import attrs

from scavenge_kubernetes.config import SLICES, KubernetesConfig

_FINISHED = ("Succeeded", "Failed")
"""Phases of a pod whose containers have ended for good."""


@attrs.frozen
class Server:
    """One server: who it is, its facts, and whether it serves or is about to go."""

    identity: str
    """The same in every object that speaks of it, and of no other server ever."""
    facts: Mapping[str, object]
    ready: bool
    leaving: bool
    gone_at: datetime | None = None
    """When it will be killed, where that is known."""
    family: int = 0
    """4 or 6, the version of its address; 0 for a host name."""


def servers_of(item: Mapping[str, object], config: KubernetesConfig) -> Iterator[Server]:
    """The servers that a pod or an EndpointSlice speaks of."""
    return _of_slice(item, config) if config.resource == SLICES else _of_pod(item, config)


def _of_pod(pod: Mapping[str, object], config: KubernetesConfig) -> Iterator[Server]:
    meta, spec, status = _table(pod.get("metadata")), _table(pod.get("spec")), _table(pod.get("status"))
    if status.get("phase") in _FINISHED:
        return
    conditions = {one.get("type"): one.get("status") for one in _tables(status.get("conditions"))}
    address, family = _pod_address(status, config.ip_family)
    deleted = meta.get("deletionTimestamp")
    facts = {
        **_named_facts(meta),
        "address": address,
        "port": _port(_pod_ports(spec), "containerPort", config.port),
        "name": _text(meta.get("name")),
        "node": _text(spec.get("nodeName")),
    }
    yield Server(
        identity=_text(meta.get("uid")) or f"{meta.get('namespace')}/{meta.get('name')}",
        facts=facts,
        ready=conditions.get("Ready") == "True",
        # a pod that is being evicted, preempted or shut down with its node is told before it is deleted
        leaving=deleted is not None or conditions.get("DisruptionTarget") == "True",
        gone_at=_instant(deleted),
        family=family,
    )


def _of_slice(item: Mapping[str, object], config: KubernetesConfig) -> Iterator[Server]:
    meta, kind = _table(item.get("metadata")), item.get("addressType")
    if config.ip_family not in (None, kind):
        return
    shared = {**_named_facts(meta), "port": _port(_tables(item.get("ports")), "port", config.port)}
    for endpoint in _tables(item.get("endpoints")):
        raw = next(_texts(endpoint.get("addresses")), None)
        address, family = _host(raw)
        target, conditions = _table(endpoint.get("targetRef")), _table(endpoint.get("conditions"))
        facts = {
            **shared,
            "address": address,
            "name": _text(target.get("name")) or _text(endpoint.get("hostname")),
            "node": _text(endpoint.get("nodeName")),
        }
        yield Server(
            identity=_text(target.get("uid")) or f"{meta.get('namespace')}/{raw}",
            facts=facts,
            # one that is terminating is never "ready", but goes on serving for a while
            ready=conditions.get("ready") in (True, None) or conditions.get("serving") is True,
            leaving=conditions.get("terminating") is True,
            family=family,
        )


def _named_facts(meta: Mapping[str, object]) -> dict[str, object]:
    facts: dict[str, object] = {"namespace": _text(meta.get("namespace"))}
    for kind, key in (("label", "labels"), ("annotation", "annotations")):
        facts |= {f"{kind}.{name}": _text(value) for name, value in _table(meta.get(key)).items()}
    return facts


# --- addresses


def _pod_address(status: Mapping[str, object], wanted: str | None) -> tuple[str | None, int]:
    """The pod's own address, or its first one of the wanted family."""
    raw = [status.get("podIP"), *(one.get("ip") for one in _tables(status.get("podIPs")))]
    hosts = [_host(_text(one)) for one in raw if _text(one)]
    return next((host for host in hosts if wanted in (None, f"IPv{host[1]}")), (None, 0))


def _host(address: str | None) -> tuple[str | None, int]:
    """An address as URLs write it, and the version of its protocol."""
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return address, 0
    return (f"[{address}]", 6) if parsed.version == 6 else (address, 4)


# --- ports


def _pod_ports(spec: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """The ports of the containers, and of those that are started first and stay (sidecars)."""
    sidecars = [one for one in _tables(spec.get("initContainers")) if one.get("restartPolicy") == "Always"]
    for container in (*_tables(spec.get("containers")), *sidecars):
        yield from _tables(container.get("ports"))


def _port(ports: Iterator[Mapping[str, object]], key: str, wanted: int | str | None) -> int | None:
    """The wanted port: a number stands for itself, a name is looked up, and without either the only one is meant."""
    if isinstance(wanted, int):
        return wanted
    named = [port for port in ports if port.get("protocol", "TCP") == "TCP" and wanted in (None, port.get("name"))]
    numbers = {number for port in named if type(number := port.get(key)) is int}
    return numbers.pop() if len(numbers) == 1 else None


# --- values that may be anything


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _tables(value: object) -> Iterator[Mapping[str, object]]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())


def _texts(value: object) -> Iterator[str]:
    return (one for one in value if isinstance(one, str)) if isinstance(value, list) else iter(())


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _instant(value: object) -> datetime | None:
    """An instant of RFC 3339, in UTC."""
    try:
        instant = datetime.fromisoformat(value) if isinstance(value, str) else None
        return None if instant is None or instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):  # no instant, or one beyond the calendar
        return None
