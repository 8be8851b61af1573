"""One prompt, one reply, one score."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from canned import CannedModel, chat_environment, chat_settings

from scavenge.environments.chat import SCORING_DEADLINE_S, ChatEnvironment, PlayError
from scavenge.plugin import Scorer
from scavenge.rollouts import Example, Rollout


def environment(tmp_path: Path, row: dict[str, Any] | None = None, **keys: Any) -> ChatEnvironment:
    row = {"question": "2+2?", "answer": "4"} if row is None else row
    (tmp_path / "data.jsonl").write_text(json.dumps(row) + "\n")
    return chat_environment(tmp_path, dataset="data.jsonl", **keys)


async def played(env: ChatEnvironment, model: CannedModel) -> Rollout:
    (example,) = env.examples()
    assert example.error is None
    return await env.play(example, model)


async def test_a_row_becomes_one_request_and_a_score(tmp_path: Path) -> None:
    model = CannedModel(" 4\n", reasoning="easy")
    rollout = await played(environment(tmp_path), model)
    assert model.asked == [[{"role": "user", "content": "2+2?"}]]
    assert rollout == Rollout(" 4\n", 1.0, answer="4", info={"finish_reason": "stop", "reasoning": "easy"})


async def test_a_wrong_reply_scores_nothing(tmp_path: Path) -> None:
    assert (await played(environment(tmp_path), CannedModel("5"))).reward == 0.0


async def test_an_empty_reply_is_judged_like_any_other(tmp_path: Path) -> None:
    assert (await played(environment(tmp_path), CannedModel(""))).reward == 0.0


async def test_the_system_message_comes_first(tmp_path: Path) -> None:
    model = CannedModel()
    await played(environment(tmp_path, system="Be {brief}."), model)
    assert model.asked[0][0] == {"role": "system", "content": "Be {brief}."}


@pytest.mark.parametrize(
    ("row", "keys", "content"),
    [
        ({"q": "hi", "answer": "4"}, {"prompt": "q"}, "hi"),
        ({"q": "hi", "answer": "4"}, {"prompt": "q", "template": "Say: {prompt}"}, "Say: hi"),
        ({"a": "x", "n": 3, "l": [1, "ä"], "answer": "4"}, {"template": "{{{a}}} {n} {l}"}, '{x} 3 [1, "ä"]'),
        ({"prompt": "p", "question": "q", "answer": "4"}, {}, "p"),
        ({"prompt": None, "question": "q", "answer": "4"}, {}, "q"),
    ],
)
async def test_the_user_text_is_made_of_the_row(
    tmp_path: Path, row: dict[str, Any], keys: dict[str, Any], content: str
) -> None:
    model = CannedModel()
    await played(environment(tmp_path, row, **keys), model)
    assert model.asked == [[{"role": "user", "content": content}]]


async def test_a_list_of_messages_is_sent_as_it_is(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "3", "tool_call_id": "1"},
    ]
    model = CannedModel()
    await played(environment(tmp_path, {"messages": messages, "prompt": "no", "answer": "4"}), model)
    assert model.asked == [messages]


@pytest.mark.parametrize(
    ("extract", "reply", "extracted", "reward"),
    [
        (r"<a>(.*?)</a>", "so <a> 4 </a>", " 4 ", 1.0),
        (r"\d", "a 4 b 5", "4", 1.0),
        (r"<a>(.*?)</a>", "4", None, 0.0),
        (r"x(y)?", "x", "", 0.0),
    ],
)
async def test_extract_comes_before_the_score(
    tmp_path: Path, extract: str, reply: str, extracted: str | None, reward: float
) -> None:
    rollout = await played(environment(tmp_path, extract=extract), CannedModel(reply))
    assert (rollout.info["extracted"], rollout.reward, rollout.completion) == (extracted, reward, reply)


async def test_normalisers_apply_to_both_sides(tmp_path: Path) -> None:
    row = {"question": "?", "answer": "The PARIS"}
    env = environment(tmp_path, row, normalize=["articles", "casefold", "punctuation"])
    assert (await played(env, CannedModel("paris."))).reward == 1.0
    env = environment(tmp_path, row, normalize=[])
    assert (await played(env, CannedModel("The paris"))).reward == 0.0


@pytest.mark.parametrize(
    ("scorer", "answer", "reply"),
    [
        ("includes", "Paris", "It is paris."),
        ("numeric", "1000", "It is 1,000 m"),
        ("choice", "A", "Answer: A"),
        ("regex", r"^\S+ is", "This is"),
    ],
)
async def test_each_scorer_sees_what_it_needs(tmp_path: Path, scorer: str, answer: str, reply: str) -> None:
    env = environment(tmp_path, {"question": "?", "answer": answer}, scorer=scorer)
    assert (await played(env, CannedModel(reply))).reward == 1.0


async def test_the_scorer_none_gives_no_reward_even_where_nothing_was_extracted(tmp_path: Path) -> None:
    env = environment(tmp_path, {"question": "?"}, scorer="none", extract="x")
    rollout = await played(env, CannedModel("4"))
    assert (rollout.reward, rollout.answer) == (None, None)


# --- scorers of others


def with_scorer(tmp_path: Path, body: str, name: str, monkeypatch: pytest.MonkeyPatch) -> ChatEnvironment:
    (tmp_path / f"{name}.py").write_text(f"def score(reply, answer, row):\n    {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return environment(tmp_path, scorer=f"{name}:score")


async def test_a_function_scores_with_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = with_scorer(tmp_path, "return (reply == answer) + len(row)", "rowscorer", monkeypatch)
    assert (await played(env, CannedModel(" 4 "))).reward == 3.0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise RuntimeError('oh')", "scorer failing0.score: RuntimeError: oh (failing0.py, line 2)"),
        ("return None", "scorer failing1.score: expected a finite number, got nothing"),
        ("return float('nan')", "scorer failing2.score: expected a finite number, got nan"),
        ("return 'yes'", 'scorer failing3.score: expected a finite number, got "yes"'),
    ],
)
async def test_a_scorer_that_fails_is_this_rollouts_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    name = message.split()[1].partition(".")[0]
    with pytest.raises(PlayError) as caught:
        await played(with_scorer(tmp_path, body, name, monkeypatch), CannedModel())
    assert str(caught.value) == message


async def test_a_scorer_that_is_stuck_ends_its_rollout_only(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    # the clock does not jump while a thread runs, so it is moved by hand
    autojump_clock.autojump_threshold = float("inf")
    stuck, go_on = threading.Event(), threading.Event()

    def score(reply: str, answer: object, row: object) -> float:
        stuck.set()
        go_on.wait(10)
        return 1.0

    env = ChatEnvironment(chat_settings(tmp_path, dataset="data.jsonl"), Scorer("slow", score))
    try:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def move_the_clock() -> None:
                await trio.to_thread.run_sync(stuck.wait, 10)
                autojump_clock.jump(SCORING_DEADLINE_S + 1)

            with pytest.raises(PlayError, match="scorer slow: no score after 120 s"):
                await env.play(Example("1", {"question": "?", "answer": "4"}), CannedModel())
    finally:
        go_on.set()


async def test_a_row_that_cannot_be_asked_is_an_error_of_the_rollout(tmp_path: Path) -> None:
    with pytest.raises(PlayError, match="the row has other"):
        await environment(tmp_path).play(Example("1", {"other": 1}), CannedModel())


async def test_mathematics_is_compared_as_such(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    env = environment(tmp_path, {"question": "?", "answer": r"2\sqrt{2}"}, scorer="math")
    assert (await played(env, CannedModel(r"so $\boxed{\sqrt{8}}$"))).reward == 1.0
    assert (await played(env, CannedModel(r"so $\boxed{\sqrt{7}}$"))).reward == 0.0


def test_the_environment_asks_once_a_rollout(tmp_path: Path) -> None:
    assert environment(tmp_path).multi_turn is False
