"""Packing images into tars of their own: out of an engine and out of archives, whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
import trio
from engine_kit import DIGEST, engine_and_client, ignore

from archive_kit import Made, digest_of, new_docker, oci, old_docker, packed
from fake_engine import Cut, FakeEngine, Raw, Refuses
from fake_images import FakeImage, docker_archive
from scavenge.core.images.layout import parse_record, record_name
from scavenge.edge.images import packed_folder, packing
from scavenge.edge.images.archive_file import read_file
from scavenge.edge.images.engine import HttpEngine
from scavenge.edge.images.packing import Repacked, pack, repack
from scavenge.errors import EngineError, ImageUnavailable, StoreError
from scavenge.images import ImageRecord, Platform, Transferred
from scavenge.runtime.ports import Report

X, Y, Z = (f"docker.io/library/{name}:1" for name in "xyz")
AMD64 = Platform("linux", "amd64")
BIG = FakeImage((b"base" * 270_000, b"top" * 100))
ONE, TWO, THREE = Made((X,)), Made((Y,), (b"the lowest layer" * 50, b"own")), Made((Z,), (b"all its own" * 99,))


@asynccontextmanager
async def open_world(**settings: object) -> AsyncIterator[tuple[FakeEngine, HttpEngine]]:
    async with engine_and_client(**settings) as (engine, client):
        engine.images[X] = BIG
        yield engine, client


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def check(folder: Path, record: ImageRecord) -> None:
    """That a packed image is what its record says, and that nothing else is found in it."""
    data = (folder / record.archive).read_bytes()
    assert (len(data), sha256(data).hexdigest()) == (record.size_bytes, record.sha256)
    assert parse_record((folder / record_name(record.image, record.platform)).read_bytes()) == record
    _, archive = read_file(folder / record.archive)
    (entry,) = archive.entries
    assert record.image in entry.names
    assert (entry.config_digest, entry.diff_ids, entry.platform) == (
        record.config_digest,
        record.diff_ids,
        record.platform,
    )


@pytest.mark.parametrize("podman", [False, True])
async def test_an_image_of_the_engine_is_packed_with_its_record(tmp_path: Path, podman: bool):
    told: list[Transferred] = []
    async with open_world(podman=podman) as (_, client):
        record = await pack(client, X, tmp_path / "new" / "folder", told.append)
    check(tmp_path / "new" / "folder", record)
    assert (record.image, record.platform, record.diff_ids) == (X, AMD64, BIG.diff_ids)
    assert len(names(tmp_path / "new" / "folder")) == 2
    assert told[-1].done_bytes == told[-1].total_bytes > 2 * record.size_bytes - 10_000  # it is saved, and copied
    assert [transferred.done_bytes for transferred in told] == sorted({transferred.done_bytes for transferred in told})


async def test_a_packed_image_has_its_whole_name_and_nothing_else_in_it(tmp_path: Path):
    async with open_world() as (engine, client):
        engine.script("save", Raw(docker_archive([("x:1", BIG), ("y:1", FakeImage((b"another",)))])))
        record = await pack(client, X, tmp_path, ignore)
    with tarfile.open(tmp_path / record.archive) as tar:
        held = tar.extractfile("manifest.json")
        assert held is not None
        assert [entry["RepoTags"] for entry in json.loads(held.read())] == [[X]]


async def test_an_image_that_is_packed_already_is_not_saved_again(tmp_path: Path):
    async with open_world() as (engine, client):
        record = await pack(client, X, tmp_path, ignore)
        assert await pack(client, X, tmp_path, ignore) == record
        assert engine.calls["save"] == 1


@pytest.mark.parametrize("harm", ["shorter", "gone", "no record"])
async def test_an_image_whose_tar_is_not_whole_is_packed_again(tmp_path: Path, harm: str):
    async with open_world() as (engine, client):
        record = await pack(client, X, tmp_path, ignore)
        if harm == "shorter":
            os.truncate(tmp_path / record.archive, 100)
        elif harm == "gone":
            (tmp_path / record.archive).unlink()
        else:
            (tmp_path / record_name(X, AMD64)).write_bytes(b"{}")
        check(tmp_path, await pack(client, X, tmp_path, ignore))
        assert engine.calls["save"] == 2


async def test_an_image_that_is_another_now_takes_the_place_of_the_old_one(tmp_path: Path):
    async with open_world() as (engine, client):
        before = await pack(client, X, tmp_path, ignore)
        engine.images[X] = FakeImage((b"new",))
        after = await pack(client, X, tmp_path, ignore)
    check(tmp_path, after)
    assert names(tmp_path) == sorted([after.archive, record_name(X, AMD64)])
    assert before.archive != after.archive


async def test_an_image_that_the_engine_does_not_have_is_told(tmp_path: Path):
    async with open_world() as (_, client):
        with pytest.raises(ImageUnavailable, match="pull it first"):
            await pack(client, Y, tmp_path, ignore)
    assert names(tmp_path) == []


@pytest.mark.parametrize("answer", [Cut(), Refuses(500, "it broke")])
async def test_a_save_that_breaks_leaves_nothing(tmp_path: Path, answer: Cut | Refuses):
    async with open_world() as (engine, client):
        engine.script("save", answer)
        with pytest.raises(EngineError):
            await pack(client, X, tmp_path, ignore)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("saved", "why"),
    [
        (b"garbage", "too short for an archive"),
        (b"", "it is empty"),
        (docker_archive([(X, BIG)])[:4000], "cut short"),
        (docker_archive([("y:1", BIG)]), "another name in it"),
        (docker_archive([(None, BIG)]), "another name in it"),
        (docker_archive([(X, BIG)]).replace(b"toptop", b"pottop", 1), "does not have the digest"),
        (old_docker([Made((X,), platform={"os": "linux", "architecture": "arm64"})]), "it is for linux/arm64"),
    ],
)
async def test_a_save_that_is_not_the_image_is_refused_and_leaves_nothing(tmp_path: Path, saved: bytes, why: str):
    async with open_world() as (engine, client):
        engine.script("save", Raw(saved))
        with pytest.raises(StoreError, match=why):
            await pack(client, X, tmp_path, ignore)
    assert names(tmp_path) == []


async def is_cancelled(after: int, use: Callable[[Report], Awaitable[object]]) -> bool:
    """Cancel what tells how far it is when it has told that so many times; whether it did."""
    told: list[Transferred] = []
    scope = trio.CancelScope()

    def report(transferred: Transferred) -> None:
        told.append(transferred)
        if len(told) == after:
            scope.cancel()

    with scope:
        await use(report)
    return scope.cancelled_caught


async def test_packing_that_is_cancelled_leaves_nothing_wherever_it_was(tmp_path: Path):
    async with open_world() as (_, client):
        for pieces in range(1, 100):
            if not await is_cancelled(pieces, partial(pack, client, X, tmp_path)):
                break
            assert not any(name.endswith((".tar", ".json", ".part")) for name in names(tmp_path))
        assert pieces > 2
        assert len(names(tmp_path)) == 2


async def test_one_image_is_saved_at_a_time(tmp_path: Path):
    async with open_world() as (engine, client):
        for name in (Y, Z):
            engine.images[name] = FakeImage((name.encode() * 1000,))
        saving, most = 0, 0
        real = client.save

        @asynccontextmanager
        async def counted(image: str) -> AsyncIterator[AsyncIterator[bytes]]:
            nonlocal saving, most
            async with real(image) as pieces:
                saving += 1
                most = max(most, saving)
                await trio.sleep(0.005)
                yield pieces
            saving -= 1

        client.save = counted  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            for name in (X, Y, Z):
                nursery.start_soon(pack, client, name, tmp_path, ignore)
    assert most == 1
    assert len(names(tmp_path)) == 6


async def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 500_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(packed_folder.os, "write", full)
    async with open_world() as (_, client):
        with pytest.raises(StoreError, match=r"\.saved\.part: No space left on device; make room there"):
            await pack(client, X, tmp_path, ignore)
    assert names(tmp_path) == []


async def test_what_was_saved_and_cannot_be_read_back_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    async with open_world() as (_, client):
        with pytest.raises(StoreError, match=r"\.saved\.part: Input/output error"):
            await pack(client, X, tmp_path, ignore)
    assert names(tmp_path) == []


async def test_an_image_that_is_named_by_its_digest_is_not_packed(tmp_path: Path):
    async with open_world() as (_, client):
        with pytest.raises(StoreError, match="give the image a tag"):
            await pack(client, DIGEST, tmp_path, ignore)


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    async with open_world() as (_, client):
        with pytest.raises(StoreError, match="see that it can be written"):
            await pack(client, X, tmp_path / "file", ignore)


async def test_a_tar_that_another_process_writes_is_left_alone(tmp_path: Path):
    part = tmp_path / record_name(X, AMD64).replace(".json", ".tar.part")
    part.write_bytes(b"its")
    with part.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        async with open_world() as (_, client):
            with pytest.raises(StoreError, match="another process is just writing it"):
                await pack(client, X, tmp_path, ignore)
        assert part.read_bytes() == b"its"


async def test_a_part_that_a_dead_process_left_is_written_anew(tmp_path: Path):
    part = tmp_path / record_name(X, AMD64).replace(".json", ".tar.part")
    part.write_bytes(b"left" * 10**6)
    async with open_world() as (_, client):
        check(tmp_path, await pack(client, X, tmp_path, ignore))
    assert len(names(tmp_path)) == 2


async def test_a_folder_without_locks_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def unsupported(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(packed_folder.fcntl, "flock", unsupported)
    async with open_world() as (_, client):
        check(tmp_path, await pack(client, X, tmp_path, ignore))


async def test_a_part_that_got_its_name_meanwhile_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whoever waits to open it would have the finished tar in its hands."""
    real, taken = packed_folder.fcntl.flock, []

    def renamed_first(fd: int, how: int) -> None:
        if not taken:
            taken.append((tmp_path / names(tmp_path)[0]).rename(tmp_path / "finished.tar"))
        real(fd, how)

    monkeypatch.setattr(packed_folder.fcntl, "flock", renamed_first)
    async with open_world() as (_, client):
        check(tmp_path, await pack(client, X, tmp_path, ignore))
    assert (tmp_path / "finished.tar").read_bytes() == b""


# --- repacking


async def repacked(folder: Path, *tars: Path) -> Repacked:
    found = await repack(tars, folder, ignore)
    for record in found.records:
        check(folder, record)
    return found


def put(folder: Path, name: str, data: bytes) -> Path:
    (folder / name).write_bytes(data)
    return folder / name


@pytest.mark.parametrize("pack_by", ["", "gzip", "zstd"])
@pytest.mark.parametrize("write", [old_docker, new_docker, oci])
async def test_each_image_of_a_batch_gets_a_tar_of_its_own(tmp_path: Path, write, pack_by: str):
    tar = put(tmp_path, "batch.tar", packed(write([ONE, TWO, THREE]), pack_by))
    found = await repacked(tmp_path / "out", tar)
    assert [(record.image, record.diff_ids) for record in found.records] == [
        (image.names[0], image.diff_ids) for image in (ONE, TWO, THREE)
    ]
    assert found.troubles == ()
    assert len(names(tmp_path / "out")) == 6


async def test_a_compressed_batch_is_inflated_twice_however_many_images_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    opened = []
    real = packing.ArchiveFile
    monkeypatch.setattr(packing, "ArchiveFile", lambda path, check: opened.append(path) or real(path, check))
    tar = put(tmp_path, "batch.tar.gz", packed(old_docker([ONE, TWO, THREE]), "gzip"))
    await repacked(tmp_path / "out", tar)
    assert opened == [tar, tar]


async def test_many_images_of_a_compressed_batch_are_copied_in_several_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(packing, "MOST_AT_ONCE", 2)
    tar = put(tmp_path, "batch.tar.gz", packed(old_docker([ONE, TWO, THREE]), "gzip"))
    assert len((await repacked(tmp_path / "out", tar)).records) == 3


async def test_repacking_goes_on_where_it_was(tmp_path: Path):
    tar = put(tmp_path, "batch.tar", old_docker([ONE, TWO]))
    first = await repacked(tmp_path / "out", tar)
    (tmp_path / "out" / first.records[1].archive).unlink()
    kept = (tmp_path / "out" / first.records[0].archive).stat().st_mtime_ns
    again = await repacked(tmp_path / "out", tar)
    assert {record.image for record in again.records} == {X, Y}
    assert again.records[0] == first.records[0]
    assert (tmp_path / "out" / first.records[0].archive).stat().st_mtime_ns == kept


async def test_the_same_image_has_the_same_tar_whatever_it_came_in(tmp_path: Path):
    archives = {"a": old_docker([TWO, ONE]), "b": new_docker([ONE]), "c": oci([ONE], "")}
    digests = set()
    for name, data in archives.items():
        found = await repacked(tmp_path / name, put(tmp_path, f"{name}.tar", data))
        digests |= {record.sha256 for record in found.records if record.image == X}
    assert len(digests) == 1


async def test_an_image_under_several_names_has_a_tar_for_each(tmp_path: Path):
    tar = put(tmp_path, "a.tar", old_docker([Made((X, Y))]))
    assert [record.image for record in (await repacked(tmp_path / "out", tar)).records] == [X, Y]


async def test_a_name_that_means_two_images_is_told_and_the_first_counts(tmp_path: Path):
    other = Made((X,), (b"something else",))
    tars = [put(tmp_path, "a.tar", old_docker([ONE])), put(tmp_path, "b.tar", old_docker([other, TWO]))]
    for _ in range(2):
        found = await repacked(tmp_path / "out", *tars)
        assert {record.image: record.diff_ids for record in found.records} == {X: ONE.diff_ids, Y: TWO.diff_ids}
        assert f"{tars[1]}: {X} is another image there" in found.troubles[0]


async def test_what_cannot_be_read_is_told_and_costs_no_other(tmp_path: Path):
    spoilt = old_docker([TWO, THREE]).replace(THREE.layers[0][-9:], bytes(9), 1)
    tars = [
        tmp_path / "absent.tar",
        put(tmp_path, "garbage.tar", b"garbage" * 1000),
        put(tmp_path, "spoilt.tar.gz", packed(spoilt, "gzip")),
        put(tmp_path, "nameless.tar", old_docker([Made(())])),
        put(tmp_path, "xz.tar.xz", b"\xfd7zXZ\0" + bytes(99)),
        put(tmp_path, "good.tar", old_docker([ONE])),
    ]
    found = await repacked(tmp_path / "out", *tars)
    assert {record.image for record in found.records} == {X, Y}
    assert [trouble.partition(": ")[2] for trouble in found.troubles] == [
        "cannot be read: No such file or directory",
        "it is no tar archive",
        f"{Z}: {digest_of(THREE.layers[0])[7:]}.tar does not have the digest {digest_of(THREE.layers[0])}",
        f"an image has no name ({Made(()).config_digest}); save it by its name",
        "it is compressed by xz, which is not read; compress it by gzip or zstd, or not at all",
    ]
    assert len(names(tmp_path / "out")) == 4


async def test_a_compressed_file_that_is_cut_in_the_middle_leaves_only_what_is_whole(tmp_path: Path):
    tar = put(tmp_path, "a.tar.gz", packed(old_docker([ONE, Made((Y,), (os.urandom(9_000),))]), "gzip"))
    os.truncate(tar, tar.stat().st_size // 2)
    found = await repacked(tmp_path / "out", tar)
    assert (found.records, names(tmp_path / "out")) == ((), [])
    assert found.troubles == (f"{tar}: it is cut short",)


async def test_a_full_disk_ends_repacking_and_leaves_what_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    big = Made((Y,), (os.urandom(600_000),))
    tar = put(tmp_path, "a.tar", old_docker([ONE, big]))
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 500_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(packed_folder.os, "write", full)
    with pytest.raises(StoreError, match="make room there"):
        await repack([tar], tmp_path / "out", ignore)
    assert len(names(tmp_path / "out")) == 2


@pytest.mark.parametrize("pack_by", ["", "gzip"])
async def test_repacking_that_is_cancelled_leaves_no_half_tar(tmp_path: Path, pack_by: str):
    tar = put(tmp_path, "a.tar", packed(old_docker([ONE, TWO]), pack_by))
    for step in range(1, 100):
        cancelled = await is_cancelled(step, partial(repack, [tar], tmp_path / "out"))
        found = names(tmp_path / "out")
        assert not any(name.endswith(".part") for name in found)
        assert len([name for name in found if name.endswith(".json")]) * 2 == len(found)
        if not cancelled:
            break
    assert 4 < step < 99


async def test_progress_is_told_in_bytes_that_are_written(tmp_path: Path):
    told: list[Transferred] = []
    tar = put(tmp_path, "a.tar.gz", packed(old_docker([ONE, TWO]), "gzip"))
    found = await repack([tar], tmp_path / "out", told.append)
    written = sum(record.size_bytes for record in found.records)
    assert told[-1] == Transferred(written, written)


def test_a_process_that_is_killed_leaves_no_half_tar_and_the_next_goes_on(tmp_path: Path):
    big = Made((Z,), (os.urandom(2**20),))
    tar = put(tmp_path, "a.tar", old_docker([ONE, big]))
    code = """
        import sys, time, trio
        from pathlib import Path
        from scavenge.edge.images.packing import repack
        def report(transferred):
            if transferred.done_bytes > 2**20:
                print("written", flush=True)
                time.sleep(60)
        trio.run(repack, [Path(sys.argv[1])], Path(sys.argv[2]), report)
    """
    out = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tar), str(out)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"written\n"
        child.send_signal(signal.SIGKILL)
    kinds = sorted(Path(name).suffix for name in names(out))
    assert kinds == [".json", ".part", ".tar"]
    before = time.time_ns()
    found = trio.run(repacked, out, tar)
    assert [record.image for record in found.records] == [X, Z]
    assert (out / found.records[0].archive).stat().st_mtime_ns < before
    assert len(names(out)) == 4


def test_who_made_it_is_told(monkeypatch: pytest.MonkeyPatch):
    packed_folder.made_by.cache_clear()
    assert packed_folder.made_by().startswith("scavenge ")
    packed_folder.made_by.cache_clear()

    def absent(_: str) -> str:
        raise packed_folder.PackageNotFoundError

    monkeypatch.setattr(packed_folder, "version", absent)
    assert packed_folder.made_by() == "scavenge"
    packed_folder.made_by.cache_clear()
