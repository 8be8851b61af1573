"""What a server's reply means to whoever asked it for a listing: moved, refused, unchanged, or a text. Pure.

Knows the heads of replies (names in lower case), not the text; messages show no query of a URL, which may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin

import attrs

from scavenge.core.documents import DocumentError
from scavenge.core.naming import one_line
from scavenge.core.urls import origin_of, page_url

MOST_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
"""RFC 9110, section 15.4, without those that name no one place."""

STEADY_S = 2
"""How much older than its reply a page must be for its validator to tell it from a later one (RFC 9110, 8.8.2.2).

Most servers make both validators of the time of the last change in whole seconds, so a page that changes twice in one
second has the same one before and after."""

_ETAG = re.compile(r'(?:W/)?"[!#-~]{0,500}"')
_REMEDIES = {
    403: "it may not be read with what was sent; see `token_var` and `headers`",
    404: "there is nothing; see `url`",
    405: "it cannot be read; see `url`",
    407: "the proxy wants a name and a password; see `proxy`",
    410: "there is nothing any more; see `url`",
    429: "it is asked too often; it is left alone for a while",
}


@attrs.frozen
class Validators:
    """What tells whether a page is still the same; both ``None``: nothing does."""

    etag: str | None = None
    modified: str | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Validators:
        """Those of a reply, but for those that a later page might share."""
        etag, modified = headers.get("etag", "").strip(), headers.get("last-modified", "").strip()
        changed_at, replied_at = _date(modified), _date(headers.get("date", ""))
        if changed_at and not (replied_at and (replied_at - changed_at).total_seconds() >= STEADY_S):
            return cls()
        if _ETAG.fullmatch(etag):
            return cls(etag=etag)
        return cls(modified=modified if changed_at else None)

    def conditions(self) -> dict[str, str]:
        """The headers that ask for the page only if it has changed."""
        named = {"if-none-match": self.etag, "if-modified-since": self.modified}
        return {name: value for name, value in named.items() if value is not None}


def redirected(url: str, headers: Mapping[str, str]) -> str:
    """Where a redirect of *url* leads. Raises :class:`DocumentError` for none, for no URL, and for one without TLS."""
    location = headers.get("location", "").strip()
    if not location:
        raise DocumentError("it redirects, and does not say where")
    try:
        target = page_url(urljoin(url, location))
    except ValueError:
        where = one_line(location.partition("?")[0], 100) if "@" not in location else "a URL with a user name"
        raise DocumentError(f"it redirects to {where}, which cannot be followed; set `url` to where it ends") from None
    if url.startswith("https:") and not target.startswith("https:"):
        raise DocumentError(f"it redirects to {origin_of(target)}, without TLS; set `url` to where it ends")
    return target


def refusal(status: int, *, with_token: bool) -> str:
    """What a status other than 200 says, and what to do."""
    if status == 401:
        remedy = "it refuses the token that `token_var` names" if with_token else "it wants a token; see `token_var`"
    else:
        remedy = _REMEDIES.get(status) or ("a fault of the server" if status >= 500 else "expected 200 and a listing")
    return f"HTTP {status}: {remedy}"


def may_pass(status: int) -> bool:
    """Whether a status says that the same request may be answered later, and should not come too soon."""
    return status == 429 or status >= 500


def is_framed(headers: Mapping[str, str]) -> bool:
    """Whether the reply tells its own end; without, its body ends where the connection does (RFC 9112, 6.3)."""
    return not headers.keys().isdisjoint({"content-length", "transfer-encoding"})


def check_plain(headers: Mapping[str, str]) -> None:
    """Raise :class:`DocumentError` for a body that is compressed: it was asked for as it is."""
    coding = headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise DocumentError(f"compressed ({one_line(coding, 40)}), which was not asked for; let it send plain text")


def _date(text: str) -> datetime | None:
    """An HTTP date, as far as it has a time zone."""
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return date if date.tzinfo else None
