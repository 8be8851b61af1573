"""What is evaluated: the base class of environments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, ClassVar, ParamSpec, TypeVar

from scavenge.rollouts import Example, Rollout

P = ParamSpec("P")
T = TypeVar("T")


def _plain_too(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Awaitable[T] | T]:
    """For type checkers: a subclass may have a plain function instead, which ``backend = "sync"`` asks for."""
    return function


def _plain_or_super(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, Any]:
    """The same for what a subclass calls by ``super()``: where the own one is awaited, so is the base's."""
    return function


class Environment:
    """What is evaluated: examples, and how one is played out and scored. Subclass it, or give the same names.

    With ``backend = "sync"``, ``play``, ``open`` and ``close`` are plain functions; else they are coroutine functions.

    versionadded: 0.1
    """

    multi_turn: ClassVar[bool] = True
    """Whether a rollout may call the model more than once."""
    backend: ClassVar[str] = "trio"
    """``trio``; ``asyncio`` and ``sync`` are played in worker processes."""
    in_worker: ClassVar[bool] = False
    """Whether it asks for a worker process of its own accord."""

    def examples(self) -> Iterable[Example]:
        """The dataset as a stream; read in a thread, so it may block. Ids are unique."""
        raise NotImplementedError(f"{type(self).__name__} has no examples of its own")

    def identity(self) -> Mapping[str, object]:
        """What changes its results beside its arguments, such as a digest of its data; values are texts and numbers.

        Called once in each process that makes the environment, before it is opened and in no event loop, so it may
        block. A run is resumed only where it is the same.
        """
        return {}

    def images(self, example: Example) -> Iterable[str]:
        """References of the container images that a rollout of *example* needs, such as ``python:3.12``.

        Called where the examples are read. They are on this machine before ``play`` is called.
        """
        return ()

    @_plain_too
    async def play(self, example: Example, model: Any) -> Rollout:
        """Play one example out and score it. What it raises is this rollout's error.

        ``model`` is a :class:`ModelSession`, with ``backend = "sync"`` a :class:`SyncModelSession`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no play of its own")

    @_plain_or_super
    async def open(self) -> None:
        """Called once before the first rollout."""

    @_plain_or_super
    async def close(self) -> None:
        """Called once after the last rollout, also when the run is cancelled (then for two seconds at most)."""
