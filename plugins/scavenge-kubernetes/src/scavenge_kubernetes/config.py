"""The keys of a ``[[source]]`` of type ``kubernetes``: which objects are looked at, with whose credentials, and what a
row is made of. Reads nothing: the credentials themselves are in a kubeconfig or in the pod, never in the file.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import attrs

from scavenge.plugin import EndpointTemplate

PODS = "pods"
SLICES = "endpointslices"
EVERY_NAMESPACE = "*"

_DNS_LABEL_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def _check_selector(config: object, field: attrs.Attribute[Any], value: str) -> None:
    if not value.strip():
        raise ValueError('must name labels, such as "app=vllm"; an empty one takes every object')


def _check_resource(config: object, field: attrs.Attribute[Any], value: str) -> None:
    if value not in (PODS, SLICES):
        raise ValueError(f'must be "{PODS}" or "{SLICES}"')


def _check_namespace(config: object, field: attrs.Attribute[Any], value: str | None) -> None:
    if value in (None, EVERY_NAMESPACE):
        return
    if not value or len(value) > 63 or not _DNS_LABEL_CHARACTERS.issuperset(value):
        raise ValueError(
            f'must be the name of one, or "{EVERY_NAMESPACE}" for all; without it, that of the context holds'
        )


def _check_port(config: object, field: attrs.Attribute[Any], value: int | str | None) -> None:
    if isinstance(value, int) and not 0 < value < 65536:
        raise ValueError(f"must be from 1 to 65535 or the name of a port, got {value}")
    if isinstance(value, str) and (not value or value.isdigit()):
        raise ValueError('must be a number without quotes, or the name of a port such as "http"')


def _check_family(config: object, field: attrs.Attribute[Any], value: str | None) -> None:
    if value not in (None, "IPv4", "IPv6"):
        raise ValueError('must be "IPv4" or "IPv6"; without it, the first address that there is')


def _check_context(config: object, field: attrs.Attribute[Any], value: str | None) -> None:
    if value == "":
        raise ValueError("must be the name of one; without it, the kubeconfig's current one holds")


def _check_interval(config: object, field: attrs.Attribute[Any], value: float) -> None:
    if not (math.isfinite(value) and 1 <= value <= 3600):
        raise ValueError(f"must be from 1 to 3600 seconds, got {value:g}")


@attrs.frozen(kw_only=True)
class KubernetesConfig(EndpointTemplate):
    """The keys of a ``[[source]]`` of type ``kubernetes``."""

    FACTS: ClassVar[tuple[str, ...]] = ("address", "port", "name", "namespace", "node", "label.", "annotation.")

    selector: str = attrs.field(validator=_check_selector)
    """A label selector, as ``kubectl get -l`` takes it."""
    resource: str = attrs.field(default=PODS, validator=_check_resource)
    namespace: str | None = attrs.field(default=None, validator=_check_namespace)
    """Absent: the namespace of the context, or of the pod that scavenge runs in."""
    port: int | str | None = attrs.field(default=None, validator=_check_port)
    """What ``{port}`` stands for. Absent: the only port that there is."""
    ip_family: str | None = attrs.field(default=None, validator=_check_family)
    kubeconfig: Path | None = None
    """Absent: ``$KUBECONFIG``, ``~/.kube/config``, else the service account of the pod that scavenge runs in."""
    context: str | None = attrs.field(default=None, validator=_check_context)
    """Absent: the kubeconfig's current one."""
    relist_interval: float = attrs.field(default=120.0, validator=_check_interval)
    """Seconds after which everything is listed anew, whatever the watch said or did not say."""
