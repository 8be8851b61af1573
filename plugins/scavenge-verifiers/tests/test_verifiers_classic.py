"""Environments of the classic API, with the real verifiers, at a double of the gateway."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest
from scavenge_verifiers.failures import RolloutFailed
from verifiers_kit import HANG, KEY, TOO_LONG, Asked, needs_classic, open_door, opened, played, refusal, reply, rows_of

from scavenge import InfrastructureError, RequestFailed

pytestmark = [needs_classic, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def right(asked: Asked) -> Any:
    """What a good model says to ``What is N + 1 ?``."""
    return reply(str(int(asked.body["messages"][0]["content"].split()[2]) + 1))


def test_a_rollout_has_the_reward_and_the_metrics_that_the_rubric_gives():
    with open_door(right) as door:
        rollout = played("plus-one", door)
    assert (rollout.reward, rollout.answer) == (1.0, "1")
    assert rollout.metrics == {"correct": 1.0, "num_turns": 1.0}
    assert rollout.completion == [{"role": "assistant", "content": "1"}]
    assert rollout.info == {"stop_condition": "max_turns_reached", "is_truncated": False}


def test_requests_go_to_the_rollouts_own_address_without_a_proxy_and_say_nothing_of_sampling():
    with open_door(right) as door:
        played("plus-one", door)
        (asked,) = door.asked
    assert asked.path == "/session/s1/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body.keys() == {"model", "messages"}


def test_what_the_gateway_says_is_the_rollouts_error_and_it_is_asked_only_once():
    with open_door(lambda _: refusal(503, "busy", "the queue is full")) as door:
        with pytest.raises(RequestFailed, match=r"busy \(HTTP 503\) after 2 attempts: the queue is full") as caught:
            played("plus-one", door)
        assert len(door.asked) == 1
    assert [attempt.endpoint for attempt in caught.value.attempts] == ["http://ep1/v1"] * 2


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_that_verifiers_lets_through_as_it_is_is_the_same_error(status):
    refused, said = refusal(status, "misrouted", "no such key"), rf"misrouted \(HTTP {status}\)"
    with open_door(lambda _: refused) as door, pytest.raises(RequestFailed, match=said):
        played("plus-one", door)


def test_a_gateway_that_is_not_there_is_no_fault_of_the_model():
    with open_door(right) as door:
        pass
    with pytest.raises(InfrastructureError, match="APIConnectionError"):
        played("plus-one", door)


def test_a_reply_without_content_is_an_error_not_a_reward_of_0():
    with open_door(lambda _: reply(None)) as door, pytest.raises(RolloutFailed, match="EmptyModelResponseError"):
        played("plus-one", door)


def test_a_first_prompt_that_is_too_long_is_an_error_that_the_breaker_does_not_count():
    with open_door(lambda _: TOO_LONG) as door, pytest.raises(RequestFailed, match="maximum context length") as caught:
        played("plus-one", door)
    assert caught.value.outcome.context_length


def test_a_conversation_that_grows_too_long_is_cut_short_and_scored_as_verifiers_does():
    def answer(asked: Asked) -> Any:
        return reply("no idea") if len(asked.body["messages"]) == 1 else TOO_LONG

    with open_door(answer) as door:
        rollout = played("plus-one", door, turns=3)
    assert (rollout.reward, rollout.info["stop_condition"]) == (0.0, "prompt_too_long")
    assert rollout.info["is_truncated"] is True


def test_a_conversation_goes_on_until_the_environment_ends_it():
    def answer(asked: Asked) -> Any:
        return right(asked) if asked.last == "No. Try again." else reply("no idea")

    with open_door(answer) as door:
        rollout = played("plus-one", door, turns=5)
    assert [message["role"] for message in rollout.completion] == ["assistant", "user", "assistant"]
    assert (rollout.reward, rollout.metrics["num_turns"]) == (1.0, 2.0)


def test_tools_are_offered_called_and_told_of():
    call = {"id": "c1", "type": "function", "function": {"name": "double", "arguments": '{"number": 4}'}}

    def answer(asked: Asked) -> Any:
        return reply(None, tool_calls=[call]) if asked.body["messages"][-1]["role"] == "user" else reply("So it is 1.")

    with open_door(answer) as door:
        rollout = played("plus-one", door, tools=True, turns=4)
        assert [tool["function"]["name"] for tool in door.asked[0].body["tools"]] == ["double"]
    assert [message["role"] for message in rollout.completion] == ["assistant", "tool", "assistant"]
    assert rollout.completion[1]["content"] == "8"
    assert rollout.reward == 1.0


def test_a_reward_function_that_raises_counts_as_0_and_is_told_of():
    with open_door(lambda _: reply("a word")) as door:
        rollout = played("plus-one", door, score="fussy")
    assert rollout.reward == 0.0
    assert rollout.info["reward_errors"] == ["fussy: ValueError: invalid literal for int() with base 10: 'a word'"]


def test_a_judge_that_cannot_be_reached_is_an_error_not_a_reward_of_0():
    with open_door(right) as door, pytest.raises(InfrastructureError, match="reward function judged: ConnectError"):
        played("plus-one", door, score="judged")


def test_an_environment_that_compares_rollouts_is_refused():
    with pytest.raises(ValueError, match=r"plus-one scores the rollouts of an example by comparing them \(compared\)"):
        rows_of("plus-one", score="compared")


def test_an_environment_that_does_not_score_gives_no_reward():
    with open_door(right) as door:
        assert played("plus-one", door, score_rollouts=False).reward is None


def test_the_rows_are_those_to_evaluate_on_or_else_those_to_train_on():
    rows = rows_of("plus-one")
    assert [row.id for row in rows] == ["0", "1", "2"]
    assert rows[1].data["prompt"] == [{"role": "user", "content": "What is 1 + 1 ?"}]
    assert len(rows_of("plus-one", eval_rows=True)) == 1


def test_ids_that_the_dataset_has_twice_give_way_to_the_rows_numbers():
    assert [row.id for row in rows_of("plus-one", repeated_ids=True)] == ["0", "1", "2"]


def test_several_rollouts_at_once_have_each_its_own_error():
    def answer(asked: Asked) -> Any:
        number = int(asked.last.split()[2])
        return refusal(400, "rejected", f"not {number}") if number % 2 else right(asked)

    async def play_all() -> list[Any]:
        async with opened("plus-one", count=6) as environment:
            plays = [environment.play(row, door) for row in environment.examples()]
            return await asyncio.gather(*plays, return_exceptions=True)

    with open_door(answer) as door:
        results = asyncio.run(play_all())
    assert [getattr(result, "reward", None) for result in results] == [1.0, None, 1.0, None, 1.0, None]
    assert [str(result).rpartition(": ")[2] for result in results[1::2]] == ["not 1", "not 3", "not 5"]


def test_a_cancelled_rollout_hangs_up_and_leaves_no_task():
    async def cancel_one() -> None:
        async with opened("plus-one") as environment:
            before = asyncio.all_tasks()
            playing = asyncio.create_task(environment.play(next(iter(environment.examples())), door))
            await asyncio.to_thread(door.waiting.acquire)
            playing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await playing
            await asyncio.to_thread(door.gone.acquire)
            assert not asyncio.all_tasks() - before

    with open_door(lambda _: HANG) as door:
        asyncio.run(cancel_one())


def test_it_is_torn_down_once_and_leaves_the_signal_handlers_alone():
    torn: list[str] = []
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    async def teardown() -> None:
        await asyncio.sleep(0)
        torn.append("down")

    async def open_and_close() -> None:
        async with opened("plus-one") as environment:
            env = environment._env
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)][1] is before[1]
            env._teardown_handlers.append(teardown)
        await env._teardown()

    asyncio.run(open_and_close())
    assert torn == ["down"]


def test_an_environment_from_the_package_index_plays():
    pytest.importorskip("sophistry_bench_sprint")
    with open_door(lambda _: reply("<claim>It is so.</claim>")) as door:
        rollout = played("sophistry-bench-sprint", door, n_items=2)
    assert rollout.metrics["n_claims_metric"] == 1.0
    assert 0.0 <= rollout.reward <= 1.0


def test_verifiers_own_environment_of_reasoning_gym_plays():
    pytest.importorskip("reasoning_gym")
    with open_door(lambda _: reply("<answer>no number</answer>")) as door:
        rollout = played("rg-arithmetic", door)
    assert rollout.metrics.keys() == {"check_answer_reward_func", "format_reward_func"}
    assert rollout.metrics["format_reward_func"] > 0
