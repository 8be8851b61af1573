"""What ``scavenge check`` finds of the container engine, where an evaluation may need one."""

from __future__ import annotations

import os

import trio

from scavenge.app.parts import Parts
from scavenge.config.schema import ImageSettings
from scavenge.core.check_report import EngineFinding
from scavenge.core.images.plan_disk import floor_bytes
from scavenge.edge.images.credentials import Credentials
from scavenge.edge.images.engine import open_engine
from scavenge.errors import EngineError
from scavenge.runtime.ports import Environment


def needs_images(parts: Parts) -> bool:
    """Whether the file speaks of images, or an environment that is played in this process has a method for them."""
    if parts.settings.images != ImageSettings() or parts.stores:
        return True
    kinds = (type(staged.environment) for staged in parts.staged if staged.environment is not None)
    return any(getattr(kind, "images", Environment.images) is not Environment.images for kind in kinds)


async def look_at_engine(settings: ImageSettings) -> EngineFinding:
    """Ask the engine that a run would use what it is, and how much room it has."""
    async with open_engine(settings.engine, os.environ, Credentials(os.environ)) as engine:
        try:
            info = await engine.info()
        except EngineError as exc:
            return EngineFinding(str(exc))
        room = await trio.to_thread.run_sync(engine.disk)
    said = f"{info.product} {info.version} for {info.platform}"
    if room is None:
        return EngineFinding("", said)
    return EngineFinding("", said, room.free_bytes, floor_bytes(settings.min_free_disk, room.total_bytes))
