"""Environments of ``verifiers.v1``, with the real verifiers, at a double of the gateway."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Any

import pytest
from scavenge_verifiers.failures import RolloutFailed
from verifiers_kit import HANG, KEY, LOCAL, TOO_LONG, Asked, open_door, opened, played, refusal, reply, rows_of

from scavenge import ConfigError, InfrastructureError, RequestFailed

NAME = "plus-one-tasks"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def right(asked: Asked) -> Any:
    """What a good model says to ``What is N + 1 ?``."""
    return reply(str(int(asked.body["messages"][0]["content"].split()[2]) + 1))


def asking(turns: int) -> dict[str, Any]:
    """An agent that asks so often."""
    return {**LOCAL, "harness": {"id": NAME, "turns": turns}}


def test_an_episode_has_the_reward_and_the_metrics_of_its_task():
    with open_door(right) as door:
        rollout = played(NAME, door, agent=LOCAL)
    assert (rollout.reward, rollout.answer) == (2.0, "1")
    assert rollout.metrics == {"correct": 1.0, "length": 1.0}
    assert rollout.completion == [{"role": "assistant", "content": "1"}]
    assert rollout.info == {"stop_condition": "agent_completed", "is_truncated": False, "turns": 1}


def test_a_conversation_is_told_from_the_models_first_word_on():
    with open_door(right) as door:
        rollout = played(NAME, door, agent=asking(2))
    assert [message["role"] for message in rollout.completion] == ["assistant", "user", "assistant"]
    assert rollout.info["turns"] == 2


def test_requests_go_to_the_rollouts_own_address_without_a_proxy_and_say_nothing_of_sampling():
    with open_door(right) as door:
        played(NAME, door, agent=LOCAL)
        (asked,) = door.asked
    assert asked.path == "/session/s1/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert {name for name, value in asked.body.items() if value is not None} == {"model", "messages"}


def test_what_the_gateway_says_is_the_rollouts_error():
    with open_door(lambda _: refusal(503, "busy", "the queue is full")) as door:
        with pytest.raises(RequestFailed, match=r"busy \(HTTP 503\) after 2 attempts: the queue is full") as caught:
            played(NAME, door, agent=LOCAL)
        assert len(door.asked) == 1
    assert [attempt.endpoint for attempt in caught.value.attempts] == ["http://ep1/v1"] * 2


def test_a_request_that_fails_late_is_the_rollouts_error_not_a_lower_reward():
    def answer(asked: Asked) -> Any:
        return refusal(502, "failed", "it broke") if asked.last == "Sure?" else right(asked)

    with open_door(answer) as door, pytest.raises(RequestFailed, match="it broke"):
        played(NAME, door, agent=asking(2))


def test_a_first_prompt_that_is_too_long_is_an_error_that_the_breaker_does_not_count():
    with open_door(lambda _: TOO_LONG) as door, pytest.raises(RequestFailed, match="maximum context length") as caught:
        played(NAME, door, agent=LOCAL)
    assert caught.value.outcome.context_length


def test_a_gateway_that_is_not_there_is_no_fault_of_the_model():
    with open_door(right) as door:
        pass
    with pytest.raises(InfrastructureError, match="ProviderError"):
        played(NAME, door, agent=LOCAL)


def test_a_scoring_that_raises_is_the_rollouts_error():
    said = r"TaskError: .*scoring: RuntimeError: the judge is ill"
    with open_door(lambda _: reply("ask the judge")) as door, pytest.raises(RolloutFailed, match=said):
        played(NAME, door, agent=LOCAL)


def test_the_rows_are_the_tasks():
    rows = rows_of(NAME, taskset={"count": 2}, agent=LOCAL)
    assert [row.id for row in rows] == ["0", "1"]
    assert rows[1].data["task"].items() >= {"prompt": "What is 1 + 1 ?", "answer": "2"}.items()


def test_several_episodes_at_once_have_each_its_own_error():
    def answer(asked: Asked) -> Any:
        number = int(asked.last.split()[2])
        return refusal(400, "rejected", f"not {number}") if number % 2 else right(asked)

    async def play_all() -> list[Any]:
        async with opened(NAME, taskset={"count": 4}, agent=LOCAL) as environment:
            plays = [environment.play(row, door) for row in environment.examples()]
            return await asyncio.gather(*plays, return_exceptions=True)

    with open_door(answer) as door:
        results = asyncio.run(play_all())
    assert [getattr(result, "reward", None) for result in results] == [2.0, None, 2.0, None]
    assert [str(result).rpartition(": ")[2] for result in results[1::2]] == ["not 1", "not 3"]


def test_a_cancelled_episode_hangs_up_ends_its_program_and_leaves_no_task():
    async def cancel_one() -> None:
        async with opened(NAME, agent=LOCAL) as environment:
            before = asyncio.all_tasks()
            playing = asyncio.create_task(environment.play(next(iter(environment.examples())), door))
            await asyncio.to_thread(door.waiting.acquire)
            assert open_programs()
            playing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await playing
            await asyncio.to_thread(door.gone.acquire)
            while open_programs() or asyncio.all_tasks() - before:  # noqa: ASYNC110  # of processes, and of tasks not ours
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)  # the loop closes the last pipe

    with open_door(lambda _: HANG) as door:
        asyncio.run(cancel_one())


def open_programs() -> list[asyncio.SubprocessTransport]:
    """What the event loop still holds of programs: verifiers kills a cancelled one, and leaves its end to the loop."""
    kept = [one for one in gc.get_objects() if issubclass(type(one), asyncio.SubprocessTransport)]
    return [one for one in kept if one.get_returncode() is None or any(is_open(one, fd) for fd in range(3))]


def is_open(program: asyncio.SubprocessTransport, fd: int) -> bool:
    """Whether the loop still holds this end of a pipe."""
    pipe = program.get_pipe_transport(fd)
    return pipe is not None and not pipe.is_closing()


def test_nothing_of_an_episode_stays_in_the_process():
    async def play_twice() -> None:
        async with opened(NAME, agent=LOCAL) as environment:
            row = next(iter(environment.examples()))
            await asyncio.gather(*[environment.play(row, door) for _ in range(2)])
            for _ in range(50):  # what handled the last request may still be on its way out
                gc.collect()
                if not any(issubclass(type(one), Client) for one in gc.get_objects()):
                    break
                await asyncio.sleep(0.01)
            else:
                pytest.fail("a client outlives its episode")
            assert not [name for name in os.environ if "SCAVENGE_VERIFIERS" in name]

    with open_door(right) as door:
        from verifiers.v1.clients import Client

        asyncio.run(play_twice())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"taskset": {"cuont": 2}}, r"taskset\.cuont"),
        ({"taskset": 3}, "taskset: expected a table"),
        ({"agent": {"max_turns": "many"}}, r"agent\.max_turns"),
        ({"agnet": {}}, "agnet"),
    ],
)
def test_arguments_that_verifiers_refuses_are_named(arguments, said):
    with pytest.raises(ConfigError, match=said):
        rows_of(NAME, **arguments)
