"""Environments of each backend as users write them: mypy, strict, has nothing to say but where it is told so.

Nothing here is run. An ignored error that is none any more is an error itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

import scavenge
from scavenge.plugin import EnvironmentType, rest

MESSAGES = [{"role": "user", "content": "hi"}]


class Base(scavenge.Environment):
    def examples(self) -> Iterator[scavenge.Example]:
        yield scavenge.Example("1", {})


class Trio(Base):
    async def open(self) -> None:
        await super().open()

    async def play(self, example: scavenge.Example, model: scavenge.ModelSession) -> scavenge.Rollout:
        return scavenge.Rollout((await model.chat(MESSAGES, max_tokens=5)).text, 1.0)


class Asyncio(Trio):
    backend = "asyncio"
    multi_turn = False


class Sync(Base):
    backend = "sync"

    def open(self) -> None:
        """Plain, as ``play`` is."""

    def play(self, example: scavenge.Example, model: scavenge.SyncModelSession) -> scavenge.Rollout:
        return scavenge.Rollout(model.chat(MESSAGES, max_tokens=5).text, 1.0, info={"url": model.base_url})

    def close(self) -> None:
        """Plain, as ``play`` is."""


class WrongResult(Base):
    async def play(self, example: scavenge.Example, model: scavenge.ModelSession) -> float:  # type: ignore[override]
        return 1.0


class WrongSyncResult(Base):
    def play(self, example: scavenge.Example, model: scavenge.SyncModelSession) -> float:  # type: ignore[override]
        return 1.0


class WrongArguments(Base):
    def play(self, example: scavenge.Example) -> scavenge.Rollout:  # type: ignore[override]
        return scavenge.Rollout("", 1.0)


class Forgetful(Base):
    async def play(self, example: scavenge.Example, model: scavenge.ModelSession) -> scavenge.Rollout:
        return scavenge.Rollout(model.chat(MESSAGES).text, 1.0)  # type: ignore[attr-defined]  # not awaited


async def play(environment: Trio, model: scavenge.ModelSession) -> float | None:
    """The result of a rollout of a known class is known."""
    return (await environment.play(scavenge.Example("1", {}), model)).reward


@attrs.frozen
class Config:
    count: int = 1
    args: Mapping[str, Any] = rest()


def create(config: Config) -> scavenge.Environment:
    """Made with and without the rest of the keys."""
    return Sync() if config == Config(1) else Trio() if Config(2, {"a": 1}).args else Asyncio()


KIND = EnvironmentType("kind", Config, create, with_owner=True)
