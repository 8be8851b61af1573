"""Environments of every backend, right and wrong, that note in ``made`` each time that one is made."""

from __future__ import annotations

import functools

import trio

from scavenge.plugin import Environment

made: list[object] = []


def plain(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


class Base(Environment):
    def __init__(self, count: int = 1):
        made.append(self)
        if count < 0:
            raise ValueError("count below nothing")
        self.count = count

    def examples(self):
        return []

    async def play(self, example, model): ...


class Here(Base): ...


class Asking(Base):
    in_worker = True


class Loops(Base):
    backend = "asyncio"

    async def open(self): ...


class Blocks(Base):
    backend = "sync"

    def play(self, example, model): ...


class BlocksAtBothEnds(Blocks):
    def open(self): ...
    def close(self): ...


class Wrapped(Blocks):
    play = plain(Base.play)


class Deciding(Base):
    def __init__(self, count: int = 1):
        super().__init__(count)
        self.in_worker = count > 1


class ByProperty(Base):
    @property
    def in_worker(self):
        return self.count > 1


class Ducks:
    backend = "asyncio"

    def __init__(self):
        self.multi_turn, self.in_worker = False, True

    def examples(self): ...
    async def play(self, example, model): ...
    async def open(self): ...
    async def close(self): ...


class Endless:
    backend = "sync"

    def examples(self): ...
    def play(self, example, model): ...
    def open(self): ...


class LoopsPlainly(Base):
    backend = "asyncio"

    def play(self, example, model): ...


class LoopsClosing(Loops):
    def close(self): ...


class BlocksAwaiting(Base):
    backend = "sync"


class BlocksYielding(Blocks):
    def play(self, example, model):
        yield


class BlocksOpening(Blocks):
    async def open(self): ...


class BlocksWithoutOpening(Blocks):
    open = None


class Listed(Blocks):
    examples = ()


class BlocksPlayless(Environment):
    backend = "sync"

    def examples(self): ...


class LoopsRowless(Environment):
    backend = "asyncio"

    async def play(self, example, model): ...


class Maker:
    def __new__(cls, count: int = 1):
        return Loops(count)


def make(count: int):
    return Base(count)


def make_loops(count: int = 1):
    return Loops(count)


def make_exit():
    raise SystemExit(3)


async def make_late():
    await trio.lowlevel.checkpoint()
    return Base()


make_wrapped = plain(make_late)
