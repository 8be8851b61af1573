"""What the simulated model says."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.testing.model import count_tokens, reply_to, solve, text_of

DATASET = Path(__file__).parents[2] / "examples" / "quickstart" / "arithmetic.jsonl"


def ask(text: str, **options: int):
    return reply_to([{"role": "user", "content": text}], **options)


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("What is 12 + 7?", 19),
        ("What is 12 - 30?", -18),
        ("What is 12 \u2212 30?", -18),
        ("Compute 3 \u00d7 (4 + 5).", 27),
        ("3x4", 12),
        ("6 TIMES 7 plus 2", 44),
        ("2 + 3 * 4", 14),
        ("10 - 3 - 2", 5),
        ("-3 minus -5", 2),
        ("- (2 + 3)", -5),
        ("Ana has 31 apples and gives away 12 of them.", 19),
        ("Ben has 31 apples and gets 12 more.", 43),
        ("There are 5 boxes with 12 pens in each of them.", 60),
        ("There are 5 boxes, 12 pens and 3 cards in each.", None),
        ("5 boxes of 12 pens", None),
        ("(1 + 2", None),
        ("1 + 2)", None),
        ("1 +", None),
        ("1 2 + 3", None),
        ("a tax of - x", None),
        ("", None),
    ],
)
def test_small_arithmetic_is_solved(question, value):
    assert solve(question) == value


def test_a_hostile_expression_is_not_computed():
    assert solve("(" * 1500) is None
    assert solve("*".join(["999999999999999"] * 100)) is None


def test_the_shipped_dataset_is_solved_and_about_nine_in_ten_replies_are_right():
    rows = [json.loads(line) for line in DATASET.read_bytes().split(b"\n") if line]
    assert len(rows) == len({row["id"] for row in rows}) == len({row["question"] for row in rows}) == 300
    assert all(solve(row["question"]) == int(row["answer"]) for row in rows)
    right = sum(ask(row["question"]).tokens[-1] == f" {row['answer']}." for row in rows)
    assert 0.8 <= right / len(rows) <= 0.97


def test_the_same_prompt_and_seed_give_the_same_reply():
    assert ask("What is 1 + 1?", seed=3) == ask("What is 1 + 1?", seed=3)
    assert len({ask("Tell me a story", seed=seed).tokens for seed in range(9)}) > 1


def test_the_last_user_message_is_the_question():
    conversation = [
        {"role": "system", "content": "What is 1 + 1?"},
        {"role": "user", "content": "What is 20 + 20?"},
        {"role": "assistant", "content": "5 + 5"},
    ]
    answers = {reply_to(conversation, seed).tokens[-1] for seed in range(20)}
    assert " 40." in answers
    assert reply_to(conversation[:1]).tokens[-1] == " it."


def test_lengths_are_spread_around_forty_tokens():
    lengths = [len(ask(f"story {number}").tokens) for number in range(500)]
    assert 34 <= statistics.median(lengths) <= 46
    assert min(lengths) >= 8
    assert max(lengths) <= 400
    assert statistics.stdev(lengths) > 15


def test_max_tokens_cuts_and_says_so():
    whole = ask("hello")
    cut = ask("hello", max_tokens=3)
    assert (cut.tokens, cut.finish_reason) == (whole.tokens[:3], "length")
    assert ask("hello", max_tokens=len(whole.tokens)).finish_reason == "stop"


def test_content_may_be_parts_and_anything_else_counts_for_nothing():
    assert text_of([{"type": "text", "text": "a"}, {"type": "image_url"}, "b", {"text": 3}, {"text": "c"}]) == "a c"
    assert text_of(None) == text_of(7) == text_of({"text": "a"}) == ""
    assert reply_to([]).prompt_tokens == 0


@given(st.text(), st.integers(), st.integers(1, 500))
def test_any_prompt_has_a_reply_that_keeps_its_promises(prompt, seed, max_tokens):
    reply = ask(prompt, seed=seed, max_tokens=max_tokens)
    assert 1 <= len(reply.tokens) <= max_tokens
    assert count_tokens("".join(reply.tokens)) == len(reply.tokens)
    assert reply.prompt_tokens == len(prompt.split())


@pytest.mark.parametrize("max_tokens", [1, 3, 40, 4000])
def test_a_model_that_ignores_its_end_says_exactly_as_much_as_it_may(max_tokens):
    natural, reply = ask("hello"), ask("hello", max_tokens=max_tokens, ignore_eos=True)
    assert (len(reply.tokens), reply.finish_reason) == (max_tokens, "length")
    assert count_tokens("".join(reply.tokens)) == max_tokens
    shared = min(max_tokens, len(natural.tokens))
    assert reply.tokens[:shared] == natural.tokens[:shared]
    assert ask("hello", ignore_eos=True) == natural, "without a limit there is nothing to go on to"


def test_a_prompt_may_be_taken_to_be_longer_than_it_is():
    assert ask("hello", prompt_tokens=20_000).prompt_tokens == 20_000
    assert attrs.evolve(ask("hello", prompt_tokens=20_000), prompt_tokens=1) == ask("hello")


SYSTEM, FIRST = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}
MORE = [{"role": "assistant", "content": "yes"}, {"role": "user", "content": "and?"}]


def test_the_turns_of_a_conversation_are_known_by_how_it_begins():
    first = reply_to([SYSTEM, FIRST]).conversation
    assert reply_to([SYSTEM, FIRST, *MORE]).conversation == first
    assert reply_to([SYSTEM, FIRST, *MORE, *MORE]).conversation == first
    others = ([FIRST], [SYSTEM], [], [{**SYSTEM, "content": "Be long."}, FIRST], [SYSTEM, {**FIRST, "content": "hi"}])
    assert len({first, *(reply_to(messages).conversation for messages in others)}) == 6
