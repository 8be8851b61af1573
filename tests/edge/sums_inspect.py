"""An Inspect task: sums, told by the model itself or with the help of a tool."""

from __future__ import annotations

import asyncio

from inspect_ai import Task, task
from inspect_ai.dataset import json_dataset
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool


@tool
def add() -> Tool:
    """What the model may use."""

    async def execute(a: int, b: int) -> str:
        """Add two numbers.

        Args:
            a: the first
            b: the second
        """
        await asyncio.sleep(0)
        return str(a + b)

    return execute


@task
def sums(dataset: str) -> Task:
    """Ask each question, and let the model call the tool."""
    return Task(dataset=json_dataset(dataset), solver=[use_tools(add()), generate()], scorer=includes())
