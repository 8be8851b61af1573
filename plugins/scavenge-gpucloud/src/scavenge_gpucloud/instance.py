"""What a cloud tells of one instance, and what of it becomes a row. Pure: the time is an argument.

Decides which instances are listed, and which of them are about to go. Knows no cloud.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address

import attrs

from scavenge.plugin import EndpointSpec, EndpointTemplate
from scavenge_gpucloud.pages import Item, Unclear

_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")

_FAR_FUTURE = 1e11


@attrs.frozen
class Instance:
    """One instance: what rows are made of, and what is known of its fate."""

    id: str
    name: str
    status: str
    """The cloud's own word for how it is."""
    address: str | None = None
    """As it stands in a URL."""
    ports: Mapping[int, int] = attrs.field(factory=dict)
    """The port outside by the port in the container."""
    gpu: str | None = None
    gpu_count: int | None = None
    interruptible: bool | None = None
    ready: bool = True
    """Whether the cloud has set it up; what runs on it is the health check's business."""
    leaving: bool = False
    """Whether it runs still and is being taken away."""
    ends_at: float | None = None
    """When the rental ends, in seconds since 1970."""

    @property
    def reachable(self) -> bool:
        return self.address is not None and bool(self.ports)

    @property
    def facts(self) -> Mapping[str, object]:
        """By the names that stand in the texts of a template."""
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "address": self.address,
            "gpu": self.gpu,
            "gpu_count": self.gpu_count,
            "interruptible": None if self.interruptible is None else str(self.interruptible).lower(),
            **{f"port.{inside}": outside for inside, outside in self.ports.items()},
        }


def read_instances(items: Iterable[Item], read: Callable[[Item], Instance]) -> list[Instance]:
    """The instances that can be understood, in the order of their ids.

    One that cannot be understood is left out. When none can, the cloud speaks otherwise than documented, and that must
    not look as if all were gone: raises :class:`Unclear`.
    """
    found: list[Instance] = []
    trouble: Unclear | None = None
    for item in items:
        try:
            found.append(read(item))
        except Unclear as exc:
            trouble = exc
    if trouble is not None and not found:
        raise trouble
    return sorted(found, key=lambda one: (len(one.id), one.id))


def rows(
    instances: Iterable[Instance],
    template: EndpointTemplate,
    now: float,
    *,
    name_prefix: str = "",
    statuses: Sequence[str],
    drain_before_s: float = 0.0,
) -> list[EndpointSpec]:
    """The rows of the instances whose name begins so and whose status is one of these.

    An instance without the address or the ports that its URL needs has not started wholly yet, and is not listed. One
    that has them, but not the one that the URL needs, is listed: its row says what is missing.
    """
    wanted = {status.casefold() for status in statuses}
    listed: list[EndpointSpec] = []
    for one in instances:
        up = one.ready and one.status.casefold() in wanted
        if not one.name.startswith(name_prefix) or not (up or one.leaving):
            continue
        row = template.row(one.facts, draining=one.leaving, drain_deadline=_deadline(one, now, drain_before_s))
        if isinstance(row.url, str) or (one.reachable and not one.leaving):
            listed.append(row)
    return listed


def _deadline(one: Instance, now: float, drain_before_s: float) -> datetime | None:
    """The end of the rental when it is near. One that has passed is none: the rental went on."""
    if one.ends_at is None or not 0 < one.ends_at - now <= drain_before_s:
        return None
    return datetime.fromtimestamp(one.ends_at, UTC)


# --- reading the fields of an item; what is not of the documented type is not known


def text(item: Item, key: str) -> str | None:
    """A text that says something."""
    found = item.get(key)
    return found.strip() or None if isinstance(found, str) else None


def flag(item: Item, key: str) -> bool | None:
    found = item.get(key)
    return found if isinstance(found, bool) else None


def count(item: Item, key: str) -> int | None:
    found = item.get(key)
    return found if type(found) is int and found > 0 else None


def instant(item: Item, key: str) -> float | None:
    """Seconds since 1970, of a time that a ``datetime`` can hold."""
    found = item.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if 0 < found < _FAR_FUTURE else None


def table(item: Item, key: str) -> Item:
    found = item.get(key)
    return found if isinstance(found, Mapping) else {}


def host(value: object) -> str | None:
    """An address as it stands in a URL: brackets around IPv6; ``None`` for what cannot be dialled."""
    if not isinstance(value, str):
        return None
    try:
        address = ip_address(value.strip())
    except ValueError:
        return value.strip() if _HOST_NAME.fullmatch(value.strip()) else None
    if address.is_unspecified:
        return None
    return f"[{address}]" if address.version == 6 else str(address)


def port(value: object) -> int | None:
    """A port number, also one written as a text."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,5}", value.strip()):
        value = int(value)
    return value if type(value) is int and 0 < value < 65536 else None


def mapped(pairs: Iterable[tuple[object, object]]) -> dict[int, int]:
    """Ports inside and outside; of several for one inside, the first. Pairs that are no ports are left out."""
    found: dict[int, int] = {}
    for inside, outside in ((port(inside), port(outside)) for inside, outside in pairs):
        if inside is not None and outside is not None:
            found.setdefault(inside, outside)
    return found
