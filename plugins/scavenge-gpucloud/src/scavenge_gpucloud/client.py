"""Asks a cloud's API: one request at a time, not too often, not for too long, and for not too much.

Decides what an answer is worth: JSON is handed on, what may pass is tried again, the rest is a :class:`SourceError`
that says what to do. Knows nothing of instances. No message holds the API key or a text of the answer, which may
repeat it.

Invariant: no request starts before ``_free_at``, which only ever moves on.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from random import Random

import attrs
import httpx
import trio

from scavenge.plugin import SourceError
from scavenge_gpucloud.pace import TRANSIENT, Pace, retry_after_s

MOST_BYTES = 16 * 1024 * 1024
"""How large an answer may be."""


@attrs.frozen
class Trouble:
    """What came instead of an answer, and whether asking again may help."""

    what: str
    remedy: str = ""
    again: bool = False
    retry_after_s: float | None = None

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}" if self.remedy else self.what


@attrs.frozen
class _Answer:
    value: object


@attrs.define(eq=False)
class ApiClient:
    """The API of one cloud, for one list after the other; connections live no longer than a list does."""

    service: str
    api_url: str
    token_var: str
    connect: Callable[[], httpx.AsyncClient] = attrs.field(repr=False)
    """Gives a client that has the API key; whoever calls it opens and closes the client."""
    pace: Pace
    random: Random = attrs.field(repr=False)
    _free_at: float = attrs.field(default=-math.inf, init=False)
    trouble: Trouble | None = attrs.field(default=None, init=False)
    """What the last request came to; ``None`` when it was answered."""

    def leave_alone(self, seconds: float) -> None:
        """Start no request before so many seconds have passed."""
        self._free_at = max(self._free_at, trio.current_time() + seconds)

    def error(self, what: object) -> SourceError:
        """An error that names the cloud and its API."""
        return SourceError(f"{self.service} at {self.api_url}: {what}")

    async def get(self, http: httpx.AsyncClient, path: str, query: Mapping[str, str]) -> object:
        """The JSON that the API answers with, by a client that :attr:`connect` gave.

        Raises :class:`SourceError` when it has none, or wants to be left alone for longer than the deadline of the
        caller lets it wait. Cancelled, it hangs up.
        """
        for failures in range(1, self.pace.tries + 1):
            await self._wait_until_free()
            found = await self._ask(http, path, query)
            if isinstance(found, _Answer):
                self.trouble = None
                self.leave_alone(self.pace.page_gap_s)
                return found.value
            self.trouble = found
            self.leave_alone(self.pace.backoff_s(failures, found.retry_after_s, self.random))
            if not found.again:
                break
        raise self.error(self.trouble)

    async def _wait_until_free(self) -> None:
        rest_s = max(0.0, self._free_at - trio.current_time())
        if self.trouble is not None and trio.current_time() + rest_s >= trio.current_effective_deadline():
            raise self.error(f"{self.trouble}; it is left alone for {rest_s:.0f} s")
        await trio.sleep(rest_s)

    async def _ask(self, http: httpx.AsyncClient, path: str, query: Mapping[str, str]) -> _Answer | Trouble:
        found: _Answer | Trouble | None = None
        with trio.move_on_after(self.pace.answer_within_s):
            found = await self._try(http, f"{self.api_url.rstrip('/')}/{path}", query)
        return found or Trouble(f"no answer within {self.pace.answer_within_s:g} s", "is the service up?", again=True)

    async def _try(self, http: httpx.AsyncClient, url: str, query: Mapping[str, str]) -> _Answer | Trouble:
        try:
            return await self._exchange(http, url, query)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as exc:
            await trio.lowlevel.checkpoint()
            return Trouble(f"cannot be reached ({type(exc).__name__})", "check api_url and the network", again=True)

    async def _exchange(self, http: httpx.AsyncClient, url: str, query: Mapping[str, str]) -> _Answer | Trouble:
        async with http.stream("GET", url, params=query) as response:
            if response.status_code != 200:
                return self._refusal(response)
            body = await _read(response)
        if len(body) > MOST_BYTES:
            return Trouble(f"an answer of more than {MOST_BYTES // 1024 // 1024} MB", "is api_url right?")
        try:
            return _Answer(json.loads(body))
        except (ValueError, RecursionError):
            return Trouble("the answer is no JSON", "is api_url right?", again=True)

    def _refusal(self, response: httpx.Response) -> Trouble:
        status = response.status_code
        if status in TRANSIENT:
            wait_s = retry_after_s(response.headers.get("retry-after"), time.time())
            remedy = "raise elastic_poll_interval" if status == 429 else ""
            return Trouble(f"it answers {status}", remedy, again=True, retry_after_s=wait_s)
        if status in (401, 403):
            remedy = f"give {self.token_var} a key that may read instances"
            return Trouble(f"it refuses the API key in {self.token_var} ({status})", remedy)
        if 300 <= status < 400:
            return Trouble(f"it sends us elsewhere ({status})", "set api_url to where the API is")
        return Trouble(f"it answers {status}", "is api_url right?")


async def _read(response: httpx.Response) -> bytearray:
    """The body; somewhat more than :data:`MOST_BYTES` of one that is too large."""
    body = bytearray()
    with trio.CancelScope() as too_large:  # not `break`: the generators below would be left as they stand
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MOST_BYTES:
                too_large.cancel()
    return body
