"""``scavenge images list`` and ``gc``: what is there of what is needed, and what dead runs left behind."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import orjson
import trio

from scavenge.app.console import screen_on_stderr
from scavenge.app.image_needs import Needs, evaluation_in, needs_of, references_in
from scavenge.app.images import Ledgers, with_engine
from scavenge.app.parts import Parts
from scavenge.config.schema import ImageSettings
from scavenge.core.figures import size
from scavenge.core.images.reference import familiar
from scavenge.edge.console import Screen
from scavenge.edge.console_table import table_text
from scavenge.edge.images.credentials import Credentials
from scavenge.edge.images.engine import open_engine
from scavenge.edge.images.engine_wire import BrokenOff
from scavenge.edge.images.ledger import brought, default_folder
from scavenge.edge.logs import set_up_logs
from scavenge.edge.threads import LimitedThreads
from scavenge.errors import single_error
from scavenge.images import InUse, LocalImage, NotRemoved, RemovalEnd, Removed
from scavenge.runtime.ports import ImageEngine, ImageLedger

OWNER = "images gc"

# --- list


def list_images(file: Path | None, engine: str | None, *, as_json: bool) -> tuple[int, str]:
    """What *file* needs, or else what runs brought: the exit code, and the text for standard output."""
    screen = screen_on_stderr()
    set_up_logs(screen, "warning")
    parts = None if file is None else evaluation_in(file)
    listed = references_in(file) if file is not None and parts is None else []
    rows, is_whole = trio.run(_list, file is not None, parts, listed, engine, screen)
    if as_json:
        text = orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode()
    else:
        text = table_text(["image", "present", "size"], list(map(_cells, rows))) if rows else "no images"
    return (0 if is_whole and all(row["present"] for row in rows) else 1), text


def _cells(row: Mapping[str, object]) -> list[str]:
    return [familiar(str(row["image"])), "yes" if row["present"] else "no", _size(row["size_bytes"])]


def _size(size_bytes: object) -> str:
    return size(size_bytes) if isinstance(size_bytes, int) else ""


async def _list(
    of_file: bool, parts: Parts | None, listed: list[str], engine: str | None, screen: Screen
) -> tuple[list[dict[str, object]], bool]:
    """A row an image, and whether these are all: rows that cannot be played are told, and need who knows what."""

    settings = with_engine(ImageSettings() if parts is None else parts.settings.images, engine)
    with single_error():
        needs = Needs(dict.fromkeys(listed)) if parts is None else await needs_of(parts, screen.say)
        images = list(needs.images)
        async with open_engine(settings.engine, os.environ, Credentials(os.environ, warn=screen.say)) as there:
            sizes = _sizes(await there.list_images())
            if not of_file:
                engine_id = (await there.info()).engine_id
                images = await trio.to_thread.run_sync(brought, default_folder(os.environ), engine_id)
    rows: list[dict[str, object]] = [
        {"image": one, "present": one in sizes, "size_bytes": sizes.get(one)} for one in images
    ]
    return rows, not needs.unknown


def _sizes(images: Sequence[LocalImage]) -> dict[str, int]:
    return {name: image.size_bytes for image in images for name in image.names}


# --- gc


def collect_in_console(engine: str | None) -> int:
    """Remove what dead runs left, and return the exit code: 1 when something could not be removed."""
    return trio.run(_collect, engine, screen_on_stderr())


async def _collect(engine: str | None, screen: Screen) -> int:
    left = 0
    with single_error(), ExitStack() as stack:
        async with open_engine(engine, os.environ, Credentials(os.environ, warn=screen.say)) as there:
            info = await there.info()
            ledgers = Ledgers(default_folder(os.environ), OWNER, stack, LimitedThreads(1), screen.say)
            own = ledgers.open(info)
            for image in ledgers.take_over(info):
                end = await _removal(there, own, image)
                if isinstance(end, Removed):
                    own.let_go(image)
                else:
                    left += 1
                screen.say(f"{familiar(image)}: {'removed' if isinstance(end, Removed) else f'left: {end.why}'}")
    return 1 if left else 0


async def _removal(engine: ImageEngine, ledger: ImageLedger, image: str) -> RemovalEnd:
    if ledger.is_needed_elsewhere(image):
        return InUse("another run needs it")
    try:
        return await engine.remove(image)
    except BrokenOff as exc:  # one that cannot be reached ends it all
        return NotRemoved(str(exc))
