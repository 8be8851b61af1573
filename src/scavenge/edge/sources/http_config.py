"""The keys of the HTTP source. The token is named by its variable; headers may hold secrets too, and are not shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from scavenge.core.redaction import has_secret_query
from scavenge.core.urls import check_proxy, page_url
from scavenge.edge.http.fields import fields_of
from scavenge.edge.http.request import RequestKind
from scavenge.edge.http.route import route_to

LONGEST_TIMEOUT_S = 55.0
"""Whoever asks a source waits for a minute; what went wrong is to be told before."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_timeout(config: object, field: attrs.Attribute[Any], timeout_s: float) -> None:
    """Raise ``ValueError`` unless a source can answer, or say why not, within that time."""
    if not 0 < timeout_s <= LONGEST_TIMEOUT_S:
        raise ValueError(f"expected seconds > 0 and ≤ {LONGEST_TIMEOUT_S:g}, got {timeout_s:g}")


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise ``ValueError``, without their values, for headers that HTTP cannot carry or that the transport writes."""
    RequestKind(b"GET", b"/", (*fields_of(headers), (b"host", b"h"))).request()


def _check_url(config: object, field: attrs.Attribute[Any], url: str) -> None:
    route_to(page_url(url), None)
    if has_secret_query(url):
        raise ValueError("a secret in it would be in the run folder; name its variable in `token_var`")


def _check_variable(config: object, field: attrs.Attribute[Any], name: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("expected the name of an environment variable, not the token itself")


def _check_headers(config: object, field: attrs.Attribute[Any], headers: Mapping[str, str]) -> None:
    check_headers(headers)


def _check_proxy(config: object, field: attrs.Attribute[Any], proxy: str) -> None:
    check_proxy(proxy)


@attrs.frozen
class HttpSourceConfig:
    """The keys of a ``[[source]]`` of type ``http``."""

    url: str = attrs.field(validator=_check_url)
    token_var: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(_check_variable), metadata={"secret": True}
    )
    headers: dict[str, str] = attrs.field(factory=dict, validator=_check_headers, metadata={"secret": True}, repr=False)
    timeout: float = attrs.field(default=30.0, validator=check_timeout)
    ca_file: Path | None = None
    proxy: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(_check_proxy), metadata={"secret": True}, repr=False
    )

    def __attrs_post_init__(self) -> None:
        if self.token_var is not None and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("headers: Authorization is written from `token_var`; keep one of them")

    @property
    def where(self) -> str:
        """The URL as messages show it: its query may hold a secret."""
        return page_url(self.url).partition("?")[0]
