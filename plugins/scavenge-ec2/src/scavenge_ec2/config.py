"""The keys of a ``[[source]]`` of type ``ec2``. No key holds a secret: credentials come by the SDK's own chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

import attrs

from scavenge.plugin import EndpointTemplate


def _check_filters(config: object, field: attrs.Attribute[Any], filters: Mapping[str, str | list[str]]) -> None:
    if not filters:
        raise ValueError(
            'filters: name at least one, such as { "tag:role" = "vllm" }; without one, every instance would be listed'
        )
    if "instance-state-name" in filters:
        raise ValueError("filters: instance-state-name is set by the source itself; remove it")
    for name, value in filters.items():
        values = [value] if isinstance(value, str) else value
        if not name or not values or not all(values):
            raise ValueError(f'filters: "{name}" needs a name and at least one value, none of them empty')


def _check_not_empty(config: object, field: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and not value.strip():
        raise ValueError(f"{field.name}: empty; write a name, or remove this key")


def _check_endpoint_url(config: object, field: attrs.Attribute[Any], value: str | None) -> None:
    if value is None:
        return
    try:
        parts = urlsplit(value)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        right = False
    if not right:
        raise ValueError("endpoint_url: expected an http or https URL, such as https://ec2.eu-west-1.amazonaws.com")
    if "@" in parts.netloc:
        raise ValueError("endpoint_url: has a user in it; credentials come by the SDK's own chain, remove them here")


@attrs.frozen(kw_only=True)
class Ec2Config(EndpointTemplate):
    """Which instances there are to find, where, and what their rows are made of."""

    FACTS: ClassVar[tuple[str, ...]] = (
        "private_ip",
        "public_ip",
        "ipv6",
        "private_dns",
        "public_dns",
        "instance_id",
        "instance_type",
        "az",
        "lifecycle",
        "tag.",
    )

    filters: dict[str, str | list[str]] = attrs.field(validator=_check_filters)
    """Filters of DescribeInstances by their own names; an instance has to pass all of them."""
    region: str | None = attrs.field(default=None, validator=_check_not_empty)
    """Absent: as the SDK finds it."""
    profile: str | None = attrs.field(default=None, validator=_check_not_empty)
    """A profile of the SDK's own files; absent: as the SDK finds it."""
    endpoint_url: str | None = attrs.field(default=None, validator=_check_endpoint_url)
    """Where EC2 is, in place of the region's own address."""
    spot_notices: bool = True
    """Whether to ask which spot instances will be interrupted."""
    drain_tag: str = attrs.field(default="scavenge:drain", validator=_check_not_empty)
    """The tag that says of an instance that it is to take no new work."""
