"""The three clouds: where each lists its instances, in what pages, and what the fields of an instance mean. Pure.

The forms are those of RunPod's REST API v1 (``GET /v1/pods``), Vast.ai's (``GET /api/v1/instances/``) and Prime
Intellect's (``GET /api/v1/pods/``), as their references and their own clients have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from scavenge_gpucloud.instance import Instance, count, flag, host, instant, mapped, table, text
from scavenge_gpucloud.pages import CursorPages, Item, OffsetPages, Pages, Unclear, WholeList, id_of


@attrs.frozen
class Cloud:
    """How one cloud is asked and understood."""

    service: str
    """Its name in messages."""
    path: str
    """Below the URL of the API."""
    pages: Callable[[], Pages]
    read: Callable[[Item], Instance]
    """Raises :class:`Unclear` for an item that says nothing of its status."""


def read_runpod(item: Item) -> Instance:
    """A pod. ``desiredStatus`` is ``RUNNING`` from the first moment; the address and the ports come when it runs.

    An interrupted spot pod is ``EXITED``, without notice. Ports of kind ``http`` are behind RunPod's own proxy and in
    no mapping.
    """
    status, gpu = text(item, "desiredStatus"), table(item, "gpu")
    if status is None:
        raise Unclear("a pod has no `desiredStatus`")
    return Instance(
        id=id_of(item) or "",
        name=text(item, "name") or "",
        status=status,
        address=host(item.get("publicIp")),
        ports=mapped(table(item, "portMappings").items()),
        gpu=text(gpu, "displayName") or text(table(item, "machine"), "gpuDisplayName") or text(gpu, "id"),
        gpu_count=count(gpu, "count") or count(item, "gpuCount"),
        interruptible=flag(item, "interruptible"),
    )


def read_vast(item: Item) -> Instance:
    """An instance. ``actual_status`` is the container's, ``intended_status`` the user's wish, ``cur_state`` the host's.

    A container that still runs is leaving when its user has stopped it, or when the host has taken the GPUs back
    because somebody else bids more: then one of the other two says so first.
    """
    if "actual_status" not in item:
        raise Unclear("an instance has no `actual_status`")
    status = text(item, "actual_status") or "provisioning"  # null: not yet there
    going = any(text(item, key) not in (None, "running") for key in ("intended_status", "cur_state", "next_state"))
    return Instance(
        id=id_of(item) or "",
        name=text(item, "label") or "",
        status=status,
        address=host(item.get("public_ipaddr")),
        ports=mapped(_vast_ports(table(item, "ports"))),
        gpu=text(item, "gpu_name"),
        gpu_count=count(item, "num_gpus"),
        interruptible=flag(item, "is_bid"),
        ready=not going,
        leaving=going and status == "running",
        ends_at=instant(item, "end_date"),
    )


def _vast_ports(ports: Item) -> list[tuple[object, object]]:
    """``{"8000/tcp": [{"HostPort": "40123"}, …]}``, as Docker has it; what is not TCP stays no number."""
    return [
        (name.removesuffix("/tcp"), binding.get("HostPort"))
        for name, bindings in ports.items()
        if isinstance(bindings, list)
        for binding in bindings
        if isinstance(binding, Mapping)
    ]


_PRIME_LEAVING = frozenset({"DELETING", "STOPPING", "TERMINATING"})


def read_prime(item: Item) -> Instance:
    """A pod. It is ``ACTIVE`` before its image is installed, which ``installationStatus`` tells.

    ``ip`` is a text, a list of one for each node (the first is the head), or ``[null]`` while there is none.
    """
    status = text(item, "status")
    if status is None:
        raise Unclear("a pod has no `status`")
    ips = item.get("ip")
    ports = item.get("primePortMapping")
    entries = [entry for entry in ports if isinstance(entry, Mapping)] if isinstance(ports, list) else []
    return Instance(
        id=id_of(item) or "",
        name=text(item, "name") or "",
        status=status,
        address=next(filter(None, map(host, ips if isinstance(ips, list) else [ips])), None),
        ports=mapped((entry.get("internal"), entry.get("external")) for entry in entries if _is_tcp(entry)),
        gpu=text(item, "gpuName"),
        gpu_count=count(item, "gpuCount"),
        interruptible=flag(item, "isSpot"),
        ready=text(item, "installationStatus") in (None, "FINISHED"),
        leaving=status.upper() in _PRIME_LEAVING,
    )


def _is_tcp(entry: Item) -> bool:
    return (text(entry, "protocol") or "TCP").upper() != "UDP"


RUNPOD = Cloud("RunPod", "pods", WholeList, read_runpod)
VAST = Cloud("Vast.ai", "api/v1/instances/", CursorPages, read_vast)
PRIME = Cloud("Prime Intellect", "api/v1/pods/", OffsetPages, read_prime)
