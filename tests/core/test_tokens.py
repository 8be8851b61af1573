"""How many tokens a text has, by its length or as the server counted."""

from __future__ import annotations

import pytest

from scavenge.core.tokens import prompt_tokens_of, tokens_of
from scavenge.types import Busy, Ok, Reply, Usage


def test_tokens_are_the_servers_count_where_there_is_one():
    assert tokens_of(Ok(Reply("12345678", "stop", usage=Usage(1, 7)))) == 7
    assert tokens_of(Ok(Reply("12345678", "stop", reasoning="1234"))) == 3
    assert tokens_of(Busy("x")) is None


def test_a_reply_whose_tokens_nobody_counted_has_a_token_a_piece_at_least():
    assert tokens_of(Ok(Reply("", "stop", pieces=5))) == 5
    assert tokens_of(Ok(Reply("12345678", "stop", pieces=5))) == 5
    assert tokens_of(Ok(Reply("12345678", "stop", pieces=1))) == 2
    assert tokens_of(Ok(Reply("", "stop", usage=Usage(1, 7), pieces=9))) == 7


@pytest.mark.parametrize(
    ("messages", "tokens"),
    [
        ([], 0),
        ([{"role": "user", "content": "12345678"}, {"role": "assistant", "content": "1234"}], 3),
        ([{"content": [{"type": "text", "text": "1234"}, {"type": "image_url"}, "odd", {"text": 5}]}], 1),
        ([{"content": None}, {"content": 5}, {}, "odd"], 0),
    ],
)
def test_a_prompt_has_the_tokens_of_its_texts(messages, tokens: float):
    assert prompt_tokens_of(messages) == tokens
