"""What all checks of a store share: archives that are stored, found, read and compared, each within its time.

Decides when what comes back is right. Each check that fails raises :class:`AssertionError`, which says what was done,
what came, and what to do.
"""

from __future__ import annotations

import hashlib
import math
import tarfile
from collections.abc import Collection, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from scavenge.core.naming import one_line, shown
from scavenge.errors import leaves
from scavenge.images import ImageRecord, Transferred
from scavenge.runtime.ports import ImageStore
from scavenge.testing.source_probe import Knife, Probe
from scavenge.testing.store_archives import PLATFORM, SmallArchive, contents_of, make_archive

CLOSED_WITHIN_S = 5.0
"""How long a call may take to end once it is cancelled."""


@attrs.define(eq=False)
class StoreTrial:
    """A store under test."""

    folder: Path
    probe: Probe
    secrets: Collection[str]
    calls_within_s: float
    store: ImageStore = attrs.field(init=False)
    _made: int = attrs.field(default=0, init=False)

    async def make(self, image: str, size_bytes: int) -> SmallArchive:
        """An archive that there has not been yet."""
        self._made += 1
        return await trio.to_thread.run_sync(partial(make_archive, self.folder, image, size_bytes, self._made))

    # --- calls

    async def put(self, stored: SmallArchive, doing: str) -> None:
        """Store an archive, which must not fail."""
        told: list[object] = []
        with self._in_time(f"put() of {doing}"):
            await self.store.put(stored.record, str(stored.path), told.append)
        for report in told:
            if not isinstance(report, Transferred):
                raise AssertionError(f"put() of {doing}: it reported {shown(report)}; report a Transferred")

    async def find(self, stored: SmallArchive, doing: str, platform: str = str(PLATFORM)) -> ImageRecord | None:
        """What the store says of an image."""
        with self._in_time(f"find() {doing}"):
            found = await self.store.find(stored.record.image, platform)
        if found is not None and not isinstance(found, ImageRecord):
            raise AssertionError(f"find() {doing}: it gave {shown(found)}; give an ImageRecord, or None")
        return found

    async def absent(self, stored: SmallArchive, when: str, platform: str = str(PLATFORM)) -> None:
        """The store must not have an image."""
        if (found := await self.find(stored, when, platform)) is not None:
            what = f"find() of {stored.record.image} {when} gave the record of {found.image} for {found.platform}"
            raise AssertionError(f"{what}; give None for what is not there")

    async def whole(self, stored: SmallArchive, doing: str) -> None:
        """The store must have an image, as it was stored."""
        found = await self._found(stored, doing)
        self._compare(stored, found, await self._read(found, doing), doing)

    async def whole_or_error(self, stored: SmallArchive, doing: str) -> None:
        """The store must have an image as it was stored, or say that it cannot be read."""
        try:
            found = await self._found(stored, doing)
            data = await self._read(found, doing)
        except _Raised as exc:
            self._check_text(exc.error, doing)
            return
        self._compare(stored, found, data, f"{doing}, without an error")

    async def read_all(self, stored: SmallArchive, doing: str) -> None:
        """Read an archive to its end."""
        await self._read(await self._found(stored, doing), doing)

    async def begin_reading(self, stored: SmallArchive, pieces: int) -> None:
        """Read so many pieces of an archive, and leave."""
        doing = f"of {stored.record.image}, left after {pieces} pieces"
        found = await self._found(stored, doing)
        with self._in_time(f"open_archive() {doing}"):
            async with self.store.open_archive(found) as archive:
                for _ in range(pieces):
                    await anext(archive)

    # --- cancelling

    async def moments_of_put(self, stored: SmallArchive) -> int:
        """How many steps a put has."""
        knife = Knife(_nothing)
        await self.probe.call(self.put(stored, "one whose steps are counted"), knife)
        return knife.moments

    async def cancelled(self, call: Coroutine[Any, Any, None], at: int, doing: str) -> None:
        """Make a call, and cancel it at a step; it has to end soon then."""
        with trio.CancelScope() as scope:
            knife = Knife(scope.cancel, at)
            await self.probe.call(call, knife)
        late_s = trio.current_time() - (knife.cut_at if knife.cut_at is not None else math.inf)
        if late_s > CLOSED_WITHIN_S:
            what = f"it went on for {late_s:.1f} s after it was cancelled at step {at}"
            raise AssertionError(f"{doing}: {what}; use abandon_on_cancel=True for threads, and shield nothing long")

    # --- comparing

    async def _found(self, stored: SmallArchive, doing: str) -> ImageRecord:
        if (found := await self.find(stored, doing)) is None:
            raise AssertionError(f"{doing}: find() gave None for {stored.record.image}, which put() has stored")
        for key in ("image", "platform", "config_digest", "diff_ids"):
            was, now = getattr(stored.record, key), getattr(found, key)
            if was != now:
                raise AssertionError(f"{doing}: {key} of the record is {now}, and {was} was stored; keep the record")
        return found

    async def _read(self, found: ImageRecord, doing: str) -> bytes:
        data = bytearray()
        with self._in_time(f"open_archive() of {doing}"):
            async with self.store.open_archive(found) as archive:
                async for piece in archive:
                    if not isinstance(piece, bytes):
                        raise AssertionError(f"open_archive() of {doing}: it gave {shown(piece)}; give bytes")
                    data += piece
        return bytes(data)

    def _compare(self, stored: SmallArchive, found: ImageRecord, data: bytes, doing: str) -> None:
        said = (found.sha256, found.size_bytes)
        if found.sha256 and (hashlib.sha256(data).hexdigest(), len(data)) != said:
            what = f"{len(data)} bytes came that are not those of the record, which has {found.size_bytes}"
            raise AssertionError(f"{doing}: {what}; give the archive as it is stored, or raise when it breaks off")
        try:
            contents = contents_of(data)
        except (ValueError, KeyError, OSError, EOFError, tarfile.TarError) as exc:
            raise AssertionError(f"{doing}: what came is no archive of an image: {one_line(str(exc))}") from exc
        if contents != (stored.record.config_digest, stored.record.diff_ids):
            raise AssertionError(f"{doing}: the archive that came is of another image than the one stored")

    @contextmanager
    def _in_time(self, doing: str) -> Iterator[None]:
        """What the store does has to end in time, and to raise nothing."""
        try:
            with trio.move_on_after(self.calls_within_s) as scope:
                yield
        except AssertionError:
            raise
        except Exception as exc:
            self._check_text(exc, doing)
            raise _Raised(doing, exc) from exc
        if scope.cancelled_caught:
            raise AssertionError(f"{doing}: not done within {self.calls_within_s:g} s; see calls_within_s=")

    def _check_text(self, error: BaseException, doing: str) -> None:
        for leaf in leaves(error):
            if any(secret and secret in part for secret in self.secrets for part in (str(leaf), repr(leaf))):
                raise AssertionError(f"{doing}: {type(leaf).__name__} has a secret in its text; leave it out")


class _Raised(AssertionError):
    """What a store raised where it should not."""

    def __init__(self, doing: str, error: Exception) -> None:
        leaf = next(iter(leaves(error)))
        super().__init__(f"{doing}: it raised {type(leaf).__name__}: {one_line(str(leaf))}")
        self.error = error


def _nothing() -> None:
    """Cut nothing."""
