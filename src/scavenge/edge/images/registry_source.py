"""Images out of registries, fetched by the engine: the registry in the image's own name, and mirrors of it.

Decides under which name the engine is asked, and that an image which came by a mirror's name is called by its own. What
the registry itself adds to a refusal is asked by :mod:`registry_advice`. Mirrors that the engine has in its own
settings are the engine's business: they do not show here.

Invariant: a mirror's name that was not there before is gone after a delivery, whatever became of it; one that was there
stays as it was.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

import attrs
import trio

from scavenge.core.images.reference import check_prefix, parts, under
from scavenge.edge.images.registry_advice import Advice
from scavenge.edge.images.verify import delivered
from scavenge.errors import EngineError
from scavenge.images import Broken, Delivered, DeliveryEnd, EngineSilent, Missing, Platform, Removed
from scavenge.runtime.ports import ImageEngine, Report

CLEANED_WITHIN_S = 5.0
"""How long taking a mirror's name away may take, also when the delivery is cancelled."""
TAG_DIGITS = 16


class Claims(Protocol):
    """Where names are noted that are in the engine for a while only, for whoever has to clean up after a killed run."""

    async def bring(self, image: str) -> None:
        """Note a name that is not there and will be. On disk before this returns."""
        ...

    async def let_go(self, image: str) -> None:
        """Note that it is gone again."""
        ...


@attrs.frozen(eq=False)
class OriginSource:
    """The registry that an image's own name says."""

    engine: ImageEngine
    advice: Advice
    label: str = "origin"

    def lane(self, image: str) -> str:
        """The registry's host."""
        return parts(image).registry

    async def deliver(self, image: str, report: Report) -> DeliveryEnd:
        """Have the engine pull the image, and check it.

        Cancelled when the image has just come, it leaves it there, under the name that the pool has noted.
        """
        return await _ended(self._deliver(image, report))

    async def _deliver(self, image: str, report: Report) -> DeliveryEnd:
        platform = (await self.engine.info()).platform
        end = await self.engine.pull(image, platform, report)
        if isinstance(end, Delivered):
            return await delivered(self.engine, image, platform)
        return await self.advice.on(end, image)


@attrs.define(eq=False)
class MirrorSource:
    """A registry that has other registries' images under a prefix."""

    prefix: str = attrs.field(converter=check_prefix)
    engine: ImageEngine
    advice: Advice
    claims: Claims
    _digests_are_lost: bool = False
    """Whether this engine knows an image's digest only with the name that it was pulled by, as Docker's old store."""

    @property
    def label(self) -> str:
        """``mirror registry.example:5000/hub``."""
        return f"mirror {self.prefix}"

    def lane(self, image: str) -> str:
        """The mirror's host."""
        return self.prefix.partition("/")[0]

    async def deliver(self, image: str, report: Report) -> DeliveryEnd:
        """Have the engine pull the image by the mirror's name, give it its own, and check it.

        Cancelled, it takes the mirror's name away first, within :data:`CLEANED_WITHIN_S`.
        """
        return await _ended(self._deliver(image, report))

    async def _deliver(self, image: str, report: Report) -> DeliveryEnd:
        if parts(image).digest and self._digests_are_lost:
            return Missing("this engine has an image by its digest only from the registry in its name")
        name = under(self.prefix, image)
        platform = (await self.engine.info()).platform
        if await self.engine.inspect(name) is not None:  # whoever brought it keeps it
            return await self._take(name, image, platform)
        await self.claims.bring(name)
        try:
            end = await self.engine.pull(name, platform, report)
            if isinstance(end, Delivered):
                return await self._take(name, image, platform)
        finally:
            with trio.move_on_after(CLEANED_WITHIN_S, shield=True):
                await self._drop(name)
        return await self.advice.on(end, name)

    async def _take(self, name: str, image: str, platform: Platform) -> DeliveryEnd:
        """Give what is there as *name* the image's own name."""
        tag = _tagged(image)
        if tag == image:
            await self.engine.tag(name, image)
            return await delivered(self.engine, image, platform)
        return await self._take_by_digest(name, tag, image, platform)

    async def _take_by_digest(self, name: str, tag: str, image: str, platform: Platform) -> DeliveryEnd:
        """An engine may know an image by its digest once it has a tag in the same repository."""
        end: DeliveryEnd | None = None
        try:
            await self.engine.tag(name, tag)
            if await self.engine.inspect(image) is None:
                self._digests_are_lost = True
                end = Missing("this engine has an image by its digest only from the registry in its name")
            else:
                end = await delivered(self.engine, image, platform)
        finally:
            if not isinstance(end, Delivered):
                with trio.move_on_after(CLEANED_WITHIN_S, shield=True):
                    await self._remove(tag)
        return end

    async def _drop(self, name: str) -> None:
        """Take the mirror's name away."""
        if await self._remove(name):
            await self.claims.let_go(name)

    async def _remove(self, name: str) -> bool:
        try:
            return isinstance(await self.engine.remove(name), Removed)
        except EngineError:
            return False


async def _ended(delivery: Awaitable[DeliveryEnd]) -> DeliveryEnd:
    """How a delivery ended, also where the engine could not be asked."""
    try:
        return await delivery
    except EngineError as exc:
        return EngineSilent(str(exc)) if exc.silent else Broken(str(exc))


def _tagged(image: str) -> str:
    """A name with a tag in the image's own repository: its own, or for one with a digest one that is made of that."""
    name = parts(image)
    if name.tag:
        return image
    return str(attrs.evolve(name, tag=f"scavenge-{name.digest.partition(':')[2][:TAG_DIGITS]}", digest=""))
