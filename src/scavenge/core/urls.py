"""The normal form of endpoint URLs, so that two spellings of one server are one server. Pure.

Looks nothing up. Messages never repeat a URL that may hold a password.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from scavenge.core.naming import quoted
from scavenge.types import Url

DEFAULT_PORTS = {"http": 80, "https": 443}
"""RFC 9110, sections 4.2.1 and 4.2.2."""

_HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_CHAT_PATH = "/chat/completions"

_NO_URL = "expected an absolute http:// or https:// URL, such as http://10.0.0.7:8000/v1"
_NO_HOST = "the host of a URL is a name, an IPv4 address or an IPv6 address in brackets, without a zone"
_NO_PROXY_URL = "expected the URL of an HTTP proxy, such as http://10.0.0.1:3128; no other kind is supported"


def normal_url(text: str) -> Url:
    """The API root that *text* names, in normal form.

    Drops a trailing slash, ``/chat/completions`` and the default port; scheme and host become lower case. Raises
    ``ValueError``, whose text says what is wrong, when it is no absolute http or https URL, or has userinfo, a query or
    a fragment.
    """
    parts = _split(text)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError(_NO_URL)
    if "@" in parts.netloc:
        raise ValueError("a URL must not contain a user name or password; name a variable with the API key in `key`")
    if "?" in text or "#" in text:
        raise ValueError(f"a URL must end with its path, without query or fragment: {quoted(text.split('?')[0])}")
    path = parts.path.rstrip("/").removesuffix(_CHAT_PATH).rstrip("/")
    return Url(f"{parts.scheme}://{_authority(parts)}{path}")


def page_url(text: str) -> str:
    """The absolute http or https URL *text*, which may have a query, without its fragment.

    Raises ``ValueError``, whose text says what is wrong; userinfo is.
    """
    parts = _split(text)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError("expected an absolute http:// or https:// URL, such as http://10.0.0.1/endpoints.json")
    if "@" in parts.netloc:
        raise ValueError("a URL must not contain a user name or password; name a variable with a token instead")
    _authority(parts)
    return text.partition("#")[0]


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL that is right, in normal form; a default port is left out."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{_authority(parts)}"


def check_proxy(text: str) -> None:
    """Raise ``ValueError`` unless *text* is the URL of an HTTP proxy; the error does not repeat it."""
    parts = _split(text)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(_NO_PROXY_URL)
    if parts.path.rstrip("/") or "?" in text or "#" in text:
        raise ValueError("a proxy's URL must end with its host and port")
    _authority(parts)


def has_password(text: str) -> bool:
    """Whether a text is a URL with a password in it."""
    match = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)@", text)
    return match is not None and ":" in match[1]


def _split(text: str) -> SplitResult:
    if not text.isascii() or any(character <= " " or character in '\\\x7f"<>' for character in text):
        raise ValueError("a URL consists of printable ASCII characters without spaces, quotes and backslashes")
    try:
        return urlsplit(text)
    except ValueError:
        raise ValueError("the brackets in the URL's host do not hold an IPv6 address") from None


def _authority(parts: SplitResult) -> str:
    host = _host(parts.hostname or "")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("the port of a URL is a number from 1 to 65535")
    return host if port in (None, DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}"


def _host(host: str) -> str:
    try:
        if ":" in host and "%" not in host:  # a zone (RFC 6874) has a meaning on one machine only
            return f"[{ipaddress.IPv6Address(host).compressed}]"
    except ValueError:
        raise ValueError(_NO_HOST) from None
    if len(host) > 253 or not _HOST_NAME.fullmatch(host):
        raise ValueError(_NO_HOST)
    return host
