"""Whether an image that was delivered is what it should be. What is not is removed again.

An engine's word is not enough: answers with status 200 hide errors, mirrors and stores have images of other platforms,
and loads of broken archives can leave half an image. What the engine says of the image afterwards decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from scavenge.errors import EngineError
from scavenge.images import (
    Broken,
    Delivered,
    DeliveryEnd,
    EngineSilent,
    ImageFacts,
    Platform,
    RemovalEnd,
    Removed,
    Unfit,
)
from scavenge.runtime.ports import ImageEngine


async def delivered(
    engine: ImageEngine, image: str, platform: Platform, diff_ids: Sequence[str] | None = None
) -> DeliveryEnd:
    """How the delivery of *image* has ended, by what the engine has under its name now.

    It is to be of *platform* and to have the layers *diff_ids*, where they are known; else its name is taken away.
    """
    try:
        facts = await engine.inspect(image)
        if facts is None:
            return Broken(f"{image}: the engine said that it has it, and it is not there")
        if (what := _unfit(facts, platform, diff_ids)) is None:
            return Delivered(facts.size_bytes)
        return Unfit(f"{image} {what}{_left(await engine.remove(image))}")
    except EngineError as exc:
        return EngineSilent(str(exc)) if exc.silent else Broken(str(exc))


def runs_on(platform: Platform, image: Platform) -> bool:
    """Whether programs of an image run on a platform. A later variant of one processor runs what is for an earlier.

    Engines and images leave variants out as they like: one that is not told is taken for right.
    """
    if (platform.os, platform.architecture) != (image.os, image.architecture):
        return False
    return not platform.variant or _number(image.variant) <= _number(platform.variant)


def _number(variant: str) -> int:
    digits = variant.removeprefix("v").partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdecimal() else 0


def _unfit(facts: ImageFacts, platform: Platform, diff_ids: Sequence[str] | None) -> str | None:
    if not runs_on(platform, facts.platform):
        return f"is for {facts.platform}, and the engine runs {platform}"
    if diff_ids is not None and facts.diff_ids != tuple(diff_ids):
        return f"has other layers than its archive says ({len(facts.diff_ids)} against {len(diff_ids)})"
    return None


def _left(end: RemovalEnd) -> str:
    return "" if isinstance(end, Removed) else f" (and it could not be removed: {end.why})"
