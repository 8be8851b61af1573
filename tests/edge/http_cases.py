"""What the tests of the HTTP layer share: an endpoint, a request, whole replies and ways to end."""

from __future__ import annotations

import trio
from raw_server import DONE, LAST_CHUNK, STREAM_HEAD, Conn, chunk, delta, event, raw_server, script_of

from scavenge.edge.model_http import HttpModelClient, HttpModelTransport
from scavenge.types import Answer, ChatRequest, Endpoint, EndpointId, Url

KEY = "sk-very-secret-key-0123456789"
ASK = ChatRequest([{"role": "user", "content": "hi"}])
ASK_WHOLE = ChatRequest([{"role": "user", "content": "hi"}], stream=False)
END_OF_STREAM = chunk(delta("lo")) + chunk(delta(None, "stop")) + chunk(DONE) + LAST_CHUNK
WHOLE = STREAM_HEAD + chunk(delta("hello")) + chunk(delta(None, "stop")) + chunk(DONE) + LAST_CHUNK
BEGUN = STREAM_HEAD + chunk(delta("one")) + chunk(delta("two"))
ENGINE_DEAD = event(
    {"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError", "code": 500}}
)


def an_endpoint(url: str, **more: object) -> Endpoint:
    return Endpoint(EndpointId("pool"), "some/model", Url(url), secret=KEY, **more)


def client_of(url: str, transport: HttpModelTransport | None = None, **more: object) -> HttpModelClient:
    client = (transport or HttpModelTransport()).open_client(an_endpoint(url, **more))
    assert isinstance(client, HttpModelClient)
    return client


async def asked(url: str, request: ChatRequest = ASK, **more: object) -> Answer:
    client = HttpModelTransport().open_client(an_endpoint(url, **more))
    try:
        with trio.fail_after(10):
            return await client.ask(request)
    finally:
        client.close()


async def answer_of(*steps: object, request: ChatRequest = ASK) -> Answer:
    async with raw_server(script_of(*steps)) as server:
        return await asked(server.url, request)


def cut(conn: Conn) -> None:
    conn.cut()


def reset(conn: Conn) -> None:
    conn.reset()


async def silent(conn: Conn) -> None:
    await conn.until_gone()
