"""The gateway to its most frequent client: OpenAI's own package, without a changed line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
import trio
from gateway_kit import DOCUMENT, Door, answering, open_gateway, raising, relayed, waiting
from raw_client import MESSAGES, until

from scavenge.errors import UnknownSession
from scavenge.types import Busy, Failed, Lost, Rejected, RequestFailed, TimedOut

openai = pytest.importorskip("openai", reason="install requirements/real.txt")

T = TypeVar("T")

CALL = {"id": "call-1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
CALLING = {
    **DOCUMENT,
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
            "finish_reason": "tool_calls",
        }
    ],
}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


async def with_client(gateway, use: Callable[[openai.OpenAI], T]) -> T:
    """Use a client with its own settings, retries included, in a thread."""
    address = gateway.listener.address("s1")

    def in_thread() -> T:
        with openai.OpenAI(base_url=address.base_url, api_key=address.api_key) as client:
            return use(client)

    return await trio.to_thread.run_sync(in_thread, abandon_on_cancel=True)


async def test_a_request_and_its_reply():
    async with open_gateway() as gateway:
        reply = await with_client(
            gateway,
            lambda client: client.chat.completions.create(
                model="any", messages=MESSAGES, temperature=0.5, extra_body={"top_k": 5}
            ),
        )
        asked = {"model": "any", "messages": MESSAGES, "temperature": 0.5, "top_k": 5}
        assert gateway.door.asked == [("s1", asked)]
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("hello!", "stop")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 2)


async def test_several_requests_of_one_client_and_several_clients():
    async with open_gateway() as gateway:
        ask = lambda client: [client.chat.completions.create(model="any", messages=MESSAGES).id for _ in range(3)]  # noqa: E731
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(with_client, gateway, ask)
        assert len(gateway.door.calls) == 12


async def test_a_stream():
    async with open_gateway() as gateway:
        options = {"stream_options": {"include_usage": True}}
        chunks = await with_client(
            gateway,
            lambda client: list(client.chat.completions.create(model="any", messages=MESSAGES, stream=True, **options)),
        )
    said = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in said) == "hello!"
    assert said[0].delta.role == "assistant"
    assert said[-1].finish_reason == "stop"
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == [2]


async def test_a_stream_that_is_long_in_coming():
    door, release = waiting()
    async with open_gateway(door, comment_s=0.01) as gateway, trio.open_nursery() as nursery:
        nursery.start_soon(_later, door, release.set)
        texts = await with_client(gateway, _streamed_text)
    assert texts == "hello!"


def _streamed_text(client: openai.OpenAI) -> str:
    chunks = client.chat.completions.create(model="any", messages=MESSAGES, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


async def _later(door: Door, then: Callable[[], object]) -> None:
    await until(lambda: door.under_way)
    await trio.sleep(0.05)  # a few comments
    then()


async def test_tools_whole_and_streamed():
    async with open_gateway(Door(answering(CALLING))) as gateway:
        reply = await with_client(
            gateway, lambda client: client.chat.completions.create(model="any", messages=MESSAGES, tools=TOOLS)
        )
        assert gateway.door.calls[0].document["tools"] == TOOLS
        assert reply.choices[0].message.tool_calls[0].function.arguments == CALL["function"]["arguments"]

        def stream(client: openai.OpenAI) -> object:
            with client.chat.completions.stream(model="any", messages=MESSAGES, tools=TOOLS) as events:
                return events.get_final_completion()

        whole = await with_client(gateway, stream)
    assert whole.choices[0].finish_reason == "tool_calls"
    call = whole.choices[0].message.tool_calls[0]
    assert (call.id, call.function.name, call.function.arguments) == ("call-1", "add", '{"a": 1, "b": 2}')


@pytest.mark.parametrize("stream", [False, True])
async def test_several_choices(stream):
    choices = [{**DOCUMENT["choices"][0], "index": index} for index in range(3)]
    async with open_gateway(Door(answering({**DOCUMENT, "choices": choices}))) as gateway:

        def ask(client: openai.OpenAI) -> object:
            if not stream:
                return client.chat.completions.create(model="any", messages=MESSAGES, n=3)
            with client.chat.completions.stream(model="any", messages=MESSAGES, n=3) as events:
                return events.get_final_completion()

        reply = await with_client(gateway, ask)
        assert [call.document["n"] for call in gateway.door.calls] == [3]
    assert [(choice.index, choice.message.content) for choice in reply.choices] == [(n, "hello!") for n in range(3)]


ERRORS = [
    (RequestFailed(Rejected("HTTP 400: maximum context length", 400, context_length=True), ()), "BadRequestError"),
    (RequestFailed(Rejected("HTTP 422: no", 422), ()), "UnprocessableEntityError"),
    (RequestFailed(Busy("queue is full", 429), ()), "InternalServerError"),
    (RequestFailed(Failed("HTTP 500: cuda", 500), ()), "InternalServerError"),
    (RequestFailed(Lost("connection reset"), ()), "InternalServerError"),
    (RequestFailed(TimedOut("no reply within 3 s"), ()), "InternalServerError"),
    (UnknownSession("its rollout is over"), "APIStatusError"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "kind"), ERRORS, ids=[f"{kind}-{error}"[:40] for error, kind in ERRORS])
async def test_an_error_is_the_clients_own_and_it_asks_only_once(error, kind, stream):
    async with open_gateway(Door(raising(error))) as gateway:
        with pytest.raises(openai.APIStatusError) as raised:
            await with_client(
                gateway,
                lambda client: client.chat.completions.create(model="any", messages=MESSAGES, stream=stream),
            )
        assert len(gateway.door.calls) == 1
    assert type(raised.value).__name__ == kind
    assert str(error) in raised.value.message
    if kind == "BadRequestError":
        assert raised.value.code == "context_length_exceeded"


async def test_a_wrong_key_is_an_authentication_error():
    async with open_gateway() as gateway:
        with pytest.raises(openai.AuthenticationError, match="there is a wrong API key"):
            await with_client(
                gateway,
                lambda client: client.with_options(api_key="wrong").chat.completions.create(
                    model="any", messages=MESSAGES
                ),
            )


async def test_what_the_gateway_does_not_have_is_not_found():
    async with open_gateway() as gateway:
        with pytest.raises(openai.NotFoundError, match="there is POST /v1/chat/completions"):
            await with_client(gateway, lambda client: client.embeddings.create(model="any", input="hello"))


async def test_the_models_and_one_of_them():
    async with open_gateway() as gateway:
        models = await with_client(gateway, lambda client: list(client.models.list()))
        one = await with_client(gateway, lambda client: client.models.retrieve("org/sim"))
        with pytest.raises(openai.NotFoundError, match='there is "org/sim", "other"'):
            await with_client(gateway, lambda client: client.models.retrieve("none"))
    assert [model.id for model in models] == ["org/sim", "other"]
    assert (one.id, one.object) == ("org/sim", "model")


async def test_a_stream_that_fails_after_its_beginning_is_an_error():
    release = trio.Event()

    async def does(call, sink):
        await release.wait()
        raise RequestFailed(Lost("connection reset"), ())

    door = Door(does)
    async with open_gateway(door, comment_s=0.01) as gateway, trio.open_nursery() as nursery:
        nursery.start_soon(_later, door, release.set)
        with pytest.raises(openai.APIError, match="connection reset"):
            await with_client(gateway, _streamed_text)
        assert len(door.calls) == 1


async def test_a_client_that_loses_patience_has_its_call_cancelled():
    door, _ = waiting()
    async with open_gateway(door) as gateway:
        with pytest.raises(openai.APITimeoutError):
            await with_client(gateway, _ask_impatiently)
        await until(lambda: door.cancelled)


def _ask_impatiently(client: openai.OpenAI) -> object:
    impatient = client.with_options(timeout=openai.Timeout(60, read=0.2), max_retries=0)
    return impatient.chat.completions.create(model="any", messages=MESSAGES)


async def test_the_asynchronous_client_whole_and_streamed_and_cancelled():
    door, release = waiting()

    async def does(call, sink):
        if call.document.get("user") == "impatient":
            await release.wait()
        await trio.lowlevel.checkpoint()
        return relayed()

    door.does = does
    async with open_gateway(door) as gateway:
        address = gateway.listener.address("s1")

        async def use() -> list[str]:
            async with openai.AsyncOpenAI(base_url=address.base_url, api_key=address.api_key) as client:
                create = client.chat.completions.create
                whole = [create(model="any", messages=MESSAGES) for _ in range(5)]
                texts = [reply.choices[0].message.content for reply in await asyncio.gather(*whole)]
                chunks = [chunk async for chunk in await create(model="any", messages=MESSAGES, stream=True)]
                texts.append("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
                impatient = asyncio.create_task(create(model="any", messages=MESSAGES, user="impatient"))
                while not door.under_way:  # noqa: ASYNC110 (it is in another thread)
                    await asyncio.sleep(0.001)
                impatient.cancel()
                await asyncio.gather(impatient, return_exceptions=True)
                return texts

        texts = await trio.to_thread.run_sync(asyncio.run, use(), abandon_on_cancel=True)
        assert texts == ["hello!"] * 6
        await until(lambda: door.cancelled)
