"""OpenAI's own package through the whole program, while the servers die under it.

Its retries are off, so that every error would be seen.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from mortal_fleet import BOUND_S, MODEL, TOKEN, UNHEARD, Fleet, Gateway, questions, serving

openai = pytest.importorskip("openai", reason="install requirements/real.txt")

AT_ONCE = 8
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def settings_for(gateway: Gateway) -> dict[str, object]:
    return {"base_url": gateway.base_url, "api_key": TOKEN, "max_retries": 0, "timeout": BOUND_S}


def asking(text: str, **more: object) -> dict[str, object]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


def text_of(reply: object) -> str:
    return reply.choices[0].message.content


def test_every_request_is_answered_while_servers_die_and_fail(tmp_path):
    with Fleet(tmp_path) as fleet, serving(tmp_path) as gateway, openai.OpenAI(**settings_for(gateway)) as client:
        asked = questions(fleet)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            replies = list(pool.map(lambda one: client.chat.completions.create(**asking(one[0])), asked))
        figures = gateway.figures()
        assert fleet.deaths == len(fleet.mortals)
    assert [text_of(reply) for reply in replies] == [answer for _, answer in asked]
    assert {reply.choices[0].finish_reason for reply in replies} == {"stop"}
    assert {reply.usage.completion_tokens for reply in replies} == {5}
    assert (figures["answered"], figures["failed"]) == (len(asked), 0)
    assert figures["again"] >= fleet.troubles


def test_every_stream_is_whole_while_servers_die_and_fail_before_they_say_anything(tmp_path):
    async def ask(client: openai.AsyncOpenAI, text: str, free: asyncio.Semaphore) -> tuple[str, str]:
        async with free:
            chunks = [chunk async for chunk in await client.chat.completions.create(**asking(text, stream=True))]
        choices = [choice for chunk in chunks for choice in chunk.choices]
        return "".join(choice.delta.content or "" for choice in choices), choices[-1].finish_reason

    async def ask_all(client: openai.AsyncOpenAI, texts: list[str]) -> list[tuple[str, str]]:
        free = asyncio.Semaphore(AT_ONCE)
        async with client:
            return await asyncio.gather(*(ask(client, text, free) for text in texts))

    with Fleet(tmp_path, UNHEARD, max_concurrent=1) as fleet, serving(tmp_path) as gateway:
        asked = questions(fleet)
        replies = asyncio.run(ask_all(openai.AsyncOpenAI(**settings_for(gateway)), [text for text, _ in asked]))
        figures = gateway.figures()
        assert fleet.deaths == len(fleet.mortals)
    assert replies == [(answer, "stop") for _, answer in asked]
    assert (figures["answered"], figures["failed"]) == (len(asked), 0)
    assert figures["again"] >= fleet.troubles


def test_tools_are_called_whole_and_streamed_while_servers_die(tmp_path):
    def use_tools(client: openai.OpenAI, number: int, text: str) -> str:
        if number % 2:
            choice = client.chat.completions.create(**asking(text, tools=TOOLS)).choices[0]
        else:
            with client.chat.completions.stream(**asking(text, tools=TOOLS)) as events:
                choice = events.get_final_completion().choices[0]
        (call,) = choice.message.tool_calls
        assert (choice.finish_reason, call.function.name) == ("tool_calls", "add")
        numbers = json.loads(call.function.arguments)
        said = choice.message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)
        result = {"role": "tool", "tool_call_id": call.id, "content": str(numbers["a"] + numbers["b"])}
        messages = [*asking(text)["messages"], said, result]
        return text_of(client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS))

    with (
        Fleet(tmp_path, UNHEARD, max_concurrent=1) as fleet,
        serving(tmp_path) as gateway,
        openai.OpenAI(**settings_for(gateway)) as client,
    ):
        asked = questions(fleet, 0)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(lambda at: use_tools(client, at, asked[at][0]), range(len(asked))))
        assert fleet.deaths == len(fleet.mortals)
    assert answers == [answer for _, answer in asked]


def test_a_stream_that_ends_after_its_first_words_is_an_error_and_never_a_reply_or_a_call_of_a_tool(tmp_path):
    ends = ["cut", "cut", "reset", "reset", "abort", "abort", "die-midway"]
    with (
        Fleet(tmp_path, (), [[f"{end}-when-told" for end in ends]]) as fleet,
        serving(tmp_path) as gateway,
        openai.OpenAI(**settings_for(gateway)) as client,
    ):
        broken = [break_off(client, fleet, **({"tools": TOOLS} if number % 2 else {})) for number in range(len(ends))]
        figures = gateway.figures()
    for choices in broken:
        assert {choice.finish_reason for choice in choices} == {None}
    for choices in broken[::2]:
        assert "".join(choice.delta.content or "" for choice in choices) == "The answer"
    for choices in broken[1::2]:
        calls = [call.function for choice in choices for call in choice.delta.tool_calls or ()]
        assert [(call.name, call.arguments) for call in calls] == [("add", ""), (None, '{"a"')]
    assert (figures["answered"], figures["failed"], figures["again"]) == (0, len(ends), 0)


def break_off(client: openai.OpenAI, fleet: Fleet, **more: object) -> list[object]:
    """What the client was given of a stream that ended when it had given two pieces."""
    chunks: list[object] = []
    pieces = 2
    stream = client.chat.completions.create(**asking("What is 1 + 2?", stream=True, **more))
    while pieces:
        chunks.append(next(stream))
        delta = chunks[-1].choices[0].delta
        pieces -= bool(delta.content or delta.tool_calls)
    fleet.tell()
    with pytest.raises(openai.APIError) as raised:
        chunks.extend(stream)
    assert raised.value.message
    return [choice for chunk in chunks for choice in chunk.choices]
