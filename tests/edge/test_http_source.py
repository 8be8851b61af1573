"""The HTTP source, against servers on loopback that do exactly what a test says."""

from __future__ import annotations

import gzip
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import attrs
import pytest
import trio
import trustme
from raw_server import Conn, RawServer, free_port, raw_server

from scavenge.config.plugin_keys import structure_plugin
from scavenge.edge.sources.http import HttpSource, open_http
from scavenge.edge.sources.http_config import HttpSourceConfig
from scavenge.edge.sources.http_page import Page
from scavenge.errors import ConfigError, SourceError

ROW = {"endpoint_id": "a", "model": "m", "url": "http://h/v1"}
OTHER = {**ROW, "url": "http://i/v1"}
TOKEN = "opal-zebra-hunter2"


class Halves(Random):
    """Random numbers that are all the same."""

    def random(self) -> float:
        return 0.5


LISTED = json.dumps({"endpoint": [ROW]}).encode()


@attrs.define
class Asked:
    """One request that a server got."""

    path: str
    headers: dict[str, str]


@attrs.define
class Site:
    """A server whose replies are taken from ``says``, the last of them again and again; what it was asked is kept."""

    server: RawServer
    says: list[bytes | Callable[[Conn], Awaitable[None]]]
    asked: list[Asked] = attrs.field(factory=list)

    @property
    def url(self) -> str:
        return f"{self.server.scheme}://127.0.0.1:{self.server.port}"

    async def serve(self, conn: Conn) -> None:
        head, _ = await conn.request()
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.asked.append(Asked(first.split()[1], headers))
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(said, bytes):
            await conn.send(said)
        else:
            await said(conn)


@asynccontextmanager
async def site(
    *says: bytes | Callable[[Conn], Awaitable[None]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[Site]:
    made: list[Site] = []

    async def script(conn: Conn) -> None:
        await made[0].serve(conn)

    async with raw_server(script, tls) as server:
        made.append(Site(server, list(says)))
        yield made[0]


def reply(body: bytes = LISTED, status: str = "200 OK", **headers: str) -> bytes:
    fields = {"content-length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value != "-")
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


def moved(to: str, status: str = "302 Found") -> bytes:
    return reply(b"", status, location=to)


@asynccontextmanager
async def source_of(url: str, **keys: object) -> AsyncIterator[HttpSource]:
    async with open_http(HttpSourceConfig(url=url, **keys)) as source:  # type: ignore[arg-type]
        yield source


async def error_of(source: HttpSource) -> str:
    with pytest.raises(SourceError) as caught:
        await source.list_endpoints()
    said = str(caught.value)
    assert said.isprintable()
    assert "hunter2" not in said
    return said


async def error_at(url: str, **keys: object) -> str:
    async with source_of(url, **keys) as source:
        return await error_of(source)


# --- listings


@pytest.mark.parametrize(
    "said",
    [
        reply(LISTED, content_type="application/json; charset=utf-8"),
        reply(json.dumps([ROW]).encode(), content_type="text/plain"),
        reply(b'[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\nurl = "http://h/v1"\n', content_type="application/toml"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(LISTED), LISTED),
        b"HTTP/1.0 200 OK\r\n\r\n" + LISTED,
    ],
)
async def test_a_page_in_json_or_toml_is_a_listing(said):
    async with site(said) as here, source_of(f"{here.url}/list?pool=hunter2") as source:
        listing = await source.list_endpoints()
    assert (list(listing.endpoints), listing.where) == ([ROW], f"{here.url}/list")
    assert here.asked[0].path == "/list?pool=hunter2"
    assert here.asked[0].headers["accept-encoding"] == "identity"
    assert "authorization" not in here.asked[0].headers


async def test_the_token_and_the_headers_are_sent(monkeypatch):
    monkeypatch.setenv("LIST_TOKEN", TOKEN)
    keys = {"token_var": "LIST_TOKEN", "headers": {"X-Team": "blue", "User-Agent": "me", "Accept-Encoding": "gzip"}}
    async with site(reply()) as here, source_of(here.url, **keys) as source:
        await source.list_endpoints()
    sent = here.asked[0].headers
    assert (sent["authorization"], sent["x-team"], sent["user-agent"]) == (f"Bearer {TOKEN}", "blue", "me")
    assert sent["accept-encoding"] == "identity"


async def test_the_page_is_fetched_anew_each_time():
    async with site(reply(), reply(json.dumps([OTHER]).encode())) as here, source_of(here.url) as source:
        assert [list((await source.list_endpoints()).endpoints) for _ in range(2)] == [[ROW], [OTHER]]
        await here.server.wait_gone(2)


# --- is it the same?


async def test_a_page_that_is_unchanged_is_the_last_good_listing_again():
    says = [
        reply(etag='"1"'),
        reply(b"", "304 Not Modified", content_length="-"),
        reply(b"{}"),
        reply(b"", "304 Not Modified", content_length="-"),
        reply(json.dumps([OTHER]).encode()),
        reply(b"", "304 Not Modified", content_length="-"),
    ]
    async with site(*says) as here, source_of(here.url) as source:
        assert await source.list_endpoints() == await source.list_endpoints()
        assert "says nothing of `endpoint`" in await error_of(source)
        assert list((await source.list_endpoints()).endpoints) == [ROW]
        assert list((await source.list_endpoints()).endpoints) == [OTHER]
        assert list((await source.list_endpoints()).endpoints) == [OTHER]
    sent = [asked.headers.get("if-none-match") for asked in here.asked]
    assert sent == [None, '"1"', '"1"', '"1"', '"1"', None]


async def test_the_time_of_a_change_is_sent_back_where_it_tells_enough():
    at, later = "Fri, 01 Jan 2027 00:00:00 GMT", "Fri, 01 Jan 2027 00:00:09 GMT"
    async with site(reply(last_modified=at, date=later)) as here, source_of(here.url) as source:
        for _ in range(2):
            await source.list_endpoints()
    assert here.asked[1].headers["if-modified-since"] == at


async def test_a_page_that_is_unchanged_before_it_was_ever_seen_is_an_error():
    async with site(reply(b"", "304 Not Modified", content_length="-")) as here:
        assert "HTTP 304: expected 200 and a listing" in await error_at(here.url)


# --- redirects


async def test_a_redirect_is_followed_and_only_the_same_origin_gets_the_token(monkeypatch):
    monkeypatch.setenv("LIST_TOKEN", TOKEN)
    keys = {"token_var": "LIST_TOKEN", "headers": {"X-Api-Key": "hunter2hunter2"}}
    async with site(reply(etag='"e"')) as there, site(moved("/b"), moved(f"{there.url}/c")) as here:
        config = HttpSourceConfig(f"{here.url}/a", **keys)  # type: ignore[arg-type]
        async with open_http(config) as source:
            assert (await source.list_endpoints()).where == f"{here.url}/a"
            await source.list_endpoints()
    assert [asked.path for asked in here.asked] == ["/a", "/b", "/a"]
    assert all(asked.headers["authorization"] == f"Bearer {TOKEN}" for asked in here.asked)
    assert [asked.path for asked in there.asked] == ["/c", "/c"]
    assert not any({"authorization", "x-api-key"} & asked.headers.keys() for asked in there.asked)
    assert [asked.headers.get("if-none-match") for asked in there.asked] == [None, '"e"']
    assert not any("if-none-match" in asked.headers for asked in here.asked)


async def test_an_origin_that_was_left_gets_no_token_on_the_way_back(monkeypatch):
    monkeypatch.setenv("LIST_TOKEN", TOKEN)
    async with site(b"") as there, site(moved(f"{there.url}/"), moved("/again"), reply()) as here:
        there.says = [moved(f"{here.url}/secret")]
        async with source_of(here.url, token_var="LIST_TOKEN") as source:
            await source.list_endpoints()
    assert [asked.path for asked in here.asked] == ["/", "/secret", "/again"]
    assert ["authorization" in asked.headers for asked in here.asked] == [True, False, False]


async def test_redirects_are_bounded_and_one_that_leads_nowhere_says_so():
    async with site(moved("/again?token=hunter2")) as here:
        assert await error_at(here.url) == f"{here.url}: more than 5 redirects; set `url` to where they end"
        assert len(here.asked) == 6
        here.says = [reply(b"", "307 Temporary Redirect")]
        assert "does not say where" in await error_at(here.url)
        here.says = [moved("http://me:hunter2@h/")]
        assert "a URL with a user name" in await error_at(here.url)
        here.says = [reply(b"", "300 Multiple Choices")]
        assert "HTTP 300: expected 200" in await error_at(here.url)


# --- what is no listing


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (reply(b""), "empty; no endpoint is"),
        (reply(b"<html><title>Log in</title>", content_type="text/html"), "an HTML page with the title 'Log in'"),
        (reply(b'{"endpoint": [], "endpoint": []}'), "stands twice"),
        (reply(LISTED, content_length=str(len(LISTED) + 1)), "closed before the reply was whole; see whether it is up"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(LISTED), LISTED), "was whole"),
        (b"HTTP/1.0 200 OK\r\n\r\nendpoint = []\n", "cannot be told from a cut"),
        (reply(gzip.compress(LISTED), content_encoding="gzip"), "compressed (gzip), which was not asked for"),
        (reply('{"endpoint": [{"url": "é"}]}'.encode("latin-1"), content_type="text/json; charset=latin-1"), "latin-1"),
        (reply(b'{"opal-zebra-hunter2": 1}'), "unknown key [secret]; "),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is not HTTP/1.1"),
        (b"", "closed the connection without a reply"),
        (reply(b"", "204 No Content", content_length="-"), "HTTP 204: expected 200"),
        (reply(b"hunter2", "401 Unauthorized"), "HTTP 401: it refuses the token that `token_var` names"),
        (reply(b"", "403 Forbidden"), "HTTP 403: it may not be read"),
        (reply(b"", "404 Not Found"), "HTTP 404: there is nothing; see `url`"),
    ],
)
async def test_what_is_no_listing_says_where_why_and_what_to_do(said, says, monkeypatch):
    monkeypatch.setenv("LIST_TOKEN", TOKEN)
    async with site(said) as here:
        told = await error_at(f"{here.url}/list?pool=hunter2", token_var="LIST_TOKEN")
    assert told.startswith(f"{here.url}/list: ")
    assert says in told


async def test_a_page_that_never_ends_is_left_when_it_is_too_long(monkeypatch):
    monkeypatch.setattr("scavenge.edge.sources.http_page.MOST_BYTES", 2**20)

    async def pour(conn: Conn) -> None:
        await conn.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await conn.send(b" " * 65536)

    async with site(pour) as here:
        assert "longer than 1 MiB" in await error_at(here.url)
        await here.server.wait_gone(1)


async def test_a_page_that_drips_has_a_deadline_as_a_whole():
    async def drip(conn: Conn) -> None:
        await conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n")
        while True:
            await conn.send(b" ")
            await trio.sleep(0.01)

    async with site(drip) as here:
        assert "no whole answer within 0.3 s; see `timeout`" in await error_at(here.url, timeout=0.3)
        await here.server.wait_gone(1)


async def test_a_server_that_is_not_there_says_so():
    port = free_port()
    told = await error_at(f"http://127.0.0.1:{port}/list")
    assert told.startswith(f"http://127.0.0.1:{port}/list: cannot connect to http://127.0.0.1:{port}: ")
    assert told.endswith("refused; see whether it is up, and `url`")


# --- a server that has too much to do


async def test_a_server_that_has_too_much_to_do_is_not_asked_before_its_time():
    async with site(reply(b"", "429 Too Many Requests", retry_after="3600")) as here, source_of(here.url) as source:
        told = await error_of(source)
        assert told == f"{here.url}: HTTP 429: it is asked too often; it is left alone for a while"
        assert await error_of(source) == told
        assert len(here.asked) == 1


def scripted(*pages: tuple[int, str | None]) -> tuple[HttpSource, list[float]]:
    """A source whose server says these statuses with these ``Retry-After``, and when it is asked."""
    source = HttpSource(HttpSourceConfig("http://h"), None, ssl.create_default_context, Halves())
    said, asked = iter(pages), []

    async def fetch(kept: object) -> Page:
        await trio.lowlevel.checkpoint()
        asked.append(trio.current_time())
        status, retry_after = next(said)
        headers = {"content-length": "1"} if retry_after is None else {"retry-after": retry_after}
        return Page("http://h", status, headers, LISTED)

    source._way.fetch = fetch  # type: ignore[method-assign]  # the way there has tests of its own above
    return source, asked


async def pauses_of(source: HttpSource, asked: list[float], count: int) -> list[float]:
    """How long it lets a server alone, in quarters of a second, while it is asked for a listing all the time."""
    while len(asked) <= count:
        with suppress(SourceError):
            await source.list_endpoints()
        await trio.sleep(0.25)
    return [after - before for before, after in itertools.pairwise(asked)]


async def test_pauses_grow_while_a_server_is_broken_and_end_with_an_answer(autojump_clock):
    statuses = [*[500] * 8, 200, 502, 200]
    pauses = await pauses_of(*scripted(*((status, None) for status in statuses)), 10)
    assert pauses == pytest.approx([0.75, 1.5, 3, 6, 12, 24, 45, 45, 0.25, 0.75], abs=0.25)


async def test_a_server_that_says_when_to_come_again_is_heeded(autojump_clock):
    pauses = await pauses_of(*scripted((503, "40"), (429, "0"), (404, "40"), (200, None)), 3)
    assert pauses == pytest.approx([40, 1.5, 0.25], abs=0.25)


# --- TLS and proxies


async def test_the_authority_in_ca_file_is_trusted_and_no_other(authority, server_tls, tmp_path):
    ours, others = tmp_path / "ours.pem", tmp_path / "others.pem"
    authority.cert_pem.write_to_path(str(ours))
    trustme.CA().cert_pem.write_to_path(str(others))
    async with site(reply(), tls=server_tls) as here:
        async with source_of(here.url, ca_file=ours) as source:
            assert list((await source.list_endpoints()).endpoints) == [ROW]
        for keys in ({"ca_file": others}, {}):
            assert "see `url`, `ca_file` and `proxy`" in await error_at(here.url, **keys)
        here.says = [moved(f"http://127.0.0.1:{here.server.port}/")]
        assert "without TLS; set `url` to where it ends" in await error_at(here.url, ca_file=ours)


@pytest.mark.parametrize(
    ("data", "says"), [(b"no certificate", "no certificate in PEM"), (None, "cannot be read: No such")]
)
async def test_certificates_that_cannot_be_read_are_told_when_the_source_is_opened(tmp_path, data, says):
    file = tmp_path / "ca.pem"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(SourceError, match=says) as caught:
        async with source_of("https://h", ca_file=file):
            pass
    assert str(file) in str(caught.value)


async def test_a_proxy_is_used_only_where_it_is_named(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    async with site(reply()) as here:
        async with source_of(here.url) as source:
            await source.list_endpoints()
        proxy = f"http://me:hunter2@127.0.0.1:{here.server.port}"
        async with source_of("http://listing.invalid/a?b", proxy=proxy) as source:
            await source.list_endpoints()
            here.says = [reply(b"", "407 Proxy Authentication Required")]
            assert "HTTP 407: the proxy wants a name and a password" in await error_of(source)
    assert here.asked[1].path == "http://listing.invalid/a?b"
    assert here.asked[1].headers["proxy-authorization"].startswith("Basic ")


# --- the configuration


@pytest.mark.parametrize(
    ("token", "says"), [(None, "is not set"), ("", "is empty"), ("a\nb", "holds what no"), ("a ", "holds what no")]
)
async def test_a_token_that_is_not_there_is_told_when_the_source_is_opened(monkeypatch, token, says):
    monkeypatch.delenv("LIST_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("LIST_TOKEN", token)
    with pytest.raises(SourceError, match=f"the environment variable LIST_TOKEN {says}"):
        async with source_of("http://h", token_var="LIST_TOKEN"):
            pass


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({}, "url: this key is required"),
        ({"url": "h/list"}, "url: expected an absolute http:// or https:// URL"),
        ({"url": "http://me:hunter2@h"}, "url: a URL must not contain a user name or password"),
        ({"url": "http://h:0/"}, "url: the port of a URL"),
        ({"url": "http://h/list?pool=a&api_key=hunter2"}, "url: a secret in it would be in the run folder"),
        ({"url": "http://h", "token_var": "hunter2-x"}, "token_var: expected the name of an environment variable"),
        ({"url": "http://h", "headers": {"a": "hunter2\n"}}, "headers: the header 'a' has a name or a value"),
        ({"url": "http://h", "headers": {"Host": "hunter2"}}, "headers: the header 'Host' is set by scavenge itself"),
        ({"url": "http://h", "headers": {"Authorization": "x"}, "token_var": "A"}, "headers: Authorization is written"),
        ({"url": "http://h", "headers": ["hunter2"]}, "headers: expected a table"),
        ({"url": "http://h", "timeout": 0}, "timeout: expected seconds > 0 and ≤ 55, got 0"),
        ({"url": "http://h", "timeout": 60}, "timeout: expected seconds > 0 and ≤ 55, got 60"),
        ({"url": "http://h", "proxy": "socks5://me:hunter2@h"}, "proxy: expected the URL of an HTTP proxy"),
        ({"url": "http://h", "interval": 3}, "interval: unknown key"),
    ],
)
def test_a_wrong_key_is_named_with_what_it_should_be(keys, says):
    with pytest.raises(ConfigError) as caught:
        structure_plugin(HttpSourceConfig, keys, "eval.toml: source[0]", Path("/folder"))
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_of_certificates_is_relative_to_the_evaluation_file():
    keys = {"url": "http://h", "ca_file": "ca.pem"}
    assert structure_plugin(HttpSourceConfig, keys, "x", Path("/folder")).ca_file == Path("/folder/ca.pem")


def test_no_secret_is_in_the_repr():
    config = HttpSourceConfig("http://h", headers={"x": "hunter2"}, proxy="http://me:hunter2@h")
    assert "hunter2" not in repr(config)
