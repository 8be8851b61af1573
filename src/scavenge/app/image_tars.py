"""``scavenge images pack``, ``repack`` and ``ship``: images as files, and where other machines find these."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs
import trio

from scavenge.app.console import screen_on_stderr
from scavenge.app.parts import StorePart, store_part
from scavenge.config.problems import Where
from scavenge.config.schema import StoreSettings
from scavenge.core.documents import DocumentError, parse_toml
from scavenge.core.figures import size
from scavenge.core.images.layout import BadRecord, parse_record
from scavenge.core.images.reference import BadReference, canonical, familiar
from scavenge.edge.console import Drawing, Screen
from scavenge.edge.images.credentials import Credentials
from scavenge.edge.images.engine import open_engine
from scavenge.edge.images.packing import Repacked, pack, repack
from scavenge.edge.images.shipping import NotShipped, Shipped, Shipper, Step
from scavenge.errors import ConfigError, InfrastructureError, Problem, UsageError, single_error
from scavenge.images import ImageRecord, Transferred
from scavenge.plugins.manager import load_plugins

DRAW_EVERY_S = 0.25
RECORD_ENDING = ".json"


@attrs.define(eq=False)
class Doing:
    """One line that says what is done now, and how far it is."""

    what: str = ""
    transferred: Transferred = attrs.field(factory=lambda: Transferred(0))

    def report(self, transferred: Transferred) -> None:
        """Hear how far it is."""
        self.transferred = transferred

    def report_step(self, image: str, step: Step, transferred: Transferred) -> None:
        """Hear what is shipped, and how far it is."""
        self.what, self.transferred = f"{familiar(image)}: {step.value}", transferred

    def drawing(self) -> Drawing:
        """The line, below a bar where the whole is known."""
        done, total = self.transferred.done_bytes, self.transferred.total_bytes
        told = f"{self.what}, {size(done)}" + (f" of {size(total)}" if total else "")
        return Drawing([told], min(1.0, done / total) if total else None)


async def show(doing: Doing, screen: Screen) -> None:
    """Show what is done until cancelled; on no terminal nothing is shown meanwhile."""
    if not screen.interactive:
        await trio.sleep_forever()
    with screen.drawing() as draw:
        while True:
            draw(doing.drawing())
            await trio.sleep(DRAW_EVERY_S)


# --- pack


def pack_in_console(references: Sequence[str], folder: Path, engine: str | None) -> int:
    """Pack images of the engine, and return the exit code."""
    return trio.run(_pack, checked(references), folder, engine, screen_on_stderr())


def checked(references: Iterable[str]) -> list[str]:
    """Canonical names. Raises :class:`scavenge.errors.UsageError` for what is none."""
    try:
        return [canonical(reference) for reference in references]
    except BadReference as exc:
        raise UsageError(str(exc)) from exc


async def _pack(images: Sequence[str], folder: Path, engine: str | None, screen: Screen) -> int:
    doing, failed = Doing(), 0
    credentials = Credentials(os.environ, warn=screen.say)
    with single_error():
        async with open_engine(engine, os.environ, credentials) as there, trio.open_nursery() as showing:
            showing.start_soon(show, doing, screen)
            for image in images:
                doing.what = f"{familiar(image)}: packing"
                try:
                    record = await pack(there, image, folder, doing.report)
                except InfrastructureError as exc:
                    failed += 1
                    screen.say(str(exc))
                else:
                    screen.say(_packed(record, folder))
            showing.cancel_scope.cancel()
    return 1 if failed else 0


def _packed(record: ImageRecord, folder: Path) -> str:
    return f"{familiar(record.image)}: {folder / record.archive} ({size(record.size_bytes)})"


# --- repack


def repack_in_console(tars: Sequence[Path], folder: Path) -> int:
    """Repack archives, and return the exit code."""
    return trio.run(_repack, tars, folder, screen_on_stderr())


async def _repack(tars: Sequence[Path], folder: Path, screen: Screen) -> int:
    doing = Doing("repacking")
    repacked = Repacked((), ())
    with single_error():
        async with trio.open_nursery() as showing:
            showing.start_soon(show, doing, screen)
            repacked = await repack(tars, folder, doing.report)
            showing.cancel_scope.cancel()
    for record in repacked.records:
        screen.say(_packed(record, folder))
    for trouble in repacked.troubles:
        screen.say(trouble)
    return 1 if repacked.troubles else 0


# --- ship


def ship_in_console(tars: Sequence[Path], store: str, keys: Sequence[str]) -> int:
    """Ship packed images to the store ``TYPE:ADDRESS``, and return the exit code."""
    part, archives = store_named(store, keys), packed_in(tars)
    return trio.run(_ship, part, archives, screen_on_stderr())


def store_named(text: str, keys: Sequence[str]) -> StorePart:
    """The store that ``--to`` and ``--set`` name. Raises :class:`scavenge.errors.ConfigError`."""
    name, colon, address = text.partition(":")
    if not (name and colon and address):
        raise UsageError(f"--to {text}: expected TYPE:ADDRESS, such as folder:/mnt/images")
    registry, where = load_plugins(os.environ), Where("--to")
    kind = registry.image_store(name, "--to")
    given = {kind.address: address, **dict(map(_key, keys))}
    return store_part(StoreSettings(name, given, where), registry, Path.cwd())


def _key(text: str) -> tuple[str, object]:
    """A key and its value, which is TOML or else taken as text."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--set {text}: expected KEY=VALUE")
    try:
        return name, parse_toml(f"value = {value}".encode())["value"]
    except DocumentError:
        return name, value


def packed_in(paths: Iterable[Path]) -> list[tuple[ImageRecord, Path]]:
    """The packed images that are named, or that are in the folders that are named.

    Raises :class:`scavenge.errors.ConfigError` with everything that is no packed image, or has a broken record.
    """
    found: list[tuple[ImageRecord, Path]] = []
    problems: list[Problem] = []
    for path in paths:
        folder, name = (path, None) if path.is_dir() else (path.parent, path.name)
        before = len(found) + len(problems)
        for file in sorted(folder.glob(f"*{RECORD_ENDING}")):
            try:
                record = parse_record(file.read_bytes())
            except (OSError, BadRecord) as exc:
                if name is None:
                    problems.append(Problem(str(file), f"is no record of a packed image: {exc}"))
            else:
                if name in (None, record.archive):
                    found.append((record, folder / record.archive))
        if len(found) + len(problems) == before:
            what = "no packed image is here" if name is None else "no record beside it names it"
            problems.append(Problem(str(path), f"{what}; make one with `scavenge images pack` or `images repack`"))
    if problems:
        raise ConfigError(problems)
    return found


async def _ship(part: StorePart, archives: Sequence[tuple[ImageRecord, Path]], screen: Screen) -> int:
    doing = Doing()
    shipped: list[Shipped | NotShipped] = []
    with single_error():
        async with part.kind.open(part.config) as store, trio.open_nursery() as showing:
            showing.start_soon(show, doing, screen)
            shipped = await Shipper(part.label, store, doing.report_step).ship_all(archives)
            showing.cancel_scope.cancel()
    for one in shipped:
        screen.say(_told(one, part.label))
    return 1 if any(isinstance(one, NotShipped) for one in shipped) else 0


def _told(one: Shipped | NotShipped, label: str) -> str:
    if isinstance(one, NotShipped):
        return f"{familiar(one.image)}: not shipped: {one.why}"
    name, how = familiar(one.record.image), "was there already" if one.was_there else "shipped and read back"
    return f"{name}: {how} ({label}, sha256 {one.record.sha256[:12]}, {size(one.record.size_bytes)})"
