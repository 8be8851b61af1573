"""Requests to a registry that are let in: each carries what opens its scope, and one refusal is answered.

Decides when a registry is asked again because of who we are. Knows nothing of what is asked.

Invariant: an ``Authorization`` is sent to the registry's own origin and nowhere else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random

import attrs
import httpx
import trio

from scavenge.core.images.distribution import ANSWER_MOST_BYTES
from scavenge.edge.images.registry_auth import Door, Scope
from scavenge.edge.images.registry_retries import PAUSE_FIRST_S, Retries
from scavenge.edge.images.registry_wire import IDLE_S, RegistryFault, Reply, Wire, closing, same_origin
from scavenge.images import Broken

ANSWER_WITHIN_S = 60.0
"""How long a registry may take for an answer that is no blob."""


@attrs.frozen
class Answer:
    """A whole reply."""

    status: int
    headers: httpx.Headers
    url: httpx.URL
    data: bytes = attrs.field(repr=False)


@attrs.frozen(eq=False)
class Requests:
    """What is asked of one registry. Calls raise :class:`RegistryFault`; cancelled, they close what they opened."""

    wire: Wire
    door: Door
    random: Random
    pause_first_s: float = PAUSE_FIRST_S

    def retries(self) -> Retries:
        """What decides whether a transfer that was cut is taken up again."""
        return Retries(self.random, self.pause_first_s)

    @property
    def host(self) -> str:
        """The registry as it is called in the names of images."""
        return self.wire.host

    async def answer(
        self,
        method: str,
        what: str,
        scope: Scope,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        most: int = ANSWER_MOST_BYTES,
    ) -> Answer:
        """The whole answer to a request for ``/v2/`` and *what*; one that is no success is raised."""
        with trio.move_on_after(ANSWER_WITHIN_S):
            url = await self.url(what)
            async with self.reply(method, url, scope, headers or {}, content) as reply:
                if not reply.is_success:
                    raise await reply.fault()
                return Answer(reply.status, reply.headers, reply.url, await reply.read(most))
        raise RegistryFault(Broken(f"{self.host}: no whole answer within {ANSWER_WITHIN_S:g} s"))

    async def url(self, what: str) -> httpx.URL:
        """The address of *what* at this registry."""
        return httpx.URL(f"{await self.wire.base()}/v2/{what}")

    async def moved(self, url: httpx.URL, location: str) -> httpx.URL:
        """Where a ``Location`` leads from an address. One at this registry keeps the scheme that is spoken to it.

        Registries behind a proxy often take themselves for plain http.
        """
        with self.wire.faults():
            target = url.join(location)
        own = httpx.URL(await self.wire.base())
        return target.copy_with(scheme=own.scheme) if target.netloc == own.netloc else target

    @asynccontextmanager
    async def reply(
        self,
        method: str,
        url: httpx.URL,
        scope: Scope,
        headers: Mapping[str, str],
        content: bytes | None = None,
        idle_s: float = IDLE_S,
    ) -> AsyncIterator[Reply]:
        """The reply to a request, whatever its status, while the block runs; its body is not read yet."""
        reply = await self.open_reply(method, url, scope, headers, content, idle_s)
        async with closing(reply):
            yield reply

    async def open_reply(
        self,
        method: str,
        url: httpx.URL,
        scope: Scope,
        headers: Mapping[str, str],
        content: bytes | None = None,
        idle_s: float = IDLE_S,
    ) -> Reply:
        """The reply to a request, let in where that takes something; whoever calls this closes it."""
        if not same_origin(url, httpx.URL(await self.wire.base())):
            return await self.wire.send(method, url, headers, content, idle_s)
        opener = self.door.opener_nowait(scope)
        reply = await self.wire.send(method, url, {**headers, **_let_in(opener)}, content, idle_s)
        if reply.status == 401 and (challenge := reply.headers.get_list("www-authenticate")):
            async with closing(reply):
                await reply.fault()  # read to its end, so that the connection can be used again
            opener = await self.door.knock(scope, ", ".join(challenge), opener)
            reply = await self.wire.send(method, url, {**headers, **_let_in(opener)}, content, idle_s)
        if reply.status not in (401, 403):
            return reply
        async with closing(reply):
            said = str(await reply.fault())
        raise await self.door.denied(scope, said)


def _let_in(opener: str) -> dict[str, str]:
    return {"authorization": opener} if opener else {}
