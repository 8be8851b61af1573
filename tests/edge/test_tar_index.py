"""The index of image tars: what is looked into, what is kept on disk, and what is passed over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from archive_kit import Made, oci, old_docker, packed
from scavenge.edge.images import tar_cache, tar_index
from scavenge.edge.images.archive_file import ArchiveFile
from scavenge.edge.images.tar_cache import FILE, LOCK, cache_folder
from scavenge.edge.images.tar_index import TarIndex

X, Y, Z = (f"docker.io/library/{name}:1" for name in "xyz")
ONE, TWO, THREE = (Made((name,)) for name in (X, Y, Z))


class World:
    """A folder with tars, another for the cache, and what was opened and told."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tars, self.cache = tmp_path / "tars", tmp_path / "cache"
        self.tars.mkdir()
        self.warnings: list[str] = []
        self.opened: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None
        world = self

        class Watched(ArchiveFile):
            def __init__(self, path: Path, check: Callable[[], object] = lambda: None) -> None:
                world.opened.append(path.name)
                super().__init__(path, check)

            def close(self) -> None:
                super().close()
                world.meanwhile()

        monkeypatch.setattr(tar_index, "ArchiveFile", Watched)

    def put(self, name: str, *images: Made, data: bytes | None = None, age_s: float = 100) -> Path:
        path = self.tars / name
        path.write_bytes(old_docker(images) if data is None else data)
        at = time.time() - age_s
        os.utime(path, (at, at))
        return path

    def index(self, *globs: str) -> TarIndex:
        return TarIndex(globs or [f"{self.tars}/*"], self.cache, self.warnings.append)

    def look(self, *globs: str) -> None:
        """A run that looks for what is nowhere."""
        trio.run(self.index(*globs).find, "docker.io/library/absent:1")

    async def paths(self, image: str, index: TarIndex | None = None) -> list[str]:
        return [place.path.name for place in await (index or self.index()).find(image)]

    def say_cached(self) -> dict[str, object]:
        return json.loads((self.cache / FILE).read_bytes())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


async def test_an_image_is_found_in_plain_and_compressed_tars(world: World):
    world.put("a.tar", ONE)
    world.put("b.tar.gz", data=packed(old_docker([TWO]), "gzip"))
    world.put("c.tar.zst", data=packed(oci([THREE]), "zstd"))
    index = world.index()
    assert [await world.paths(image, index) for image in (X, Y, Z, "docker.io/library/absent:1")] == [
        ["a.tar"], ["b.tar.gz"], ["c.tar.zst"], [],
    ]  # fmt: skip
    assert (index.archives, world.warnings) == (3, [])


async def test_the_newest_tar_comes_first(world: World):
    world.put("older.tar", ONE, age_s=2000)
    world.put("newest.tar", ONE, TWO, age_s=100)
    world.put("old.tar", ONE, age_s=1000)
    assert await world.paths(X) == ["newest.tar", "old.tar", "older.tar"]


def test_a_tar_is_looked_into_once_for_as_long_as_it_stays_as_it_is(world: World):
    world.put("a.tar", ONE)
    world.put("b.tar", TWO)
    world.look()
    assert sorted(world.opened) == ["a.tar", "b.tar"]
    world.look()
    assert trio.run(world.paths, X) == ["a.tar"]
    assert sorted(world.opened) == ["a.tar", "b.tar"]
    world.put("b.tar", THREE, age_s=50)
    assert trio.run(world.paths, Z) == ["b.tar"]
    assert trio.run(world.paths, Y) == []
    assert sorted(world.opened) == ["a.tar", "b.tar", "b.tar"]


def test_what_is_kept_is_what_was_seen(world: World):
    arm = Made((X, Y), platform={"os": "linux", "architecture": "arm64", "variant": "v8"})
    world.put("a.tar", data=oci([arm], "zstd"))
    found = trio.run(world.index().find, Y)
    assert trio.run(world.index().find, Y) == found
    assert len(world.opened) == 1


LOOKED = {"key": [1, 2, 3], "trouble": "", "troubles": [], "images": []}


def cached(**changes: object) -> bytes:
    """A cache that says something else of a file."""
    return json.dumps({"version": tar_cache.VERSION, "files": {"x": LOOKED | changes}}).encode()


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"garbage", b"[]", b"{}", b"null"),
        *(b'{"version": 99, "files": {}}', b'{"version": 1}', b'{"version": 1, "files": 7}'),
        cached(key=None),
        cached(key=[1, 2]),
        cached(key=[1, 2, "3"]),
        cached(images=[{"names": [7]}]),
        cached(trouble=7),
        cached(troubles=7),
    ],
)
def test_a_cache_that_is_none_is_written_anew(world: World, text: bytes):
    world.put("a.tar", ONE)
    world.look()
    (world.cache / FILE).write_bytes(text)
    assert trio.run(world.paths, X) == ["a.tar"]
    assert len(world.opened) == 2
    assert trio.run(world.paths, X) == ["a.tar"]
    assert (len(world.opened), world.warnings) == (2, [])


def test_a_cache_of_another_version_is_written_anew(world: World, monkeypatch: pytest.MonkeyPatch):
    world.put("a.tar", ONE)
    with monkeypatch.context() as patch:
        patch.setattr(tar_cache, "VERSION", tar_cache.VERSION + 1)
        world.look()
    for _ in range(2):
        world.look()
    assert len(world.opened) == 2
    assert world.say_cached()["version"] == tar_cache.VERSION


def test_a_cache_that_is_cut_or_huge_is_written_anew(world: World, monkeypatch: pytest.MonkeyPatch):
    world.put("a.tar", ONE)
    world.look()
    whole = (world.cache / FILE).read_bytes()
    for length in range(0, len(whole), 40):
        (world.cache / FILE).write_bytes(whole[:length])
        assert tar_cache.read_cache(world.cache) == {}
    (world.cache / FILE).write_bytes(whole)
    assert len(tar_cache.read_cache(world.cache)) == 1
    monkeypatch.setattr(tar_cache, "MOST_BYTES", len(whole) - 1)
    assert tar_cache.read_cache(world.cache) == {}


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(world: World):
    world.put("a.tar", ONE)
    world.cache.write_bytes(b"a file where a folder should be")
    for _ in range(2):
        assert trio.run(world.paths, X) == ["a.tar"]
    assert (len(world.opened), world.warnings) == (2, [])


def test_no_draft_of_the_cache_stays_when_the_disk_is_full(world: World, monkeypatch: pytest.MonkeyPatch):
    world.put("a.tar", ONE)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert trio.run(world.paths, X) == ["a.tar"]
    assert [path.name for path in world.cache.iterdir()] == [LOCK]


def test_files_that_are_gone_are_forgotten_and_others_that_are_not_looked_for_are_kept(world: World):
    world.put("a.tar", ONE)
    gone = world.put("b.tar", TWO)
    world.look()
    gone.unlink()
    world.put("c.tar", THREE)
    world.look(f"{world.tars}/c.tar")
    assert sorted(map(os.path.basename, world.say_cached()["files"])) == ["a.tar", "c.tar"]


def test_a_lock_that_somebody_holds_is_not_waited_for_long(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tar_cache, "_LOCK_PAUSE_S", 0.0)
    world.put("a.tar", ONE)
    world.cache.mkdir()
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(world.cache / LOCK)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        world.look()
        assert not (world.cache / FILE).exists()
        holder.communicate(b"\n")
    world.look()
    assert (world.cache / FILE).exists()


def test_a_file_system_without_locks_will_do(world: World, monkeypatch: pytest.MonkeyPatch):
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(tar_cache.fcntl, "flock", unsupported)
    world.put("a.tar", ONE)
    world.look()
    assert (world.cache / FILE).exists()


@pytest.mark.parametrize("name", ["a.tar.part", "a.tar.tmp", "a.json", "a.txt", ".a.tar.x"])
def test_what_is_no_tar_by_its_name_is_passed_over(world: World, name: str):
    world.put(name, ONE)
    assert trio.run(world.paths, X) == []
    assert world.opened == []


def test_a_folder_means_the_tars_in_it(world: World):
    world.put("a.tgz", data=packed(old_docker([ONE]), "gzip"))
    world.put("notes.txt", data=b"nothing")
    assert [place.path.name for place in trio.run(world.index(str(world.tars)).find, X)] == ["a.tgz"]


def test_globs_may_go_deep_and_meet_the_same_file(world: World):
    (world.tars / "deep" / "deeper").mkdir(parents=True)
    path = world.put("deep/deeper/a.tar", ONE)
    (world.tars / "b.tar").symlink_to(path)
    index = world.index(f"{world.tars}/**/*.tar", f"{world.tars}/*.tar", str(path))
    assert len(trio.run(index.find, X)) == 1
    assert world.opened == ["a.tar"]


def test_a_link_to_nothing_and_what_is_no_file_are_passed_over(world: World):
    (world.tars / "a.tar").symlink_to(world.tars / "nowhere")
    os.mkfifo(world.tars / "b.tar")
    (world.tars / "c.tar").mkdir()
    world.look()
    assert world.opened == []


def test_a_tar_that_cannot_be_read_costs_itself_and_one_warning(world: World):
    world.put("a.tar", data=b"garbage" * 1000)
    world.put("b.tar", data=old_docker([ONE])[:3000])
    world.put("c.tar", ONE)
    index = world.index()

    async def twice() -> None:
        for image in (X, Y, Z):
            await index.find(image)

    trio.run(twice)
    assert [text.partition(": ")[2] for text in world.warnings] == ["it is no tar archive", "it is cut short"]
    assert trio.run(world.paths, X) == ["c.tar"]
    assert sorted(world.opened) == ["a.tar", "b.tar", "c.tar"]


def test_what_is_wrong_with_a_part_of_a_tar_is_told_by_every_run(world: World):
    world.put("a.tar", Made((X, "NOT A NAME")))
    world.put("b.tar", Made(()))
    for _ in range(2):
        world.look()
    assert len(world.opened) == 2
    told = [text for text in world.warnings if "a.tar" in text]
    assert len(told) == 2
    assert "NOT A NAME" in told[0]
    assert "have no names" in next(text for text in world.warnings if "b.tar" in text)


def test_a_tar_that_the_system_does_not_give_is_told_and_tried_again(world: World, monkeypatch: pytest.MonkeyPatch):
    path = world.put("a.tar", ONE)
    real = os.open

    def forbidden(name: object, *arguments: object, **more: object) -> int:
        if str(name) == os.path.realpath(path):
            raise PermissionError(13, "Permission denied")
        return real(name, *arguments, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", forbidden)
        assert trio.run(world.paths, X) == []
    assert world.warnings == [f"{path}: cannot be read: Permission denied"]
    assert trio.run(world.paths, X) == ["a.tar"]


def test_without_zstandard_its_tars_are_told_and_looked_into_later(world: World, monkeypatch: pytest.MonkeyPatch):
    world.put("a.tar.zst", data=packed(old_docker([ONE]), "zstd"))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "zstandard", None)
        world.look()
    assert "pip install 'scavenge[images]'" in world.warnings[0]
    assert trio.run(world.paths, X) == ["a.tar.zst"]


def test_a_glob_that_nothing_matches_is_told_once(world: World):
    index = world.index("/nowhere/*.tar")

    async def twice() -> None:
        for _ in range(2):
            await index.find(X)
            index._listed_at = -1e9

    trio.run(twice)
    assert world.warnings == ['no image tar matches "/nowhere/*.tar" (.tar, .tar.gz, .tgz, .tar.zst)']


def test_a_young_file_that_is_no_archive_yet_is_being_written(world: World):
    path = world.put("a.tar", data=old_docker([ONE])[:2000], age_s=1)
    index = world.index()
    assert trio.run(index.find, X) == []
    assert (index.growing, world.warnings) == ((path,), [])
    world.put("a.tar", ONE, age_s=0)
    assert trio.run(world.paths, X) == ["a.tar"]


def test_a_file_that_changes_while_it_is_read_is_being_written(world: World):
    path = world.put("a.tar", ONE)
    world.meanwhile = lambda: os.utime(path, (time.time(), time.time()))
    index = world.index()
    assert trio.run(index.find, X) == []
    assert index.growing == (path,)


def test_a_file_that_is_removed_while_it_is_read_is_gone(world: World):
    path = world.put("a.tar", ONE)
    world.meanwhile = lambda: path.unlink(missing_ok=True)
    assert trio.run(world.paths, X) == []
    assert world.warnings == []


async def test_a_tar_that_arrives_is_found_once_the_files_are_listed_again(world: World, mock_clock):
    index = world.index()
    world.put("a.tar", ONE)
    assert await world.paths(X, index) == ["a.tar"]
    world.put("b.tar", TWO)
    assert await world.paths(Y, index) == []
    mock_clock.jump(tar_index.LIST_EVERY_S + 1)
    assert await world.paths(Y, index) == ["b.tar"]


async def test_a_place_that_was_forgotten_has_the_files_listed_again(world: World):
    path = world.put("a.tar", ONE)
    index = world.index()
    (place,) = await index.find(X)
    world.put("a.tar", ONE, TWO, age_s=50)
    index.forget(place)
    (again,) = await index.find(X)
    assert (again.path, again.key != place.key) == (path, True)


async def test_many_who_look_have_each_file_looked_into_once(world: World):
    for number in range(5):
        world.put(f"{number}.tar", Made((f"docker.io/library/n{number}:1",)))
    index = world.index()
    found = []

    async def find(image: str) -> None:
        found.append(await world.paths(image, index))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(find, f"docker.io/library/n{number % 6}:1")
    assert len(world.opened) == 5
    assert sum(map(len, found)) == 17


async def test_what_takes_long_is_looked_into_only_when_it_is_needed(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tar_index, "LARGE_BYTES", 10)
    world.put("a.tar.gz", data=packed(old_docker([TWO]), "gzip"))
    world.put("b.tar", ONE)
    index = world.index()
    assert await world.paths(X, index) == ["b.tar"]
    assert (world.opened, world.warnings) == (["b.tar"], [])
    assert await world.paths(Y, index) == ["a.tar.gz"]
    assert world.opened == ["b.tar", "a.tar.gz"]
    assert "scavenge images repack" in world.warnings[0]


async def test_a_look_that_is_cancelled_goes_on_where_it_was(world: World):
    for name in "abc":
        world.put(f"{name}.tar", Made((f"docker.io/library/{name}:1",)))
    index = world.index()
    with trio.CancelScope() as scope:
        world.meanwhile = lambda: len(world.opened) == 2 and trio.from_thread.run_sync(scope.cancel)
        await index.find(X)
    assert scope.cancelled_caught
    assert world.opened == ["a.tar", "b.tar"]
    assert await world.paths("docker.io/library/c:1", index) == ["c.tar"]
    assert world.opened.count("a.tar") == 1


def test_names_that_are_no_text_are_not_kept_but_found(world: World):
    path = Path(os.fsdecode(os.fsencode(world.tars) + b"/\xff.tar"))
    path.write_bytes(old_docker([ONE]))
    os.utime(path, (1, 1))
    assert len(trio.run(world.index().find, X)) == 1
    assert world.say_cached()["files"] == {}


def test_the_cache_lies_where_such_things_belong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder({"XDG_CACHE_HOME": "/var/caches"}) == Path("/var/caches/scavenge")
    for environ in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative/folder"}):
        assert cache_folder(environ) == tmp_path / ".cache" / "scavenge"
