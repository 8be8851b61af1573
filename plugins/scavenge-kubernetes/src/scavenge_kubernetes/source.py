"""Lists the inference servers of a Kubernetes cluster, and holds its answer until they change.

Data flow: a list → the view; events of a watch → the view; the view → servers → rows. The list is the truth: it is
asked for at the beginning, after every trouble, and when ``relist_interval`` is over, so that a watch which fell silent
or went astray is believed for no longer than that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import TypeAlias

import attrs
import trio

from scavenge.plugin import EndpointSpec, Listing, SourceError
from scavenge_kubernetes.access import Access, Chain
from scavenge_kubernetes.api import Api, Lost, Refused
from scavenge_kubernetes.config import KubernetesConfig
from scavenge_kubernetes.roll import Roll
from scavenge_kubernetes.servers import Server, servers_of
from scavenge_kubernetes.view import Expired, View

ServersView: TypeAlias = "View[tuple[Server, ...]]"

TRIES = 3
"""How often a list is tried before its trouble is told."""

PAUSE_S = 0.5
"""The first pause; each next one is twice as long, and all are jittered."""

PAUSE_MAX_S = 15.0
"""The longest pause, also where the API asks for a longer one. Jittered, and with ``LISTED_WITHIN_S``, it stays below
the 60 s that a source has for an answer."""

LISTED_WITHIN_S = 30.0
"""How long a list may take, with its tries."""

VAIN_WATCHES = 2
"""After so many watches in a row that ended before they told anything, the list is asked."""


@attrs.define(eq=False)
class KubernetesSource:
    """Lists the servers that a configuration selects."""

    long_poll = True

    config: KubernetesConfig
    chain: Chain
    random: Random = attrs.field(factory=Random)
    _roll: Roll = attrs.field(init=False)
    _access: Access | None = None
    """The credentials in use; ``None``: they are to be read."""
    _view: ServersView | None = None
    """What there is, kept by the watch; ``None``: it is to be listed."""
    _relist_at: float = 0.0
    """Until when the watch is believed."""
    _told: list[EndpointSpec] = attrs.field(factory=list)
    """The rows of the latest listing."""
    _failures: int = 0
    """Answers in a row that failed."""
    _not_before: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._roll = Roll(self.config)

    async def list_endpoints(self) -> Listing:
        """The servers that there are now; after the first time, once they are others or ``relist_interval`` is over.

        An answer that lacks a server of the one before is followed by one that does not wait.

        Raises :class:`SourceError`. Cancelled, it closes its connection and forgets nothing that it has heard.
        """
        await trio.sleep_until(self._not_before)
        try:
            view = await self._next_view()
        except SourceError as trouble:
            self._failures += 1
            asked_s = trouble.retry_after_s if isinstance(trouble, Lost) else 0.0
            pause_s = max(self._jittered_s(self._failures), min(asked_s, PAUSE_MAX_S))
            self._not_before = trio.current_time() + pause_s
            raise
        self._failures, self._not_before = 0, 0.0
        before, self._told = self._told, self._rows(view)
        if {row.url for row in before} - {row.url for row in self._told}:
            self._relist_at = 0.0  # a server is gone for scavenge when a second listing lacks it: let that come soon
        return Listing(self._told, where=f"kubernetes {self.config.resource} {self.config.selector}")

    async def _next_view(self) -> ServersView:
        await trio.lowlevel.checkpoint()
        if self._view is not None and await self._hold(self._view):
            return self._view
        self._view = None
        self._view = await self._list()
        self._relist_at = trio.current_time() + self.config.relist_interval
        return self._view

    def _keep(self, item: Mapping[str, object]) -> tuple[Server, ...]:
        return tuple(servers_of(item, self.config))

    def _rows(self, view: ServersView) -> list[EndpointSpec]:
        return self._roll.rows(server for servers in view.objects.values() for server in servers)

    # --- the watch

    async def _hold(self, view: ServersView) -> bool:
        """Wait until the rows are others than those that were told; false when everything has to be listed anew."""
        await trio.lowlevel.checkpoint()
        vain = 0
        with trio.move_on_at(self._relist_at):
            await trio.lowlevel.checkpoint()
            while vain < VAIN_WATCHES:
                if self._rows(view) != self._told:  # or were, when the watch before met with a trouble
                    return True
                version, pause_s = view.version, 0.0
                try:
                    if await self._watch(view):
                        return True
                except Expired:
                    return False
                except Lost as trouble:
                    pause_s = self._note(trouble)
                vain = vain + 1 if view.version == version else 0
                await trio.sleep(max(pause_s, self._jittered_s(1)))
        return False

    async def _watch(self, view: ServersView) -> bool:
        def hear(events: Iterable[Mapping[str, object]]) -> bool:
            changed = [view.take_event(event) for event in events]
            return any(changed) and self._rows(view) != self._told

        api = await self._api()
        try:
            return await api.watch(view.version, self._relist_at, hear)
        except Refused as refusal:
            self._access = None
            if refusal.status != 401:
                raise
            raise Lost(str(refusal)) from None  # a token that is over: there may be a new one

    # --- the list

    async def _list(self) -> ServersView:
        trouble = SourceError(f"kubernetes: no list within {LISTED_WITHIN_S:g} s; see whether kubectl gets one")
        with trio.move_on_after(LISTED_WITHIN_S):
            await trio.lowlevel.checkpoint()
            for number in range(1, TRIES + 1):
                pause_s = 0.0
                try:
                    return await (await self._api()).list_all(self._keep)
                except Expired:
                    trouble = SourceError("kubernetes: the list was too old before it was whole; narrow the selector")
                except Lost as exc:
                    trouble, pause_s = exc, self._note(exc)
                except Refused as exc:
                    trouble, self._access = exc, None
                    if exc.status != 401 or number > 1:
                        raise
                if number < TRIES:
                    await trio.sleep(min(max(pause_s, self._jittered_s(number)), PAUSE_MAX_S))
        raise trouble

    async def _api(self) -> Api:
        await trio.lowlevel.checkpoint()
        if self._access is None:
            self._access = await self.chain.load()
        return Api(self._access, self.config)

    def _note(self, trouble: Lost) -> float:
        """Forget credentials that may be at fault; the pause that the API asks for."""
        if trouble.stale:
            self._access = None
        return trouble.retry_after_s

    def _jittered_s(self, number: int) -> float:
        return float(min(PAUSE_S * 2 ** min(number - 1, 10), PAUSE_MAX_S)) * self.random.uniform(0.5, 1.5)


@asynccontextmanager
async def open_kubernetes(config: KubernetesConfig) -> AsyncIterator[KubernetesSource]:
    """Yield the source. It keeps nothing open between two answers, so there is nothing to close."""
    yield KubernetesSource(config, Chain(config))
