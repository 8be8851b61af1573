"""The endpoint source: asks Consul, waits for changes by blocking queries, and says what an answer makes of the list.

Invariants: what is raised is one line with the place and the remedy, and has no token in it; a query that failed or was
cancelled is followed by one that does not block, so nothing that happened meanwhile is missed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Protocol
from urllib.parse import quote

import attrs
import trio

from scavenge.plugin import EndpointSpec, Listing, SourceError
from scavenge_consul.agent import Agent, make_agent
from scavenge_consul.answers import Answer, NotStored, Unsure, check_answer
from scavenge_consul.config import ConsulConfig
from scavenge_consul.instances import Instances
from scavenge_consul.pacing import Pace, Watch
from scavenge_consul.stored import Stored

ANSWER_S = 20.0
"""How long an answer may take, beyond what its query may block."""

FIRST_WAIT_S = 20.0
"""The longest wait before there was a listing: all of it has to be over within a source's 60 seconds."""

DOUBT_S = 120.0
"""How long nothing that is missing is believed after Consul's state went back. Agents bring their services back into a
catalogue that lost them within one to two minutes, in clusters of up to 256 nodes (``agent/ae`` in Consul)."""


class Reads(Protocol):
    """Makes a listing of an answer."""

    @property
    def asked_for(self) -> str:
        """What is asked for, in messages."""
        ...

    def read(self, answer: Answer) -> Listing:
        """The listing. Raises :class:`Unsure`."""
        ...


@attrs.define(eq=False)
class ConsulSource:
    """Lists what Consul has now; after the first listing, holds the answer until that changes or ``wait`` is over."""

    long_poll = True

    agent: Agent = attrs.field(repr=False)
    reader: Reads
    path: str
    params: Mapping[str, str | list[str]]
    address: str
    wait_s: float
    pace: Pace
    token: str | None = attrs.field(repr=False)
    _watch: Watch = attrs.field(factory=Watch)
    _last: Listing | None = None
    _doubt_until: float = float("-inf")

    async def list_endpoints(self) -> Listing:
        """What there is. Raises :class:`SourceError` when Consul cannot say. Cancelled, it leaves nothing behind."""
        await trio.sleep_until(self.pace.next_at(trio.current_time()))
        try:
            answer = self._without_token(await self._query())
            index = check_answer(answer, self.reader.asked_for)
            listing = self.reader.read(answer)
            self._note(index, listing)
        except NotStored as exc:
            self._watch.note(exc.index)
            self.pace.on_answer()
            raise self._error(exc) from None
        except Unsure as exc:
            self.pace.on_failure(trio.current_time(), exc.retry_after_s)
            raise self._error(exc) from None
        self.pace.on_answer()
        return listing

    async def _query(self) -> Answer:
        """Consul's answer, which Consul itself holds while nothing changes."""
        index = self._watch.take()
        if not index:
            return await self.agent.get(self.path, self.params, ANSWER_S)
        wait_s = self.wait_s if self._last is not None else min(self.wait_s, FIRST_WAIT_S)
        params = {**self.params, "index": str(index), "wait": f"{wait_s * 1000:.0f}ms"}
        return await self.agent.get(self.path, params, wait_s * 17 / 16 + ANSWER_S)  # Consul adds up to a 16th

    def _note(self, index: int, listing: Listing) -> None:
        """Note an answer's index and listing; where the index went backwards, doubt for a while what is missing."""
        if self._watch.note(index):
            self._doubt_until = trio.current_time() + DOUBT_S
        missing = _names(self._last) - _names(listing) if self._last is not None else ()
        if missing:
            self._watch.take()  # a departure counts when a second listing lacks it: let that not wait for a change
        if missing and trio.current_time() < self._doubt_until:
            raise Unsure(
                f"its state went back, as after a restore, and lacks {len(missing)} of the endpoints that were listed; "
                f"believed after {DOUBT_S:g} s if they are not registered again"
            )
        self._last = listing

    def _without_token(self, answer: Answer) -> Answer:
        """The answer; a refusal, which may repeat the request and is told in part, without the token in it."""
        if self.token is None or answer.status == 200:
            return answer
        return attrs.evolve(answer, body=answer.body.replace(self.token.encode(), b"[token]"))

    def _error(self, exc: Unsure) -> SourceError:
        text = f"Consul at {self.address}, {self.reader.asked_for}: {exc}"
        return SourceError(text.replace(self.token, "[token]") if self.token else text)


def _names(listing: Listing) -> frozenset[str]:
    """Which servers a listing has, whatever it says of them."""
    return frozenset(_name(row) for row in listing.endpoints)


def _name(row: object) -> str:
    if isinstance(row, EndpointSpec):
        return repr((row.endpoint_id, row.url))
    if isinstance(row, Mapping):
        return repr((row.get("endpoint_id"), row.get("url", row.get("api_base_url"))))
    return repr(row)


@asynccontextmanager
async def open_consul(config: ConsulConfig, pace: Pace | None = None) -> AsyncIterator[ConsulSource]:
    """Open the source; nothing is asked yet. A test may bring a quicker pace.

    Raises :class:`SourceError` when the token's variable or the TLS files cannot be used.
    """
    token = read_token(config)
    path, params, reader = _question(config, anonymous=token is None)
    agent = await make_agent(config, token)
    pace = pace or Pace(Random())  # noqa: S311  # spreads requests, keeps no secret
    yield ConsulSource(agent, reader, path, params, config.address, config.wait, pace, token)


def read_token(config: ConsulConfig) -> str | None:
    """The token in the environment variable that the configuration names. Raises :class:`SourceError`."""
    if config.token_var is None:
        return None
    token = os.environ.get(config.token_var, "")
    if not token:
        raise SourceError(f"the environment variable {config.token_var} is not set; set it, or remove token_var")
    if not token.isascii() or not token.isprintable() or token != token.strip():
        raise SourceError(f"the environment variable {config.token_var} holds what no HTTP header can; correct it")
    return token


def _question(config: ConsulConfig, *, anonymous: bool) -> tuple[str, dict[str, str | list[str]], Reads]:
    scope = {"dc": config.dc, "ns": config.namespace, "partition": config.partition}
    params: dict[str, str | list[str]] = {name: value for name, value in scope.items() if value is not None}
    if config.stale:
        params["stale"] = ""
    if config.kv is not None:
        return f"/v1/kv/{quote(config.kv)}", {**params, "raw": ""}, Stored(config.asked_for)
    if config.tags:
        params["tag"] = config.tags
    path = f"/v1/health/service/{quote(config.service or '', safe='')}"
    return path, params, Instances(config, config.asked_for, anonymous)
