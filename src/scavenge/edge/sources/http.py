"""The HTTP source: a listing in JSON or TOML from a URL, fetched afresh each time it is asked.

Decides when the server is asked, how long that may take, and which listing stands where the server says that nothing
has changed. What a reply means is decided in the core. No message has a secret, or the query of a URL.
"""

from __future__ import annotations

import math
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import trio

from scavenge.core.backoff import equal_jitter_s
from scavenge.core.documents import DocumentError
from scavenge.core.listing_reply import Validators, check_plain, is_framed, may_pass, refusal
from scavenge.core.listing_text import listing_tables
from scavenge.core.outcome import retry_after_s
from scavenge.edge.http.faults import HttpFault
from scavenge.edge.http.fields import BadRequest
from scavenge.edge.http.route import RouteError
from scavenge.edge.http.tls import shared_context
from scavenge.edge.sources.http_config import HttpSourceConfig, check_headers
from scavenge.edge.sources.http_page import Kept, Page, Way
from scavenge.edge.threads import LimitedThreads
from scavenge.errors import SourceError
from scavenge.listings import Listing
from scavenge.types import Misrouted

PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 60.0
"""A server that has too much to do, or is broken, is left alone for a time that doubles from the one to the other."""


class HttpSource:
    """Lists the endpoints that a page has."""

    def __init__(self, config: HttpSourceConfig, token: str | None, tls: Callable[[], ssl.SSLContext], random: Random):
        self._config = config
        self._with_token = token is not None
        self._way = Way(config, token, tls)
        self._random = random
        self._threads = LimitedThreads(1)  # a long text takes seconds to read; one that nobody waits for may be left
        self._kept: Kept | None = None
        self._refusal = SourceError("")
        """Why the server is left alone, while it is."""
        self._refusals = 0
        """How often in a row it said that it has no time, or is broken."""
        self._asked_again_at = -math.inf

    async def list_endpoints(self) -> Listing:
        """The endpoints that the page has now.

        Raises :class:`SourceError`. Cancelled, it closes the connection, and leaves at most the reading of a text that
        has come, in a thread.
        """
        await trio.lowlevel.checkpoint()
        if trio.current_time() < self._asked_again_at:
            raise SourceError(*self._refusal.args)
        kept = self._kept
        try:
            page = await self._fetch_in_time(kept)
            self._kept = kept = await self._good(page, kept)
        except HttpFault as fault:
            misled = isinstance(fault.outcome, Misrouted)
            see = "see `url`, `ca_file` and `proxy`" if misled else "see whether it is up, and `url`"
            raise self._error(f"{fault}; {see}") from None  # the cause may show secrets
        except (DocumentError, RouteError, BadRequest) as exc:
            raise self._error(str(exc)) from None
        self._refusals = 0
        return kept.listing

    async def _fetch_in_time(self, kept: Kept | None) -> Page:
        with trio.move_on_after(self._config.timeout):
            return await self._way.fetch(kept)
        raise DocumentError(f"no whole answer within {self._config.timeout:g} s; see `timeout`")

    async def _good(self, page: Page, kept: Kept | None) -> Kept:
        """The listing on a page, or the one that was kept where the page is the same. Raises :class:`DocumentError`."""
        if page.status == 200:
            listing = await self._threads.run(partial(self._listing_on, page), abandon_on_cancel=True)
            return Kept(page.url, Validators.of(page.headers), listing)
        await trio.lowlevel.checkpoint()
        if page.status == 304 and kept is not None and kept.url == page.url:
            return kept
        why = refusal(page.status, with_token=self._with_token)
        if may_pass(page.status):
            self._leave_alone(page, why)
        raise DocumentError(why)

    def _listing_on(self, page: Page) -> Listing:
        check_plain(page.headers)
        tables = listing_tables(page.data, page.headers.get("content-type", ""), whole=is_framed(page.headers))
        return Listing(tables, where=self._config.where)

    def _leave_alone(self, page: Page, why: str) -> None:
        own_s = equal_jitter_s(self._refusals, PAUSE_FIRST_S, PAUSE_MAX_S, self._random)
        self._refusals += 1
        self._refusal = self._error(why)
        self._asked_again_at = trio.current_time() + max(own_s, retry_after_s(page.headers, time.time()) or 0.0)

    def _error(self, what: str) -> SourceError:
        return SourceError(self._way.wording.line(f"{self._config.where}: {what}"))


@asynccontextmanager
async def open_http(config: HttpSourceConfig) -> AsyncIterator[HttpSource]:
    """The source that fetches the configured page. Nothing is held open.

    Raises :class:`SourceError` for a token that is not there and for certificates that cannot be read.
    """
    token = None if config.token_var is None else _token(config.token_var)
    tls = await _tls(config.ca_file)
    yield HttpSource(config, token, tls, Random())  # noqa: S311 - jitter, not a secret


def _token(name: str) -> str:
    token = os.environ.get(name)
    if not token:
        state = "not set" if token is None else "empty"
        raise SourceError(f"the environment variable {name} is {state}; set it to the token, or remove `token_var`")
    try:
        check_headers({"authorization": f"Bearer {token}"})
    except BadRequest:
        what = "what no HTTP header can, such as a line break or a space at an end"
        raise SourceError(f"the environment variable {name} holds {what}; set it to the token alone") from None
    return token


async def _tls(ca_file: Path | None) -> Callable[[], ssl.SSLContext]:
    """What gives the context: the process's, or one that trusts the authorities in a file, and no others."""
    await trio.lowlevel.checkpoint()
    if ca_file is None:
        return shared_context
    try:
        context = await trio.to_thread.run_sync(partial(ssl.create_default_context, cafile=ca_file))
    except ssl.SSLError:
        raise SourceError(f"{ca_file}: no certificate in PEM; name the authority's file in `ca_file`") from None
    except OSError as exc:
        raise SourceError(f"{ca_file}: cannot be read: {exc.strerror}; see `ca_file`") from None
    context.set_alpn_protocols(["http/1.1"])
    return lambda: context
