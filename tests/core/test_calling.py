"""What pools go by in a foreign client's call."""

from __future__ import annotations

import pytest

from scavenge.calls import Call
from scavenge.core.calling import may_be_streamed, model_names, options_of, prompt_tokens_of_call, refuses_stream
from scavenge.types import ApiType, EndpointId, Failed, Lost, Rejected


@pytest.mark.parametrize(
    ("option", "may"),
    [
        ({}, True),
        ({"n": 3, "logprobs": True, "tools": []}, True),
        ({"best_of": 2}, False),
        ({"echo": True}, False),
        ({"echo": False, "best_of": None, "prompt_logprobs": 0}, True),
        ({"prompt_logprobs": 1}, False),
        ({"use_beam_search": True}, False),
        ({"modalities": ["audio"]}, False),
        ({"audio": {"voice": "x"}}, False),
    ],
)
def test_a_reply_that_is_another_one_as_a_stream_is_not_asked_for_as_one(option, may):
    assert may_be_streamed({"model": "m", "messages": [], **option}) is may


@pytest.mark.parametrize(
    ("outcome", "refuses"),
    [
        (Rejected("no streams", 400), True),
        (Rejected("extra inputs are not permitted: Stream_Options", 422), True),
        (Rejected("temperature is wrong", 400), False),
        (Rejected("too long to stream", 400, context_length=True), False),
        (Failed("500", 500), False),
        (Lost("the stream is gone"), False),
    ],
)
def test_only_a_refusal_can_be_one_of_the_stream(outcome, refuses):
    assert refuses_stream(outcome) is refuses


def test_options_are_what_is_neither_the_messages_nor_how_they_are_sent():
    asked = {"model": "m", "messages": [], "stream": True, "stream_options": {}, "temperature": 0, "self": 1}
    assert options_of(asked) == {"temperature": 0, "self": 1}


def tokens(api: ApiType, **document: object) -> float:
    return prompt_tokens_of_call(Call(api, b"", document))


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("12345678", 2),
        (["1234", "12345678"], 3),
        ([1, 2, 3], 3),
        ([[1, 2], [3]], 3),
        ([[1, 2], "1234", 7, {"no": "prompt"}], 4),
        ([], 0),
        (None, 0),
        ({"no": "prompt"}, 0),
    ],
)
def test_a_prompt_is_a_text_or_tokens_or_several_of_them(prompt, expected):
    assert tokens(ApiType.COMPLETIONS, prompt=prompt) == expected


def test_a_chats_prompt_is_its_messages():
    messages = [{"role": "user", "content": "12345678"}, {"role": "assistant", "content": None}]
    assert tokens(ApiType.CHAT_COMPLETIONS, messages=messages, prompt="not looked at") == 2
    assert tokens(ApiType.CHAT_COMPLETIONS, messages="none") == 0


def test_a_pool_is_found_by_its_id_and_by_a_model_that_is_its_alone():
    a, b, c, d = map(EndpointId, ("a", "b", "c", "d"))
    assert model_names([]) == {}
    assert model_names([(a, "m1"), (b, "m2"), (c, "m2"), (d, "")]) == {"a": a, "b": b, "c": c, "d": d, "m1": a}


def test_an_id_comes_before_a_model_of_the_same_name():
    a, b = EndpointId("a"), EndpointId("b")
    assert model_names([(a, "b"), (b, "m")]) == {"a": a, "b": b, "m": b}
