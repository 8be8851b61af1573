"""The whole gateway, between a client that sends certain bytes and servers that do with theirs what a script says."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import attrs
import pytest
import trio
from raw_client import Client, get, post, until
from raw_server import (
    DONE,
    LAST_CHUNK,
    STREAM_HEAD,
    Conn,
    chunk,
    delta,
    document,
    free_port,
    raw_server,
    reply,
)

from scavenge.app.gateway import GatewayOptions, OpenGateway, gateway_parts, open_gateway
from scavenge.core.redaction import Redactor
from scavenge.errors import UsageError
from scavenge.events import CallEnded, Event

SECRET = "sk-a-key-of-an-endpoint"
FILE = """
elastic = true
elastic_poll_interval = 0.1
stall_timeout = {stall_timeout}
endpoints_path = "endpoints.toml"

[health]
probe = {probe}

[gateway]
port = 0
{gateway}
"""


NOT_FOUND = reply(b"{}", "404 Not Found")


@attrs.define(eq=False)
class Calls:
    """A script that does with each call what *steps* say, and refuses all else that a gateway asks of a server."""

    steps: tuple[object, ...]
    heard: list[tuple[bytes, bytes]] = attrs.field(factory=list)

    async def __call__(self, conn: Conn) -> None:
        while True:
            head, body = await conn.request()
            if not head.startswith(b"POST"):
                await conn.send(NOT_FOUND)
                continue
            self.heard.append((head, body))
            for step in self.steps:
                if isinstance(step, bytes):
                    await conn.send(step)
                elif (waits := step(conn)) is not None:
                    await waits


def script_of(*steps: object) -> Calls:
    return Calls(steps)


@attrs.frozen(eq=False)
class Story:
    gateway: OpenGateway
    folder: Path
    events: list[Event]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        with trio.socket.socket() as connecting:
            await connecting.connect(self.gateway.listener.socket.getsockname())
            yield Client(trio.SocketStream(connecting))

    async def ended(self) -> CallEnded:
        """The only call, once it is over."""
        await until(lambda: any(isinstance(told, CallEnded) for told in self.events))
        (ended,) = (told for told in self.events if isinstance(told, CallEnded))
        return ended


def rows(*urls: str) -> str:
    row = '[[endpoint]]\nendpoint_id = "pool"\nmodel = "its-model"\nurl = "{}"\nkey = "KEY_OF_POOL"\n'
    return "\n".join(map(row.format, urls)) or "endpoint = []\n"


@asynccontextmanager
async def open_story(
    folder: Path, *urls: str, gateway: str = "", stall_timeout: float = 600, probe: bool = False
) -> AsyncIterator[Story]:
    """A gateway to servers at these URLs, with no token; *gateway* are more lines of its table."""
    (folder / "endpoints.toml").write_text(rows(*urls))
    settings = {"gateway": gateway, "stall_timeout": stall_timeout, "probe": str(probe).lower()}
    (folder / "gateway.toml").write_text(FILE.format(**settings))
    events: list[Event] = []
    parts = gateway_parts(folder / "gateway.toml", GatewayOptions())
    redact = Redactor.of_environ(os.environ)
    with trio.fail_after(20):
        async with open_gateway(parts, None, observers=[events.append], redact=redact) as opened:
            yield Story(opened, folder, events)


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("KEY_OF_POOL", SECRET)


def asking(*, session: str | None = None, **options: object) -> bytes:
    prefix = "" if session is None else f"/session/{session}"
    return post({"model": "pool", **options}, f"{prefix}/v1/chat/completions", None, Host="127.0.0.1")


async def test_a_body_goes_on_as_it_came_but_for_the_model_and_the_key_is_ours(tmp_path):
    script = script_of(reply(document()))
    messages = b'[{"role": "user", "content":"\\u00e4"}]'
    body = b'{ "seed":10e-1, "x-unknown" : {"model": [1.10]},\n"model" :"pool","messages":' + messages + b"}"
    asked = post(body, "/v1/chat/completions", "key-of-the-client", Host="127.0.0.1", X_Tracing="not yours")
    async with (
        raw_server(script) as server,
        open_story(tmp_path, server.url, gateway="stream = false") as story,
        story.client() as client,
    ):
        answer = await client.ask(asked)
    assert (answer.status, answer.body) == (200, document())
    ((head, sent),) = script.heard
    assert sent == body.replace(b'"pool"', b'"its-model"')
    assert f"authorization: bearer {SECRET}".encode() in head.lower()
    assert b"key-of-the-client" not in head
    assert b"tracing" not in head.lower()


async def test_what_a_server_says_of_our_key_and_in_its_headers_does_not_reach_a_client(tmp_path):
    error = json.dumps({"error": {"message": f"the key {SECRET} may not use 'tools'", "code": 400}}).encode()
    headers = f"content-type: application/json\r\nx-echo: {SECRET}\r\nset-cookie: a=b"
    refusing = script_of(reply(error, "400 Bad Request", headers))
    async with raw_server(refusing) as server, open_story(tmp_path, server.url) as story, story.client() as client:
        for streamed in (False, True):
            answer = await client.ask(asking(stream=streamed))
            assert answer.status == 400
            assert "may not use 'tools'" in answer.error["message"]
            assert SECRET.encode() not in answer.body
            assert not {"x-echo", "set-cookie"} & {name.lower() for name in answer.headers}


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_hangs_up_ends_the_work_at_its_server_at_once(tmp_path, streamed):
    working = trio.Event()

    gone = trio.Event()

    async def work(conn: Conn) -> None:
        working.set()
        await conn.until_gone()
        gone.set()

    script = script_of(STREAM_HEAD + chunk(delta("one")), work)
    async with raw_server(script) as server, open_story(tmp_path, server.url) as story:
        async with story.client() as client:
            await client.send(asking(stream=streamed))
            await working.wait()
            assert not gone.is_set()
        await gone.wait()
        assert (await story.ended()).outcome == "hung up"


async def test_a_stream_comes_event_by_event_as_it_is_made(tmp_path):
    more = trio.Event()

    script = script_of(
        STREAM_HEAD + chunk(b": a comment\n\n" + delta("one")[:20]),
        chunk(delta("one")[20:]),
        lambda conn: more.wait(),
        chunk(delta("two", "stop")) + chunk(DONE) + LAST_CHUNK,
    )
    async with raw_server(script) as server, open_story(tmp_path, server.url) as story, story.client() as client:
        await client.send(asking(stream=True))
        first = await client.receive_until(b'"one"')
        assert b"200 OK" in first
        assert b'"two"' not in first
        more.set()
        rest = await client.receive_until(b"0\r\n\r\n")
        assert rest.count(b"[DONE]") == 1
        assert rest.index(b'"two"') < rest.index(b"[DONE]")


@pytest.mark.parametrize(
    "end",
    [
        Conn.cut,
        Conn.reset,
        chunk(b'data: {"error": {"message": "engine died", "code": 500}}\n\n') + chunk(DONE) + LAST_CHUNK,
        chunk(delta(None, "abort")) + chunk(DONE) + LAST_CHUNK,
        LAST_CHUNK,
    ],
    ids=["closed", "reset", "error event", "aborted", "no end of the stream"],
)
async def test_a_stream_that_is_lost_in_its_midst_breaks_off_with_an_error_and_no_done(tmp_path, end):
    told = trio.Event()
    script = script_of(STREAM_HEAD + chunk(delta("one")) + chunk(delta("two")), lambda conn: told.wait(), end)
    async with raw_server(script) as server, open_story(tmp_path, server.url) as story, story.client() as client:
        await client.send(asking(stream=True))
        first = await client.receive_until(b'"two"')
        told.set()
        rest = await to_the_end(client)
        assert b'"one"' in first
        error = json.loads(rest[rest.index(b'{"error"') : rest.rindex(b"}") + 1])
        assert error["error"]["code"] == "lost"
        assert not rest.endswith(LAST_CHUNK)
        assert b"DONE" not in rest
        assert b'"abort"' not in rest
        assert (await story.ended()).outcome == "lost"
        assert len(script.heard) == 1


async def to_the_end(client: Client) -> bytes:
    """All that comes until the server closes."""
    data = bytearray()
    with suppress(trio.BrokenResourceError):
        while piece := await client.stream.receive_some():
            data += piece
    return bytes(data)


async def test_a_stream_that_is_lost_before_it_has_said_anything_is_another_servers(tmp_path):
    role = (
        b'data: {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]}\n\n'
    )
    dying = script_of(STREAM_HEAD + chunk(role), Conn.cut)
    living = script_of(STREAM_HEAD + chunk(role) + chunk(delta("hello", "stop")) + chunk(DONE) + LAST_CHUNK, Conn.cut)
    async with (
        raw_server(dying) as first,
        raw_server(living) as second,
        open_story(tmp_path, first.url, second.url) as story,
    ):
        for _ in range(4):
            async with story.client() as client:
                answer = await client.ask(asking(stream=True))
                assert answer.whole
                assert answer.body.count(b"hello") == answer.body.count(b'"assistant"') == 1
        assert dying.heard


async def test_a_client_that_does_not_read_holds_its_server_up_and_gets_all_of_it_in_the_end(tmp_path):
    pieces = 400
    sent = 0

    async def tell(conn: Conn) -> None:
        nonlocal sent
        for _ in range(pieces):
            await conn.send(chunk(delta("x" * 65_536)))
            sent += 1

    script = script_of(STREAM_HEAD, tell, chunk(delta("", "stop")) + chunk(DONE) + LAST_CHUNK)
    async with raw_server(script) as server, open_story(tmp_path, server.url) as story, story.client() as client:
        await client.send(asking(stream=True))
        await client.receive_until(b"xxx")
        before = -1
        while before != sent:  # until nothing moves any more
            before = sent
            await trio.sleep(0.2)
        assert sent < pieces  # 26 MB are more than all buffers of the system and of ours
        received, tail = 0, b""
        while b"[DONE]" not in tail:
            data = await client.stream.receive_some()
            received, tail = received + len(data), (tail + data)[-100:]
        assert (sent, received > (pieces - before) * 65_536) == (pieces, True)


async def test_calls_that_nothing_serves_are_told_why_and_when_to_come_again(tmp_path):
    dead = f"http://127.0.0.1:{free_port()}/v1"
    async with open_story(tmp_path, dead, stall_timeout=0.5, probe=True) as story, story.client() as client:
        for streamed in (False, True):
            answer = await client.ask(asking(stream=streamed))
            assert answer.status == 503
            assert int({name.lower(): value for name, value in answer.headers.items()}["retry-after"]) > 0
            assert "refused" in answer.error["message"]
        health = await client.ask(get("/health", token=None, Host="127.0.0.1"))
        assert (health.status, health.json["state"]) == (503, "waiting")


async def test_a_server_that_is_listed_while_a_call_waits_answers_it(tmp_path):
    script = script_of(reply(document("late")))
    async with raw_server(script) as server, open_story(tmp_path) as story, story.client() as client:
        await client.send(asking())
        await until(lambda: story.gateway.gateway.answering == 1)
        (story.folder / "endpoints.toml").write_text(rows(server.url))
        answer = await client.reply()
        assert answer.json["choices"][0]["message"]["content"] == "late"
        models = await client.ask(get("/v1/models", token=None, Host="127.0.0.1"))
        assert [card["id"] for card in models.json["data"]] == ["pool", "its-model"]


async def test_a_session_goes_where_its_prefix_is_until_a_client_ends_it(tmp_path):
    scripts = script_of(reply(document())), script_of(reply(document()))
    async with raw_server(scripts[0]) as first, raw_server(scripts[1]) as second:
        urls = (first.url, second.url)
        async with open_story(tmp_path, *urls, gateway="stream = false") as story, story.client() as client:
            for _ in range(5):
                assert (await client.ask(asking(session="s1"))).status == 200
            assert sorted(len(script.heard) for script in scripts) == [0, 5]
            assert story_sessions(await client.ask(get("/status", token=None, Host="127.0.0.1"))) == 1
            ended = await client.ask(get("/session/s1", "DELETE", None, Host="127.0.0.1"))
            assert ended.status == 204
            assert story_sessions(await client.ask(get("/status", token=None, Host="127.0.0.1"))) == 0


def story_sessions(answer: object) -> int:
    return answer.json["gateway"]["sessions"]


async def test_finishing_lets_what_runs_end_and_takes_no_more(tmp_path):
    go = trio.Event()
    script = script_of(lambda conn: go.wait(), reply(document("at last")))
    async with raw_server(script) as server, open_story(tmp_path, server.url) as story, story.client() as client:
        await client.send(asking())
        await until(lambda: script.heard)
        async with trio.open_nursery() as nursery:
            ends: list[bool] = []

            async def finish() -> None:
                ends.append(await story.gateway.finish(10))

            nursery.start_soon(finish)
            await until(lambda: story.gateway.gateway.stopping)
            with pytest.raises(OSError):
                async with story.client() as late:
                    await late.ask(asking())
            go.set()
        answer = await client.reply()
        assert answer.json["choices"][0]["message"]["content"] == "at last"
        assert ends == [True]


async def test_what_does_not_end_within_the_grace_is_told_as_cut(tmp_path):
    script = script_of(lambda conn: conn.until_gone())
    async with raw_server(script) as server:
        async with open_story(tmp_path, server.url) as story, story.client() as client:
            await client.send(asking())
            await until(lambda: script.heard)
            assert await story.gateway.finish(0.05) is False
            assert story.gateway.gateway.answering == 1
        await until(lambda: server.gone == server.accepted)


async def test_where_nothing_runs_nothing_is_cut_however_short_the_grace(tmp_path):
    async with open_story(tmp_path) as story:
        assert await story.gateway.finish(0) is True


async def test_a_port_that_is_taken_is_told_before_a_source_is_asked(tmp_path):
    async with open_story(tmp_path) as story:
        port = story.gateway.listener.socket.getsockname()[1]
        parts = gateway_parts(tmp_path / "gateway.toml", GatewayOptions(port=port))
        with pytest.raises(UsageError, match=str(port)):
            async with open_gateway(parts, None, redact=Redactor.of_environ({})):
                pytest.fail("it was opened")


async def test_a_gateway_that_is_left_leaves_nothing_behind(tmp_path):
    script = script_of(lambda conn: conn.until_gone())
    async with raw_server(script) as server:
        before = sockets()
        with suppress(ConnectionError):
            async with open_story(tmp_path, server.url) as story, story.client() as client:
                await client.send(asking(session="s1", stream=True))
                await until(lambda: script.heard)
                raise ConnectionError("somebody else's")
        await until(lambda: server.gone == server.accepted)
        assert sockets() <= before


def sockets() -> set[str]:
    """The sockets that this process has open, by their descriptors."""
    return {name for name in os.listdir("/proc/self/fd") if _is_socket(name)}


def _is_socket(name: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    except OSError:
        return False
