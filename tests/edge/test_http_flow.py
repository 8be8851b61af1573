"""What is noted of a reply while it comes, and whether a cache gave it."""

from __future__ import annotations

import math

import pytest
import trio
from http_cases import ASK, ASK_WHOLE, BEGUN, END_OF_STREAM, client_of, cut
from raw_server import DONE, LAST_CHUNK, STREAM_HEAD, Conn, chunk, delta, document, event, raw_server, reply, script_of

from scavenge.core.flow import Stream
from scavenge.edge.model_http import HttpModelTransport
from scavenge.types import Answer, ChatRequest, Endpoint, EndpointId, Lost, Ok, Url

ROLE = chunk(event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}))
USAGE = chunk(event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}))
LAST = chunk(delta(None, "stop")) + USAGE + chunk(DONE) + LAST_CHUNK


class Told(Stream):
    """A stream that wakes who waits for what comes."""

    def __init__(self) -> None:
        super().__init__(trio.current_time(), 1)
        self.calls: list[int] = []
        self.changed = trio.Event()

    def came(self, now: float, chunks: int = 1) -> None:
        super().came(now, chunks)
        self.calls.append(chunks)
        self.changed.set()

    async def wait_chunks(self, number: int) -> None:
        while self.chunks < number:
            await self.changed.wait()
            self.changed = trio.Event()


async def asked_with(stream: Stream, *steps: object, request: ChatRequest = ASK) -> Answer:
    async with raw_server(script_of(*steps)) as server:
        client = client_of(server.url)
        with trio.fail_after(10):
            answer = await client.ask(request, stream)
        client.close()
    return answer


async def test_pieces_are_noted_and_nothing_else_is() -> None:
    stream = Stream(trio.current_time(), 1)
    answer = await asked_with(stream, STREAM_HEAD + ROLE, chunk(delta("one")) + chunk(delta("two")), LAST)
    assert isinstance(answer.outcome, Ok)
    assert stream.chunks == 2
    assert stream.first_at is not None
    assert stream.began_at <= stream.first_at <= stream.last_at <= trio.current_time()


async def test_what_comes_at_once_is_noted_at_once_and_as_it_comes() -> None:
    stream = Told()

    async def pieces_noted(conn: Conn) -> None:
        await stream.wait_chunks(2)

    async def last_noted(conn: Conn) -> None:
        await stream.wait_chunks(3)

    answer = await asked_with(stream, BEGUN, pieces_noted, chunk(delta("three")), last_noted, LAST)
    assert isinstance(answer.outcome, Ok)
    assert sum(stream.calls) == 3
    assert stream.calls[-1] == 1


async def test_tokens_are_noted_where_the_server_counts_them_along() -> None:
    def counted(text: str, tokens: int) -> bytes:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        return chunk(event({"choices": [choice], "usage": {"completion_tokens": tokens}}))

    stream = Stream(trio.current_time(), 1)
    await asked_with(stream, STREAM_HEAD + counted("a", 1) + counted("bcd", 4), LAST)
    assert stream.chunks == 4


@pytest.mark.parametrize(
    "steps",
    [
        (reply(document()),),
        (reply(b'{"error": "busy"}', "429 Too Many Requests"),),
        (STREAM_HEAD + ROLE, cut),
        (cut,),
    ],
)
async def test_a_reply_in_one_piece_or_without_any_has_no_first_token(steps: tuple[object, ...]) -> None:
    stream = Stream(trio.current_time(), 1)
    await asked_with(stream, *steps, request=ASK_WHOLE)
    assert (stream.chunks, stream.first_at, stream.last_at) == (0, None, -math.inf)


async def test_what_came_before_a_reply_broke_off_stays_noted() -> None:
    stream = Stream(trio.current_time(), 1)
    answer = await asked_with(stream, BEGUN, cut)
    assert isinstance(answer.outcome, Lost)
    assert stream.chunks == 2


async def test_a_request_that_is_cancelled_notes_nothing_more() -> None:
    stream = Told()
    async with raw_server(script_of(BEGUN, Conn.until_gone)) as server:
        client = client_of(server.url)
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.ask, ASK, stream)
                await stream.wait_chunks(2)
                nursery.cancel_scope.cancel()
            await server.wait_gone(1)
        client.close()
    assert stream.chunks == 2


def with_field(raw: bytes, field: bytes) -> bytes:
    return raw.replace(b"\r\n", b"\r\n" + field + b"\r\n", 1)


async def test_a_whole_reply_out_of_a_cache_is_told_from_one_of_the_engine() -> None:
    stream = Stream(trio.current_time(), 1)
    whole = STREAM_HEAD + chunk(delta("hel")) + END_OF_STREAM
    assert not (await asked_with(stream, whole)).cached
    assert (await asked_with(stream, with_field(whole, b"X-Cache: HIT"))).cached
    assert (await asked_with(stream, with_field(reply(document()), b"CF-AIG-Cache-Status: HIT"))).cached
    assert not (await asked_with(stream, with_field(reply(b"{}", "429 Busy"), b"X-Cache: HIT"))).cached
    assert not (await asked_with(stream, with_field(BEGUN, b"X-Cache: HIT"), cut)).cached


async def test_settings_that_cannot_work_have_neither_flow_nor_figures() -> None:
    endpoint = Endpoint(EndpointId("p"), "m", Url("http://127.0.0.1:1/v1"), headers={"bad name": "x"})
    client = HttpModelTransport().open_client(endpoint)
    stream = Stream(trio.current_time(), 1)
    answer = await client.ask(ASK, stream)
    assert not isinstance(answer.outcome, Ok)
    assert stream.chunks == 0
    assert await client.read_load() is None
