"""A small environment of the classic API, as a package on the Environments Hub has it."""

from __future__ import annotations

from typing import Literal

import httpx
import verifiers as vf
from datasets import Dataset


async def correct(completion, answer) -> float:
    """Whether the answer is in the last reply."""
    return float(answer in completion[-1]["content"])


def fussy(completion, answer) -> float:
    """A reward function that raises for some replies."""
    return float(int(completion[-1]["content"]) == int(answer))


async def judged(completion) -> float:
    """A reward function that asks a judge, who is not there."""
    async with httpx.AsyncClient() as client:
        return float((await client.get("http://127.0.0.1:9/")).text)


def compared(completions) -> list[float]:
    """A reward for being the longest of a group."""
    return [float(len(one) == max(map(len, completions))) for one in completions]


class Guess(vf.MultiTurnEnv):
    """Asks again as long as the answer is not there."""

    async def env_response(self, messages, state, **kwargs):
        """What the user says to a wrong answer."""
        return [vf.UserMessage(content="No. Try again.")]

    @vf.stop
    async def guessed(self, state) -> bool:
        """Whether the answer is there."""
        turns = state["trajectory"]
        return bool(turns) and state["answer"] in turns[-1]["completion"][-1].content


def double(number: int) -> int:
    """Twice a number.

    Args:
        number: The number.
    """
    return 2 * number


def load_environment(
    count: int = 3, turns: int = 1, score: Literal["correct", "fussy", "judged", "compared"] = "correct", **more
) -> vf.Environment:
    """Make it."""
    rows = [{"question": f"What is {n} + 1 ?", "answer": str(n + 1)} for n in range(count)]
    if more.pop("repeated_ids", False):
        rows = [{**row, "example_id": 7} for row in rows]
    if more.pop("eval_rows", False):
        more["eval_dataset"] = Dataset.from_list(rows[:1])
    rubric = vf.Rubric(funcs=[globals()[score]], weights=[1.0])
    dataset = Dataset.from_list(rows)
    if more.pop("tools", False):
        return vf.ToolEnv(dataset=dataset, rubric=rubric, tools=[double], max_turns=turns, **more)
    if turns == 1:
        return vf.SingleTurnEnv(dataset=dataset, rubric=rubric, **more)
    return Guess(dataset=dataset, rubric=rubric, max_turns=turns, **more)
