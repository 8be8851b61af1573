"""Whatever clients send, the gateway goes on: fuzzed bytes, half requests, endless ones, and what is dear to parse."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress

import pytest
import trio
from gateway_kit import open_gateway
from hypothesis import example, given
from hypothesis import strategies as st
from raw_client import MESSAGES, PATH, TOKEN, get, post

from scavenge.edge.gateway.calls import read_call
from scavenge.edge.gateway.routes import CallRoute, route_of
from scavenge.edge.gateway.wire import Head, Refusal, Wire
from scavenge.types import ApiType

MAX_HEAD, MAX_BODY = 2000, 4000

GOOD = (
    post(),
    post({"stream": True}),
    post(b"", Content_Length="", Transfer_Encoding="chunked") + b"2;ext=1\r\n[]\r\n0\r\nA: b\r\n\r\n",
    get("/v1/models"),
    post(token="wrong"),
)
PIECES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([
        *(b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"POST ", b"HEAD ", PATH.encode(), b" HTTP/1.1\r\n"),
        *(b"Host: gateway\r\n", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 9999999\r\n"),
        *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"Expect: 100-continue\r\n"),
        *(b"Connection: close\r\n", b"Upgrade: websocket\r\n", f"Authorization: Bearer {TOKEN}\r\n".encode()),
        *(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b" folded\r\n", b"{}", b"a" * 3000),
        *(b"5\r\n", b"0\r\n\r\n", b"ffffffffffffffffffff\r\n"),
    ]),
)  # fmt: skip
SPOILT = st.builds(
    lambda good, at, piece, cut: good[: at % len(good)] + piece + good[at % len(good) + cut :],
    st.sampled_from(GOOD),
    st.integers(0, 10_000),
    PIECES,
    st.integers(0, 40),
)
TRAFFIC = st.lists(st.one_of(st.sampled_from(GOOD), SPOILT, PIECES), max_size=6).map(b"".join)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def read_all(pieces: list[bytes]) -> list[object]:
    """All that a wire reads: heads and bodies, and the refusal at the end, if there is one."""
    wire, found, head = Wire(MAX_HEAD, MAX_BODY), [], None
    try:
        for piece in pieces:
            wire.receive(piece)
            while True:
                if head is None and (head := wire.read_head()) is None:
                    break
                if (body := wire.read_body()) is None:
                    break
                found.append((head, body))
                assert wire.whole
                if not head.keep_alive:
                    return found
                wire.next_request()
                head = None
    except Refusal as refusal:
        wire.skim()
        found.append(refusal.status)
    return found


@given(TRAFFIC, st.lists(st.integers(0, 100_000), max_size=20))
@example(GOOD[2] * 3, list(range(500)))
@example(b"\r\n" * 500 + GOOD[0], [3, 1000])
def test_what_is_read_does_not_depend_on_how_it_was_split(data: bytes, cuts: list[int]):
    whole, in_pieces = read_all([data]), read_all(split(data, cuts))
    if whole != in_pieces:  # how much is held of what is no request yet depends on the pieces
        assert {whole[-1], in_pieces[-1]} <= {400, 413, 431}
        assert whole[:-1] == in_pieces[:-1]


@given(TRAFFIC)
@example(b"".join(GOOD))
def test_a_request_that_is_sent_after_others_is_read_like_one_that_is_alone(data: bytes):
    first = read_all([GOOD[0]])
    assert read_all([GOOD[0] + data])[: len(first)] == first


@given(st.lists(st.tuples(TRAFFIC, st.lists(st.integers(0, 100_000), max_size=3), st.booleans()), max_size=4))
def test_no_bytes_whatever_stop_the_gateway(connections: list[tuple[bytes, list[int], bool]]):
    trio.run(_bombard, connections)


async def _bombard(connections: list[tuple[bytes, list[int], bool]]) -> None:
    async with open_gateway(max_head_bytes=MAX_HEAD, max_body_bytes=MAX_BODY, request_s=30.0) as gateway:
        async with trio.open_nursery() as nursery:
            for data, cuts, polite in connections:
                nursery.start_soon(_throw, gateway, split(data, cuts), polite)
        async with gateway.client() as client:
            assert (await client.ask(post())).status == 200


async def _throw(gateway, pieces: list[bytes], polite: bool) -> None:
    async with gateway.client() as client:
        try:
            for piece in pieces:
                await client.send(piece)
                await trio.lowlevel.checkpoint()
            await client.stream.send_eof()
            while polite and await client.stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass


KEYS = st.sampled_from(["messages", "stream", "stream_options", "include_usage", "n"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(ApiType), st.one_of(st.binary(), VALUES.map(lambda value: json.dumps(value).encode())))
def test_a_body_is_a_call_or_refused(api: ApiType, body: bytes):
    try:
        call = read_call(CallRoute(api), body)
    except Refusal:
        return
    assert call.body == body
    assert all(isinstance(message, dict) for message in call.messages)
    assert isinstance(call.streamed, bool)
    assert isinstance(call.model, str)


LATIN = st.text(st.characters(max_codepoint=255), max_size=300)


@given(LATIN.map(lambda text: f"/session/{text}") | LATIN, st.booleans())
@example("/session/%ff/v1/models", False)
@example("/session/", True)
def test_a_path_is_for_something_or_refused(path: str, shout: bool):
    head = Head("POST" if shout else "DELETE", path, {b"x-scavenge-session": path.encode()[:30]})
    with suppress(Refusal):
        session_id = getattr(route_of(head, ()), "session_id", None)
        assert session_id is None or (1 <= len(session_id) <= 200 and session_id.isprintable())


# --- what is dear to parse


LINES = b"POST / HTTP/1.1\r\nHost: gateway\r\n"
CHUNKED = LINES + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("dear", [
    LINES + b"A: b" + b" " * 1500 + b"c\r\n\r\n",
    LINES + b"A: b\r\n" + b" \r\n" * 400 + b" c\r\n\r\n",
    CHUNKED + b"1;" + b" " * 1500 + b"\r\nx\r\n0\r\n\r\n",
    CHUNKED + b"0\r\nA: b" + b"\t" * 1500 + b"c\r\n\r\n",
], ids=["head", "folded", "chunk", "trailer"])  # fmt: skip
def test_runs_of_blanks_and_folded_lines_are_refused_although_they_are_allowed(dear):
    assert read_all(split(dear, list(range(0, len(dear), 600)))) == [400]
    assert read_all([dear]) == [400]


def test_requests_that_came_together_are_read_one_by_one():
    wire = Wire(MAX_HEAD, 2**20)
    wire.receive(CHUNKED + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n" + GOOD[0] * 500)
    assert wire.read_head() is not None
    assert wire.read_body() == b"x" * 20_000
    wire.next_request()
    assert wire.held_bytes == len(GOOD[0]) * 500  # what is the next request's is where it was
    for _ in range(500):
        head = wire.read_head()
        assert head is not None
        route = route_of(head, ())
        assert route == CallRoute(ApiType.CHAT_COMPLETIONS, "s1")
        assert read_call(route, wire.read_body() or b"").messages == MESSAGES
        wire.next_request()
    assert wire.held_bytes == 0


async def test_many_clients_that_send_half_a_request_hinder_nobody():
    async with open_gateway(request_s=60.0) as gateway, trio.open_nursery() as nursery:
        ready = [trio.Event() for _ in range(100)]
        for number, event in enumerate(ready):
            nursery.start_soon(_send_half, gateway, post()[: number * 2], event)
        for event in ready:
            await event.wait()
        async with gateway.client() as client:
            assert (await client.ask(post())).status == 200
        nursery.cancel_scope.cancel()


async def _send_half(gateway, part: bytes, sent: trio.Event) -> None:
    async with gateway.client() as client:
        await client.send(part)
        sent.set()
        await trio.sleep_forever()
