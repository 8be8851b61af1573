"""The keys of a ``[[source]]`` of type ``runpod``, ``vast`` or ``prime``. The API key is only named."""

from __future__ import annotations

import re
from typing import Any, ClassVar
from urllib.parse import urlsplit

import attrs

from scavenge.plugin import EndpointTemplate

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def _check_variable(config: object, field: attrs.Attribute[Any], value: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):  # the value is not shown: it may be the key itself
        raise ValueError(f"{field.name}: expected the name of an environment variable, not the API key itself")


def _check_api_url(config: object, field: attrs.Attribute[Any], value: str) -> None:
    try:
        url = urlsplit(value)
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if not host or port == 0 or url.username is not None or url.query or url.fragment:
        raise ValueError(f"{field.name}: expected the URL of the API, such as https://api.example.com")
    if url.scheme != "https" and not (url.scheme == "http" and host in _LOOPBACK):
        raise ValueError(f"{field.name}: expected an https URL: the API key goes with every request")


def _check_statuses(config: object, field: attrs.Attribute[Any], value: list[str]) -> None:
    if not value or not all(one.strip() for one in value):
        raise ValueError(f"{field.name}: expected a list with at least one status; remove the key for the usual ones")


def _token_var(default: str) -> Any:
    return attrs.field(default=default, validator=_check_variable, metadata={"secret": True})


def _api_url(default: str) -> Any:
    return attrs.field(default=default, validator=_check_api_url)


@attrs.frozen(kw_only=True)
class CloudConfig(EndpointTemplate):
    """What the sources of all three clouds are told.

    ``statuses`` are the cloud's own words for an instance that takes work; upper and lower case do not matter.
    """

    FACTS: ClassVar[tuple[str, ...]] = (
        "id",
        "name",
        "status",
        "address",
        "port.",
        "gpu",
        "gpu_count",
        "interruptible",
    )

    token_var: str
    api_url: str
    statuses: list[str]
    name_prefix: str = ""

    @property
    def drain_before_s(self) -> float:
        """How long before the end of its rental an instance takes no new work; 0 where the cloud tells of none."""
        return 0.0


@attrs.frozen(kw_only=True)
class RunPodConfig(CloudConfig):
    """The keys of a ``[[source]]`` of type ``runpod``."""

    token_var: str = _token_var("RUNPOD_API_KEY")
    api_url: str = _api_url("https://rest.runpod.io/v1")
    statuses: list[str] = attrs.field(factory=lambda: ["RUNNING"], validator=_check_statuses)


@attrs.frozen(kw_only=True)
class VastConfig(CloudConfig):
    """The keys of a ``[[source]]`` of type ``vast``.

    ``unknown`` and ``offline`` say that Vast does not hear of the host, not that the server is down: the health check
    sees which it is, and an outage of Vast's own does not empty the pool.
    """

    token_var: str = _token_var("VAST_API_KEY")
    api_url: str = _api_url("https://console.vast.ai")
    statuses: list[str] = attrs.field(factory=lambda: ["running", "unknown", "offline"], validator=_check_statuses)
    drain_before: float = attrs.field(default=300.0, validator=attrs.validators.ge(0))

    @property
    def drain_before_s(self) -> float:
        return self.drain_before


@attrs.frozen(kw_only=True)
class PrimeConfig(CloudConfig):
    """The keys of a ``[[source]]`` of type ``prime``."""

    token_var: str = _token_var("PRIME_API_KEY")
    api_url: str = _api_url("https://api.primeintellect.ai")
    statuses: list[str] = attrs.field(factory=lambda: ["ACTIVE", "UNKNOWN"], validator=_check_statuses)
