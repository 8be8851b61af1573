"""Packs images into tars of their own, each with its record: out of an engine, or out of other archives.

Every tar is put together here, whoever wrote the archive that it comes from: with the image's whole name, which engines
leave out, and checked against what its configuration says. Images that are packed already are left, so what was
interrupted goes on where it was. Engines suffer from saves, so there is one at a time in a process.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import attrs
import trio

from scavenge.core.images.archive import read_archive
from scavenge.core.images.archive_values import Archive, ArchiveEntry, BadArchive
from scavenge.core.images.archive_writing import Wanted, archive_size
from scavenge.core.images.reference import parts
from scavenge.core.naming import one_line
from scavenge.edge.images.archive_copy import Copied, Spoilt, copy_images
from scavenge.edge.images.archive_file import ArchiveFile
from scavenge.edge.images.inflating import CannotInflate
from scavenge.edge.images.packed_folder import Draft, PackedFolder, told
from scavenge.edge.images.verify import runs_on
from scavenge.edge.threads import LimitedThreads
from scavenge.errors import ImageUnavailable, StoreError
from scavenge.images import ImageFacts, ImageRecord, Transferred
from scavenge.runtime.ports import ImageEngine, Report, Threads

PIECE_BYTES = 2**20
MOST_AT_ONCE = 100
"""Images that are copied in one pass over a compressed archive: a file is open for each."""

SAVED = ".saved"
"""What an engine saved is held under this kind of name until it is copied, so an image needs its room twice."""

_one_save = trio.Lock()


async def pack(engine: ImageEngine, image: str, folder: Path, report: Report) -> ImageRecord:
    """Save an image of the engine, by its canonical name with a tag, into *folder*.

    Raises :class:`scavenge.errors.ImageUnavailable` when the engine does not have it, :class:`scavenge.StoreError` when
    the file cannot be written or is not what it should be, and :class:`scavenge.errors.EngineError`. Cancelled, it
    leaves nothing behind.
    """
    if parts(image).digest:
        raise StoreError(f"{image} cannot be packed: an archive keeps no digests; give the image a tag, and pack that")
    threads, packed = LimitedThreads(1), PackedFolder(folder)
    async with _one_save:
        facts = await engine.inspect(image)
        if facts is None:
            raise ImageUnavailable(f"{image} is not in the engine; pull it first: scavenge images pull")
        kept = await threads.run(partial(packed.kept, image, facts.platform))
        if kept is not None and _is_same(kept, facts):
            return kept
        progress = _Progress(report, 2 * facts.size_bytes)
        with ExitStack() as stack:
            saved, draft = [
                await threads.run(partial(stack.enter_context, packed.open_draft(image, facts.platform, kind)))
                for kind in (SAVED, ".tar")
            ]
            await _save(engine, saved, progress, threads)
            try:
                with told(saved.part):
                    return await _copy_saved(saved, draft, progress, threads)
            except (BadArchive, CannotInflate) as exc:
                raise StoreError(f"{image}: what the engine saved cannot be used: {one_line(str(exc))}") from exc


def _is_same(record: ImageRecord, facts: ImageFacts) -> bool:
    """Whether a record is that of what the engine has. Engines that tell another id than the configuration's save."""
    image_id = facts.image_id.removeprefix("sha256:")
    return (record.config_digest, record.diff_ids) == (f"sha256:{image_id}", facts.diff_ids)


async def _save(engine: ImageEngine, draft: Draft, progress: _Progress, threads: Threads) -> None:
    gathered = bytearray()
    async with engine.save(draft.image) as pieces:
        async for piece in pieces:
            gathered += piece
            if len(gathered) >= PIECE_BYTES:
                await threads.run(partial(draft.write, bytes(gathered)))
                progress.add(len(gathered))
                gathered.clear()
    await threads.run(partial(draft.write, bytes(gathered)))
    progress.add(len(gathered))


async def _copy_saved(saved: Draft, draft: Draft, progress: _Progress, threads: Threads) -> ImageRecord:
    """Keep the image in what an engine saved, under its whole name and with what belongs to it only."""
    check = trio.from_thread.check_cancelled
    with await threads.run(partial(saved.read, check)) as file:
        entry = _entry_for(await threads.run(partial(read_archive, file.read)), draft)
        steps = copy_images(file, [Wanted(entry, draft.image)])
        while (step := await threads.run(partial(next, steps, None))) is not None:
            if isinstance(step, Spoilt):
                raise BadArchive(step.why)
            await threads.run(partial(draft.write, step.data))
            progress.add(len(step.data))
    return await threads.run(partial(draft.keep, entry))


def _entry_for(archive: Archive, draft: Draft) -> ArchiveEntry:
    named = [entry for entry in archive.entries if draft.image in entry.names]
    for entry in named:
        if runs_on(draft.platform, entry.platform):
            return entry
    raise BadArchive(f"it is for {named[0].platform}" if named else "the image has another name in it")


@attrs.frozen
class Repacked:
    """What :func:`repack` did: the records of all images that are in the folder now, and what went wrong."""

    records: tuple[ImageRecord, ...]
    troubles: tuple[str, ...]


async def repack(tars: Sequence[Path], folder: Path, report: Report) -> Repacked:
    """Copy each image of archives, compressed ones also, into an uncompressed tar of its own in *folder*.

    A compressed archive is inflated twice: to see what is in it, and to copy all its images. What cannot be read is
    told, and costs no other. Raises :class:`scavenge.StoreError` when the folder cannot be written. Cancelled, it
    leaves what is whole.
    """
    await trio.lowlevel.checkpoint()
    work = _Repacking(PackedFolder(folder), _Progress(report), LimitedThreads(1))
    for tar in tars:
        await work.take(tar)
    return Repacked(tuple(work.records.values()), tuple(work.troubles))


@attrs.define(eq=False)
class _Repacking:
    packed: PackedFolder
    progress: _Progress
    threads: Threads
    records: dict[tuple[str, str], ImageRecord] = attrs.field(factory=dict, init=False)
    """By the images' names and platforms."""
    troubles: list[str] = attrs.field(factory=list, init=False)

    async def take(self, tar: Path) -> None:
        """Repack one archive."""
        await trio.lowlevel.checkpoint()
        check = trio.from_thread.check_cancelled
        try:
            with await self.threads.run(partial(ArchiveFile, tar, check)) as file:
                archive = await self.threads.run(partial(read_archive, file.read))
                at_once = MOST_AT_ONCE if file.compression else 1
            self.troubles += [f"{tar}: {trouble}" for trouble in archive.troubles]
            wanted = await self.threads.run(partial(self._wanted, tar, archive))
            for start in range(0, len(wanted), at_once):
                with await self.threads.run(partial(ArchiveFile, tar, check)) as file:
                    await self._copy(tar, file, wanted[start : start + at_once])
        except (BadArchive, CannotInflate) as exc:
            self.troubles.append(f"{tar}: {one_line(str(exc))}")
        except OSError as exc:
            self.troubles.append(f"{tar}: cannot be read: {exc.strerror}")

    def _wanted(self, tar: Path, archive: Archive) -> list[Wanted]:
        """What is to be copied: under each of its names, unless it is there."""
        found = []
        for entry in archive.entries:
            if not entry.names:
                self.troubles.append(f"{tar}: an image has no name ({entry.config_digest}); save it by its name")
            for name in entry.names:
                key = (name, str(entry.platform))
                known = self.records.get(key) or self.packed.kept(name, entry.platform)
                if known is not None and (known.config_digest, known.diff_ids) == (entry.config_digest, entry.diff_ids):
                    self.records[key] = known
                elif key in self.records:
                    self.troubles.append(f"{tar}: {name} is another image there than in a tar before it; left")
                else:
                    found.append(Wanted(entry, name))
        return found

    async def _copy(self, tar: Path, file: ArchiveFile, wanted: Sequence[Wanted]) -> None:
        await trio.lowlevel.checkpoint()
        self.progress.expect(sum(map(archive_size, wanted)))
        with ExitStack() as stack:
            drafts = []
            for image in wanted:
                draft = self.packed.open_draft(image.name, image.entry.platform)
                drafts.append(await self.threads.run(partial(stack.enter_context, draft)))
            steps = copy_images(file, wanted)
            while (step := await self.threads.run(partial(next, steps, None))) is not None:
                if isinstance(step, Spoilt):
                    self._give_up(tar, step, drafts)
                else:
                    await self.threads.run(partial(self._write, step, wanted, drafts))
                    self.progress.add(len(step.data) * len(step.images))

    def _write(self, step: Copied, wanted: Sequence[Wanted], drafts: Sequence[Draft]) -> None:
        for number in step.images:
            draft = drafts[number]
            draft.write(step.data)
            if step.last:
                self.records[draft.image, str(draft.platform)] = draft.keep(wanted[number].entry)

    def _give_up(self, tar: Path, step: Spoilt, drafts: Sequence[Draft]) -> None:
        for number in step.images:
            drafts[number].discard()
            self.troubles.append(f"{tar}: {drafts[number].image}: {step.why}")


@attrs.define(eq=False)
class _Progress:
    """How far something is, told as it goes on; what turns out larger than expected grows the whole."""

    report: Report
    expected_bytes: int = 0
    done_bytes: int = 0

    def expect(self, size_bytes: int) -> None:
        """More is to come."""
        self.expected_bytes += size_bytes

    def add(self, size_bytes: int) -> None:
        """So much is done."""
        self.done_bytes += size_bytes
        self.report(Transferred(self.done_bytes, max(self.done_bytes, self.expected_bytes)))
