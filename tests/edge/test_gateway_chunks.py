"""A whole reply told as a stream: nothing is lost, nothing is added, no line is long."""

from __future__ import annotations

import json

import pytest
from gateway_kit import DOCUMENT
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.chat import ReplyReader
from scavenge.edge.gateway.chunks import events_of
from scavenge.types import ApiType, Ok

CHAT = ApiType.CHAT_COMPLETIONS

TEXTS = st.text(max_size=5) | st.sampled_from(["x" * 10_000, "\u2028\n\n", "\ud800"])
CALLS = st.builds(
    lambda number, name, arguments: {
        "id": f"call-{number}",
        "type": "function",
        "function": {"name": f"f{name}", "arguments": arguments},
    },
    st.integers(),
    TEXTS,
    TEXTS,
)
MESSAGES_SAID = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.none() | TEXTS.filter(bool)},
    optional={
        "reasoning_content": TEXTS.filter(bool),
        "tool_calls": st.lists(CALLS, min_size=1, max_size=3, unique_by=lambda call: call["id"]),
        "annotations": st.just([{"kind": "x"}]),
    },
)
CHOICES = st.lists(
    st.fixed_dictionaries(
        {"message": MESSAGES_SAID, "finish_reason": st.sampled_from(["stop", "length", "tool_calls"])},
        optional={"logprobs": st.just({"content": [{"token": "a", "logprob": -0.1}]}), "stop_reason": st.just(7)},
    ),
    min_size=1,
    max_size=3,
).map(lambda choices: [{"index": index, **choice} for index, choice in enumerate(choices)])


@given(
    CHOICES, st.sampled_from([{}, {"system_fingerprint": "fp"}, {"timings": {"cache_n": 3}, "scavenge": {"a": [1]}}])
)
def test_a_streamed_reply_is_put_together_to_what_it_was(choices: list, others: dict):
    document = {**DOCUMENT, **others, "choices": choices}
    told = events_of(document, CHAT, include_usage=True)
    assert max(map(len, told.split(b"\n"))) < 32_768  # there are clients that refuse long lines
    assert told.count(b'"timings"') == ("timings" in others)  # what belongs to no choice is told once
    reader = ReplyReader()
    reader.start(200, {})
    reader.feed(told)
    outcome = reader.finish()
    assert isinstance(outcome, Ok)
    assert outcome.reply.raw == document


@pytest.mark.parametrize("document", [
    {"choices": [{"text": "hello!", "finish_reason": "stop"}]},
    {"choices": [{"index": 0, "message": {"content": "hello!"}, "finish_reason": "stop"}, "no choice"], "usage": None},
])  # fmt: skip
def test_a_reply_of_another_shape_is_told_as_far_as_it_goes(document):
    chunks = [json.loads(line[6:]) for line in events_of(document, CHAT, include_usage=False).split(b"\n\n")[:-2]]
    assert [chunk["object"] for chunk in chunks] == ["chat.completion.chunk"] * 2
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "hello!"}
    assert chunks[1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "call", ["no call", {}, {"function": None}, {"function": {"name": "f", "arguments": {"a": 1}}}]
)
def test_a_tool_call_of_another_shape_is_told_as_it_is(call):
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    document = {"choices": [{"message": message, "finish_reason": "stop"}]}
    first = events_of(document, CHAT, include_usage=False).split(b"\n\n")[0]
    told = json.loads(first[6:])["choices"][0]["delta"]["tool_calls"]
    assert told == [{**(call if isinstance(call, dict) else {}), "index": 0}]


TEXT_CHOICES = st.lists(
    st.fixed_dictionaries(
        {"text": TEXTS, "finish_reason": st.sampled_from(["stop", "length"])},
        optional={"logprobs": st.just({"tokens": ["a"], "token_logprobs": [-0.1]}), "stop_reason": st.just(7)},
    ),
    min_size=1,
    max_size=3,
).map(lambda choices: [{"index": index, **choice} for index, choice in enumerate(choices)])


@given(TEXT_CHOICES)
def test_a_reply_of_the_completions_api_is_told_in_its_own_words(choices: list):
    document = {**DOCUMENT, "object": "text_completion", "choices": choices}
    told = events_of(document, ApiType.COMPLETIONS, include_usage=True)
    chunks = [json.loads(line[6:]) for line in told.split(b"\n\n")[:-2]]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert not any(key in choice for chunk in chunks for choice in chunk["choices"] for key in ("delta", "message"))
    for index, choice in enumerate(choices):
        said = [one for chunk in chunks for one in chunk["choices"] if one["index"] == index]
        assert "".join(one["text"] for one in said) == choice["text"]
        assert [one["finish_reason"] for one in said if one["finish_reason"]] == [choice["finish_reason"]]
        assert [one["logprobs"] for one in said if "logprobs" in one] == [
            choice[key] for key in choice if key == "logprobs"
        ]
    assert chunks[-1]["usage"] == DOCUMENT["usage"]
    reader = ReplyReader()
    reader.start(200, {})
    reader.feed(told)
    outcome = reader.finish()
    assert isinstance(outcome, Ok)
    assert outcome.reply.text == choices[0]["text"]
