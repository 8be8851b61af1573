"""Has rubrics of the classic API tell of reward functions that raise, which they count as 0 and only log."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from scavenge_verifiers.notes import notes_at_hand


def rubrics_of(env: Any) -> Iterator[Any]:
    """The rubrics of an environment, of the groups in it, and of the environments that it is made of."""
    waiting = [env.rubric, *(inner.rubric for inner in _environments(env))]
    seen: set[int] = set()
    while waiting:
        rubric = waiting.pop()
        if id(rubric) not in seen:
            seen.add(id(rubric))
            yield rubric
            waiting.extend(getattr(rubric, "rubrics", ()))


def _environments(env: Any) -> Iterator[Any]:
    for inner in getattr(env, "envs", ()):
        if hasattr(inner, "rubric"):
            yield inner
            yield from _environments(inner)


def group_rewards(env: Any) -> list[str]:
    """The reward functions that score all rollouts of an example together, by name."""
    return [
        getattr(function, "__name__", repr(function))
        for rubric in rubrics_of(env)
        for function in rubric.funcs
        if rubric._is_group_func(function)
    ]


def watch_rewards(env: Any) -> None:
    """Note each reward function that raises; it raises all the same."""
    for rubric in rubrics_of(env):
        rubric.funcs[:] = [_watched(function) for function in rubric.funcs]


def _watched(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except Exception as exc:
            _note(function, exc)
            raise
        return _awaited(function, result) if inspect.isawaitable(result) else result

    return call


async def _awaited(function: Callable[..., Any], result: Awaitable[Any]) -> Any:
    try:
        return await result
    except Exception as exc:
        _note(function, exc)
        raise


def _note(function: Callable[..., Any], error: Exception) -> None:
    if (notes := notes_at_hand()) is not None:
        notes.reward_raised(getattr(function, "__name__", repr(function)), error)
