"""The store on a stub of ModelScope's API, by ModelScope's own SDK."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from modelscope_stub import HangsUp, Says, Site, open_modelscope_stub
from scavenge_modelscope import ModelScopeConfig, open_modelscope, store
from scavenge_modelscope.store import ModelScopeFiles

from scavenge.plugin import FileStore, StoreError, Transferred
from scavenge.testing import check_image_store

DATA = Random(1).randbytes(300_000)
SMALL = b"a record"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "MODELSCOPE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(store, "PAUSE_S", 0.001)
    with open_modelscope_stub() as site:
        site.repositories["me/images"] = {"a.tar": DATA}
        monkeypatch.setenv("MODELSCOPE_API_TOKEN", site.token)
        yield site
    assert not (tmp_path / ".modelscope").exists(), "the user's own folder was touched"


@asynccontextmanager
async def opened(site: Site, **keys: Any) -> AsyncIterator[ModelScopeFiles]:
    async with open_modelscope(ModelScopeConfig("me/images", endpoint=site.url, **keys)) as found:
        assert isinstance(found, FileStore)
        yield found._files  # type: ignore[misc]


async def read(files: ModelScopeFiles, name: str = "a.tar", start: int = 0) -> bytes:
    async with files.open_file(name, start) as pieces:
        return b"".join([piece async for piece in pieces])


def written(folder: Path, data: bytes) -> str:
    path = folder / "source"
    path.write_bytes(data)
    return str(path)


def unheard(transferred: Transferred) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("repo_type", ["dataset", "model"])
async def test_the_store_is_one(site: Site, repo_type: str):
    site.private = True

    @asynccontextmanager
    async def cutting() -> AsyncIterator[None]:
        site.cut_after = 900_000
        yield
        site.cut_after = None

    config = ModelScopeConfig("me/images", repo_type=repo_type, endpoint=site.url)
    await check_image_store(partial(open_modelscope, config), cut=cutting, secrets=[site.token], max_steps=6)
    assert site.tokens == {site.token}


# --- reading


async def test_a_file_comes_from_any_place_on(site: Site):
    async with opened(site) as files:
        assert await read(files) == DATA
        assert await read(files, start=7) == DATA[7:]
    assert site.ranged == ["bytes=7-"]


async def test_what_is_public_is_read_without_a_token(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MODELSCOPE_API_TOKEN")
    async with opened(site) as files:
        assert await read(files) == DATA
    assert site.tokens == {""}


async def test_a_file_that_is_not_there_is_no_error_of_the_store(site: Site):
    async with opened(site) as files:
        for _ in range(3):
            with pytest.raises(FileNotFoundError):
                await read(files, "b.tar")
    assert site.asked["repo"] == 1


async def test_a_repository_that_is_not_there_is_one(site: Site):
    site.repositories.clear()
    async with opened(site) as files:
        with pytest.raises(
            StoreError, match=r"me/images at http.*: not there, or private and the token may not see it"
        ):
            await read(files)


@pytest.mark.parametrize("ranges", [True, False])
async def test_a_download_that_is_cut_goes_on(site: Site, ranges: bool):
    site.ranges = ranges
    site.cut_after = 200_000
    async with opened(site) as files, files.open_file("a.tar") as pieces:
        data = b""
        async for piece in pieces:
            data += piece
            site.cut_after = None
    assert data == DATA


async def test_cuts_without_end_are_none_as_long_as_something_comes(site: Site):
    site.cut_after = 70_000
    async with opened(site) as files:
        assert await read(files, start=50_000) == DATA[50_000:]
    assert site.asked["read"] > 3


async def test_a_download_that_never_gets_on_is_an_error(site: Site):
    site.cut_after = 0
    async with opened(site) as files:
        with pytest.raises(StoreError, match=r"a\.tar: .*; tried 6 times"):
            await read(files)


async def test_a_file_that_was_taken_away_meanwhile_is_told(site: Site):
    site.cut_after = 200_000
    async with opened(site) as files, files.open_file("a.tar") as pieces:
        await anext(pieces)
        del site.repositories["me/images"]["a.tar"]
        with pytest.raises(StoreError, match="taken away while it was read"):
            [piece async for piece in pieces]


@pytest.mark.parametrize("trouble", [HangsUp(), Says(502), Says(500)])
async def test_a_fault_that_passes_is_passed_over(site: Site, trouble: Says | HangsUp):
    site.script("read", trouble)
    async with opened(site) as files:
        assert await read(files) == DATA


async def test_a_site_that_has_too_much_to_do_is_left_alone(site: Site):
    site.script("read", Says(429, "slow down", {"Retry-After": "40"}))
    async with opened(site) as files:
        with pytest.raises(StoreError, match="slow down; it is left alone for a while") as caught:
            await read(files)
    assert caught.value.retry_after_s == 40.0


async def test_a_token_that_is_refused_is_told_and_not_shown(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", "ms-another-one-entirely")
    async with opened(site) as files:
        with pytest.raises(StoreError, match=r"the token \[secret\] is unknown; it wants a token, or refuses"):
            await read(files)


async def test_a_site_that_is_not_there_is_told(site: Site):
    config = ModelScopeConfig("me/images", endpoint="http://127.0.0.1:9")
    async with open_modelscope(config) as found:
        with pytest.raises(StoreError, match=r"dataset me/images at http://127.0.0.1:9: .*; tried 2 times"):
            await found.find("docker.io/library/x:1", "linux/amd64")


async def test_a_read_that_hangs_can_be_left(site: Site):
    site.cut_after = 100_000
    async with opened(site) as files:
        with trio.move_on_after(0.05) as scope:
            async with files.open_file("a.tar") as pieces:
                await anext(pieces)
                await trio.sleep_forever()
        assert scope.cancelled_caught


# --- storing


async def test_a_large_file_is_stored_as_a_blob_and_a_small_one_in_the_commit(site: Site, tmp_path: Path):
    told: list[Transferred] = []
    async with opened(site) as files:
        await files.put_file("b.tar", written(tmp_path, DATA), told.append)
        await files.put_file("b.json", written(tmp_path, SMALL), unheard)
        await files.put_file("empty.json", written(tmp_path, b""), unheard)
    assert site.repositories["me/images"] == {"a.tar": DATA, "b.tar": DATA, "b.json": SMALL, "empty.json": b""}
    assert told[-1] == Transferred(len(DATA), len(DATA))
    assert site.asked["blob"] == 1


async def test_a_blob_that_the_site_has_is_not_sent_twice(site: Site, tmp_path: Path):
    async with opened(site) as files:
        for name in ("b.tar", "c.tar"):
            await files.put_file(name, written(tmp_path, DATA), unheard)
    assert site.asked["blob"] == 1
    assert site.repositories["me/images"]["c.tar"] == DATA


@pytest.mark.parametrize("kind", ["batch", "blob", "commit"])
@pytest.mark.parametrize("trouble", [HangsUp(), Says(502)])
async def test_an_upload_that_breaks_is_begun_again(site: Site, tmp_path: Path, kind: str, trouble: Says | HangsUp):
    site.script(kind, trouble)
    async with opened(site) as files:
        await files.put_file("b.tar", written(tmp_path, DATA), unheard)
    assert site.repositories["me/images"]["b.tar"] == DATA


async def test_an_upload_that_breaks_each_time_is_an_error(site: Site, tmp_path: Path):
    site.script("commit", *[HangsUp()] * 5)
    async with opened(site) as files:
        with pytest.raises(StoreError, match=r"b\.tar: not stored after 5 tries: "):
            await files.put_file("b.tar", written(tmp_path, DATA), unheard)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Says(401), "it wants a token, or refuses the one that it got"),
        (Says(403), "the token may not do that"),
        (Says(404), "not there, or private and the token may not see it; make it"),
        (Says(400, "no such branch"), "HTTP 400: no such branch; see what the site says"),
    ],
)
async def test_an_upload_that_is_refused_comes_with_a_remedy(site: Site, tmp_path: Path, answer: Says, said: str):
    site.script("batch", answer)
    async with opened(site) as files:
        with pytest.raises(StoreError, match=said) as caught:
            await files.put_file("b.tar", written(tmp_path, DATA), unheard)
    assert site.token not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert site.asked["commit"] == 0


async def test_no_repository_is_made(site: Site, tmp_path: Path):
    site.repositories.clear()
    async with opened(site) as files:
        with pytest.raises(StoreError, match="make it, or see `repo`"):
            await files.put_file("b.tar", written(tmp_path, DATA), unheard)
    assert site.repositories == {}


async def test_a_cancelled_upload_stops_and_commits_nothing(site: Site, tmp_path: Path):
    async with opened(site) as files:
        with trio.CancelScope() as scope:
            await files.put_file("b.tar", written(tmp_path, DATA * 20), lambda _: scope.cancel())
        assert scope.cancelled_caught
    assert site.asked["commit"] == 0


async def test_nothing_is_printed(site: Site, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    async with opened(site) as files:
        await files.put_file("b.tar", written(tmp_path, DATA), unheard)
        await read(files, "b.tar")
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger().handlers is not None


def test_the_sdk_is_not_imported_with_the_plugin():
    code = "import sys, scavenge_modelscope; sys.exit('modelscope_hub' in sys.modules or 'requests' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
