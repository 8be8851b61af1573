"""The keys of the HTTP store. The token is named by its variable; headers may hold secrets too, and are not shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import attrs

from scavenge.core.urls import page_url
from scavenge.edge.http.fields import BadRequest
from scavenge.edge.sources.http_config import check_headers
from scavenge.errors import StoreError

UPLOADS = ("PUT", "POST")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _check_url(config: object, field: attrs.Attribute[Any], url: str) -> None:
    page_url(url)
    if "?" in url or "#" in url:
        raise ValueError("expected the URL of a folder, without query or fragment; name a token in `token_var`")


def _check_variable(config: object, field: attrs.Attribute[Any], name: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("expected the name of an environment variable, not the token itself")


def _check_headers(config: object, field: attrs.Attribute[Any], headers: Mapping[str, str]) -> None:
    check_headers(headers)


def _check_upload(config: object, field: attrs.Attribute[Any], upload: str) -> None:
    if upload not in UPLOADS:
        raise ValueError(f"expected {' or '.join(UPLOADS)}, got {upload!r}")


@attrs.frozen
class HttpStoreConfig:
    """The keys of an ``[[images.store]]`` of type ``http``."""

    url: str = attrs.field(validator=_check_url)
    token_var: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(_check_variable), metadata={"secret": True}
    )
    headers: dict[str, str] = attrs.field(factory=dict, validator=_check_headers, metadata={"secret": True}, repr=False)
    upload: str = attrs.field(default="PUT", validator=_check_upload)
    """The method that stores a file under its URL."""

    def __attrs_post_init__(self) -> None:
        if self.token_var is not None and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("headers: Authorization is written from `token_var`; keep one of them")

    def own_headers(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """What goes to the origin of ``url`` only, with the token in it.

        Raises :class:`StoreError` for a token that is not there or cannot be one.
        """
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.token_var is None:
            return headers
        token = environ.get(self.token_var)
        if not token:
            state = "not set" if token is None else "empty"
            remedy = "set it to the token, or remove `token_var`"
            raise StoreError(f"the environment variable {self.token_var} is {state}; {remedy}")
        headers["authorization"] = f"Bearer {token}"
        try:
            check_headers(headers)
        except BadRequest:
            what = "what no HTTP header can, such as a line break or a space at an end"
            raise StoreError(f"the environment variable {self.token_var} holds {what}; set it to the token") from None
        return headers
