"""Image archives at an HTTP server: resumed where they were cut, and nothing told to whom it is not meant for."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio
from file_server import FileServer, HangsUp, Says, open_file_server

from scavenge.edge.images import http_store
from scavenge.edge.images.http_config import HttpStoreConfig
from scavenge.edge.images.http_store import HttpFiles, open_http_files
from scavenge.errors import StoreError
from scavenge.images import Transferred
from scavenge.plugins.builtin import open_http_store
from scavenge.testing import check_image_store

DATA = Random(1).randbytes(300_000)
TOKEN = "a-token-of-some-length"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr(http_store, "PAUSE_FIRST_S", 0.001)
    monkeypatch.setattr(http_store, "PAUSE_MAX_S", 0.001)
    with open_file_server() as server:
        server.files["a.tar"] = DATA
        yield server


@asynccontextmanager
async def opened(server: FileServer, **keys: object) -> AsyncIterator[HttpFiles]:
    async with open_http_files(HttpStoreConfig(server.url, **keys)) as files:  # type: ignore[arg-type]
        yield files


async def read(files: HttpFiles, name: str = "a.tar", start: int = 0) -> bytes:
    async with files.open_file(name, start) as pieces:
        return b"".join([piece async for piece in pieces])


def unheard(transferred: Transferred) -> None:
    """Nobody listens."""


async def test_the_http_store_is_one(server: FileServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STORE_TOKEN", TOKEN)
    server.token = TOKEN

    @asynccontextmanager
    async def cutting() -> AsyncIterator[None]:
        server.cut_after = 500_000
        yield
        server.cut_after = None

    config = HttpStoreConfig(server.url + "/", token_var="STORE_TOKEN")
    await check_image_store(lambda: open_http_store(config), cut=cutting, secrets=[TOKEN], max_steps=6)


# --- reading


async def test_a_file_comes_from_any_place_on(server: FileServer):
    async with opened(server) as files:
        assert await read(files) == DATA
        assert await read(files, start=7) == DATA[7:]
        assert await read(files, start=len(DATA)) == b""
    assert [seen.headers.get("range") for seen in server.seen] == [None, "bytes=7-", f"bytes={len(DATA)}-"]
    assert {seen.headers["accept-encoding"] for seen in server.seen} == {"identity"}


async def test_a_file_that_is_not_there_is_no_error_of_the_store(server: FileServer):
    async with opened(server) as files:
        with pytest.raises(FileNotFoundError):
            await read(files, "b.tar")


@pytest.mark.parametrize("etags", [True, False])
@pytest.mark.parametrize("ranges", [True, False])
async def test_a_download_that_is_cut_goes_on(server: FileServer, ranges: bool, etags: bool):
    server.ranges, server.etags, server.cut_after = ranges, etags, 200_000
    async with opened(server) as files, files.open_file("a.tar") as pieces:
        data = await anext(pieces)
        server.cut_after = None
        async for piece in pieces:
            data += piece
    assert data == DATA
    assert [seen.headers.get("if-range") is not None for seen in server.seen] == [False, etags]


async def test_where_it_goes_on_the_server_is_asked_for_the_same_file(server: FileServer):
    server.cut_after = 200_000
    async with opened(server) as files:
        assert await read(files) == DATA
    first, second = server.seen
    assert "range" not in first.headers
    assert second.headers["range"] == "bytes=200000-"
    assert second.headers["if-range"].startswith('"')


async def test_cuts_without_end_are_none_as_long_as_something_comes(server: FileServer):
    server.cut_after = 30_000
    async with opened(server) as files:
        assert await read(files) == DATA
    assert len(server.seen) == 10


async def test_a_server_that_does_not_tell_the_length_is_read_to_its_end(server: FileServer):
    server.lengths = False
    async with opened(server) as files:
        assert await read(files) == DATA


async def test_a_file_that_was_replaced_meanwhile_is_told(server: FileServer):
    server.cut_after = 200_000
    async with opened(server) as files, files.open_file("a.tar") as pieces:
        await anext(pieces)
        server.files["a.tar"] = DATA[::-1]
        with pytest.raises(StoreError, match="it was replaced while it was read"):
            [piece async for piece in pieces]


async def test_a_file_that_was_taken_away_meanwhile_is_told(server: FileServer):
    server.cut_after = 200_000
    async with opened(server) as files, files.open_file("a.tar") as pieces:
        await anext(pieces)
        del server.files["a.tar"]
        with pytest.raises(StoreError, match="it was taken away while it was read"):
            [piece async for piece in pieces]


async def test_a_download_that_never_gets_on_is_an_error(server: FileServer):
    server.cut_after = 0
    async with opened(server) as files:
        with pytest.raises(StoreError, match=r"store/a\.tar: .* tried 6 times"):
            await read(files)


async def test_a_part_that_was_not_asked_for_is_an_error(server: FileServer):
    server.script.append(Says(206, {"content-range": "bytes 3-9/10"}, b"3456789"))
    async with opened(server) as files:
        with pytest.raises(StoreError, match="not the part that was asked for, from byte 7 on"):
            await read(files, start=7)


@pytest.mark.parametrize("trouble", [HangsUp(), HangsUp(reset=True), Says(502), Says(500), Says(408)])
async def test_a_fault_that_passes_is_passed_over(server: FileServer, trouble: Says | HangsUp):
    server.script.append(trouble)
    async with opened(server) as files:
        assert await read(files) == DATA


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "HTTP 401: it wants a token, or refuses the one that it got; see `token_var`"),
        (403, r"HTTP 403: not allowed with what was sent \(some stores say so of what is not there\)"),
        (407, "HTTP 407: the proxy wants a name and a password"),
        (418, "HTTP 418: neither the file nor a reason; see `url`"),
    ],
)
async def test_a_refusal_comes_with_a_remedy(server: FileServer, status: int, said: str):
    server.script.append(Says(status))
    async with opened(server) as files:
        with pytest.raises(StoreError, match=said):
            await read(files)
    assert len(server.seen) == 1


@pytest.mark.parametrize(("status", "headers", "pause_s"), [(429, {}, 0.0), (503, {"retry-after": "40"}, 40.0)])
async def test_a_server_that_has_too_much_to_do_is_left_alone(
    server: FileServer, status: int, headers: dict[str, str], pause_s: float
):
    server.script.append(Says(status, headers))
    async with opened(server) as files:
        with pytest.raises(StoreError, match="too much to do") as caught:
            await read(files)
    assert caught.value.retry_after_s == pause_s


async def test_a_server_that_is_not_there_is_told_with_its_address(server: FileServer):
    config = HttpStoreConfig("http://127.0.0.1:9/store")
    async with open_http_files(config) as files:
        with pytest.raises(StoreError, match=r"^http://127\.0\.0\.1:9/store/a\.tar: .*; tried 2 times$"):
            await read(files)


# --- redirects and secrets


async def test_the_token_does_not_follow_a_redirect_to_another_origin(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("STORE_TOKEN", TOKEN)
    with open_file_server() as other:
        other.files["there"] = DATA
        other.script.append(Says(302, {"location": f"{server.url}/a.tar?signature=secret"}))
        server.script.append(Says(307, {"location": f"{other.url}/there?signature=secret"}))
        server.script.append(Says(200, {}, b"back"))
        async with opened(server, token_var="STORE_TOKEN", headers={"X-Own": "own"}) as files:
            assert await read(files) == b"back"
        sent = [(seen.headers.get("authorization"), seen.headers.get("x-own")) for seen in (*server.seen, *other.seen)]
        assert sent == [(f"Bearer {TOKEN}", "own"), (None, None), (None, None)]


async def test_the_token_follows_a_redirect_within_its_origin(server: FileServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STORE_TOKEN", TOKEN)
    server.token = TOKEN
    server.script.append(Says(301, {"location": "/store/a.tar"}))
    async with opened(server, token_var="STORE_TOKEN") as files:
        assert await read(files, "old.tar") == DATA


@pytest.mark.parametrize("location", ["", "ftp://127.0.0.1/a?signature=secret", "http://me:secret@127.0.0.1/"])
async def test_a_redirect_to_nowhere_is_an_error_without_secrets(server: FileServer, location: str):
    server.script.append(Says(302, {"location": location} if location else {}))
    async with opened(server) as files:
        with pytest.raises(StoreError, match="it redirects") as caught:
            await read(files)
    assert "secret" not in str(caught.value)


async def test_redirects_without_end_are_an_error(server: FileServer):
    server.script.extend([Says(302, {"location": "/store/a.tar"})] * 10)
    async with opened(server) as files:
        with pytest.raises(StoreError, match="more than 5 redirects"):
            await read(files)


@pytest.mark.parametrize(
    ("value", "said"), [(None, "not set"), ("", "empty"), ("two\nlines", "holds what no HTTP header can")]
)
async def test_a_token_that_cannot_be_one_is_told_when_the_store_opens(
    server: FileServer, monkeypatch: pytest.MonkeyPatch, value: str | None, said: str
):
    monkeypatch.delenv("STORE_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("STORE_TOKEN", value)
    with pytest.raises(StoreError, match=f"STORE_TOKEN .*{said}|STORE_TOKEN {said}"):
        async with opened(server, token_var="STORE_TOKEN"):
            pytest.fail("it opened")


async def test_a_proxy_that_cannot_be_used_is_told(server: FileServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ALL_PROXY", "gopher://127.0.0.1:1")
    with pytest.raises(StoreError, match="the environment names a proxy that cannot be used"):
        async with opened(server):
            pytest.fail("it opened")


# --- storing


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(DATA)
    return path


async def test_a_file_is_stored_with_its_length(server: FileServer, source: Path):
    told: list[Transferred] = []
    async with opened(server) as files:
        await files.put_file("new name.tar", str(source), told.append)
    assert server.files["new%20name.tar"] == DATA
    assert server.seen[0].method == "PUT"
    assert "transfer-encoding" not in server.seen[0].headers
    assert told[-1] == Transferred(len(DATA), len(DATA))


async def test_an_empty_file_is_stored_and_read(server: FileServer, tmp_path: Path):
    (tmp_path / "empty").touch()
    async with opened(server) as files:
        await files.put_file("empty.tar", str(tmp_path / "empty"), unheard)
        assert await read(files, "empty.tar") == b""


async def test_files_may_be_stored_with_post(server: FileServer, source: Path):
    async with opened(server, upload="POST") as files:
        await files.put_file("b.tar", str(source), unheard)
    assert server.seen[0].method == "POST"


@pytest.mark.parametrize("trouble", [HangsUp(), Says(502), Says(500, read_body=False)])
async def test_an_upload_that_breaks_is_sent_again(server: FileServer, source: Path, trouble: Says | HangsUp):
    server.script.append(trouble)
    async with opened(server) as files:
        await files.put_file("b.tar", str(source), unheard)
    assert server.files["b.tar"] == DATA


async def test_an_upload_that_breaks_each_time_is_an_error(server: FileServer, source: Path):
    server.script.extend([HangsUp()] * 3)
    async with opened(server) as files:
        with pytest.raises(StoreError, match=r"store/b\.tar: not stored after 3 tries: "):
            await files.put_file("b.tar", str(source), unheard)
    assert "b.tar" not in server.files


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (403, "not allowed with what was sent"),
        (404, "there is no such place; see `url`"),
        (405, "it does not take uploads this way; see `upload`"),
        (409, "the folder is not there"),
        (413, "too large for it; raise its limit"),
        (507, "there is no room"),
        (302, "it redirects uploads; set `url`"),
        (304, "HTTP 304"),
    ],
)
async def test_an_upload_that_is_refused_comes_with_a_remedy(server: FileServer, source: Path, status: int, said: str):
    server.script.append(Says(status))
    async with opened(server) as files:
        with pytest.raises(StoreError, match=said):
            await files.put_file("b.tar", str(source), unheard)
    assert len(server.seen) == 1


async def test_an_upload_that_is_refused_before_it_is_read_is_told_all_the_same(server: FileServer, tmp_path: Path):
    (tmp_path / "large").write_bytes(os.urandom(8 * 2**20))
    server.script.extend([Says(403, read_body=False)] * 3)
    async with opened(server) as files:
        with pytest.raises(StoreError):
            await files.put_file("b.tar", str(tmp_path / "large"), unheard)


async def test_an_upload_follows_a_redirect_that_keeps_its_method(server: FileServer, source: Path):
    server.script.append(Says(307, {"location": "/store/elsewhere.tar"}))
    async with opened(server) as files:
        await files.put_file("b.tar", str(source), unheard)
    assert server.files["elsewhere.tar"] == DATA


async def test_a_cancelled_transfer_ends_at_once(server: FileServer, source: Path):
    async with opened(server) as files:
        with trio.CancelScope() as scope:
            await files.put_file("b.tar", str(source), lambda _: scope.cancel())
        assert scope.cancelled_caught
        async with files.open_file("a.tar") as pieces:
            await anext(pieces)
        assert await read(files) == DATA


# --- the configuration


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"url": "store.example"}, "expected an absolute http:// or https:// URL"),
        ({"url": "https://a:b@store.example"}, "must not contain a user name or password"),
        ({"url": "https://store.example/?sig=x"}, "expected the URL of a folder, without query"),
        ({"token_var": "my token"}, "the name of an environment variable, not the token itself"),
        ({"upload": "PATCH"}, "expected PUT or POST"),
        ({"headers": {"Host": "x"}}, "is set by scavenge itself"),
        ({"headers": {"authorization": "x"}, "token_var": "T"}, "keep one of them"),
    ],
)
def test_what_cannot_work_is_refused(keys: dict[str, object], said: str):
    with pytest.raises(ValueError, match=said):
        HttpStoreConfig(**{"url": "https://store.example/images", **keys})  # type: ignore[arg-type]


def test_headers_are_not_shown():
    assert "secret" not in repr(HttpStoreConfig("https://store.example", headers={"x-key": "secret"}))
