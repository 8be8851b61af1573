"""The one TLS context of the process. Building it reads all certificates, so it is built once, when first needed."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def shared_context() -> ssl.SSLContext:
    """The context for endpoints: certificates are checked against the system's store, and httpx's where it is empty."""
    context = ssl.create_default_context()
    if not context.get_ca_certs():  # also when they are in a folder, which is read only when one is looked for
        context = httpx.create_ssl_context()
        context.load_default_certs()
    context.set_alpn_protocols(["http/1.1"])
    return context
