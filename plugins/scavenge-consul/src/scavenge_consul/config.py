"""The keys of a ``[[source]]`` of type ``consul``: what each may be, and which go together. Reads no environment.

scavenge puts the key before what a validator says.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import attrs

from scavenge.plugin import EndpointTemplate

LONGEST_WAIT_S = 600
"""Consul's own bound for one blocking query."""

_template_text = attrs.fields(EndpointTemplate).url.validator
_OF_A_ROW = tuple(field.name for field in attrs.fields(EndpointTemplate))
_REQUIRED_OF_A_ROW = ("endpoint_id", "model", "url")


def _check_address(instance: object, field: attrs.Attribute[Any], value: str) -> None:
    if not _is_address(value):
        raise ValueError(
            "expected the http:// or https:// URL of a Consul agent, such as http://127.0.0.1:8500, without "
            "user name, query and fragment; a token stands in the environment variable that `token_var` names"
        )


def _is_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        return False
    plain = value.isascii() and value.isprintable() and not any(character in value for character in " ?#@\\")
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0


def _check_variable(instance: object, field: attrs.Attribute[Any], value: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError("expected the name of an environment variable, not the token itself")


def _check_filled(instance: object, field: attrs.Attribute[Any], value: str) -> None:
    if not value.strip() or not value.isprintable():
        raise ValueError("expected a non-empty string of printable characters")


def _check_tags(instance: object, field: attrs.Attribute[Any], value: list[str]) -> None:
    if not all(tag.strip() for tag in value):
        raise ValueError("expected a list of non-empty strings")


def _check_key(instance: object, field: attrs.Attribute[Any], value: str) -> None:
    if not value.strip() or not value.isprintable() or any(part in ("", ".", "..") for part in value.split("/")):
        raise ValueError("expected the name of one key, such as scavenge/endpoints.toml, without a slash at an end")


def _check_wait(instance: object, field: attrs.Attribute[Any], value: float) -> None:
    if not 1 <= value <= LONGEST_WAIT_S:
        raise ValueError(f"expected seconds from 1 to {LONGEST_WAIT_S}, got {value:g}")


def _optional(validator: Any) -> Any:
    return attrs.field(default=None, validator=attrs.validators.optional(validator))


@attrs.frozen(kw_only=True)
class ConsulConfig(EndpointTemplate):
    """Either ``service`` with the keys of a row, or ``kv``; and how the agent is reached."""

    FACTS: ClassVar[tuple[str, ...]] = (
        "address",
        "dc",
        "id",
        "meta.",
        "node",
        "node_meta.",
        "port",
        "service",
        "tag.",
    )

    endpoint_id: str = attrs.field(default="", validator=_template_text)
    model: str = attrs.field(default="", validator=_template_text)
    url: str = attrs.field(default="", validator=_template_text)

    service: str | None = _optional(_check_filled)
    tags: list[str] = attrs.field(factory=list, validator=_check_tags)
    kv: str | None = _optional(_check_key)

    address: str = attrs.field(default="http://127.0.0.1:8500", validator=_check_address)
    token_var: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(_check_variable), metadata={"secret": True}
    )
    dc: str | None = _optional(_check_filled)
    namespace: str | None = _optional(_check_filled)
    partition: str | None = _optional(_check_filled)
    stale: bool = False
    wait: float = attrs.field(default=60.0, validator=_check_wait)
    """Seconds."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = _optional(_check_filled)

    def __attrs_post_init__(self) -> None:
        if (self.service is None) == (self.kv is None):
            raise ValueError("set `service` for the instances of a service, or `kv` for a stored endpoints.toml")
        if self.kv is None:
            self._check_row()
        elif extra := [name for name in (*_OF_A_ROW, "tags") if getattr(self, name)]:
            raise ValueError(f"kv excludes {', '.join(extra)}; the stored rows have their own keys")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file needs cert_file, the certificate that it belongs to")
        tls = [name for name in ("ca_file", "cert_file", "server_name") if getattr(self, name) is not None]
        if tls and not self.address.startswith("https:"):
            raise ValueError(f"{', '.join(tls)}: only for an address that begins with https://")

    def _check_row(self) -> None:
        if missing := [name for name in _REQUIRED_OF_A_ROW if not getattr(self, name)]:
            raise ValueError(f"service needs {' and '.join(missing)} as well: what each instance's row says")

    @property
    def asked_for(self) -> str:
        """What is asked for, in messages."""
        return f"key {self.kv}" if self.kv is not None else f"service {self.service}"
