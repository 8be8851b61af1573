"""What a registry itself adds to an engine's word that it did not deliver: when to come again, what there is instead.

Decides what is asked for which end. Asking is a help and no more: it is bounded, and without an answer the end is
passed on as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import takewhile

import attrs
import trio

from scavenge.core.images.distribution import pause_s
from scavenge.core.images.reference import ImageName, parts
from scavenge.core.naming import listed
from scavenge.edge.images.registry_auth import refusal
from scavenge.edge.images.registry_client import Registries
from scavenge.edge.images.registry_wire import RegistryFault
from scavenge.images import DeliveryEnd, Denied, Missing, Throttled

ASKED_WITHIN_S = 10.0
TAGS_TOLD = 20


@attrs.frozen(eq=False)
class Advice:
    """Asks registries about deliveries that failed."""

    registries: Registries

    async def on(self, end: DeliveryEnd, name: str) -> DeliveryEnd:
        """The same end of a pull of *name* with what its registry says to that. Never raises."""
        with trio.move_on_after(ASKED_WITHIN_S):
            await trio.lowlevel.checkpoint()
            match end:
                case Throttled(why, None):
                    return Throttled(why, await self._pause_s(name))
                case Missing(why):
                    return Missing(await self._instead(why, parts(name)))
                case Denied(why):
                    auth = await self.registries.credentials.find(name)
                    return Denied(refusal(parts(name).registry, why, auth))
        return end

    async def _pause_s(self, name: str) -> float | None:
        """How long the registry wants to be left alone; it is asked in a way that does not count as a pull."""
        try:
            registry = await self.registries.of(parts(name).registry)
            return pause_s((await registry.head(name)).headers, time.time())
        except RegistryFault as fault:
            return fault.end.retry_after_s if isinstance(fault.end, Throttled) else None

    async def _instead(self, why: str, name: ImageName) -> str:
        """Why there is no such tag, with those that there are."""
        if not name.tag:
            return why
        try:
            registry = await self.registries.of(name.registry)
            tags = await registry.tags(name.path)
        except RegistryFault:
            return why
        if name.tag in tags:
            return why
        there_are = listed(_nearest_first(name.tag, tags), TAGS_TOLD)
        return f"{name.repository}: no tag {name.tag}; " + (
            f"there are: {there_are}" if tags else "there are no others"
        )


def _nearest_first(tag: str, tags: Iterable[str]) -> list[str]:
    """The tags, those first that begin most like *tag*. There may be ten thousand."""
    return sorted(set(tags), key=lambda other: (-_alike(tag, other), other))


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
