"""Hostile endpoint sources: they flip, list too much, raise what nobody expects, and close badly."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
from source_kit import Heard, Scripted

from scavenge.listings import Listing


class Flips:
    """Fails every other time."""

    def __init__(self) -> None:
        self.asked = 0

    async def list_endpoints(self) -> Listing:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if self.asked % 2 == 0:
            raise ValueError(f"no. {self.asked}")
        return Listing(["a"])


async def test_a_source_that_flips_is_told_of_each_time_and_loses_nobody(autojump_clock):
    heard = Heard(Flips(), interval_s=1.0)
    await heard.run(20.5)
    assert [type(change).__name__ for change in heard.changes] == ["Added"]
    assert [ok for ok, _ in heard.told] == [False, True] * 10


class Groups:
    """Raises groups of what is no exception of anybody's."""

    def __init__(self) -> None:
        self.opened = 0

    @asynccontextmanager
    async def open(self):
        self.opened += 1
        await trio.lowlevel.checkpoint()
        yield self

    async def list_endpoints(self) -> Listing:
        await trio.lowlevel.checkpoint()
        if self.opened == 2:
            raise BaseExceptionGroup("odd", [SystemExit(3), BaseExceptionGroup("deeper", [GeneratorExit()])])
        if self.opened == 1:
            raise GeneratorExit
        return Listing(["a"])


async def test_a_source_that_raises_groups_of_exits_is_opened_again(autojump_clock):
    source = Groups()
    heard = Heard(source, interval_s=1.0)
    await heard.run(30)
    assert source.opened == 3
    assert [type(change).__name__ for change in heard.changes] == ["Added"]


class ClosesBadly:
    """Takes its time to close, or raises then."""

    def __init__(self, closing: object) -> None:
        self.closing = closing

    @asynccontextmanager
    async def open(self):
        await trio.lowlevel.checkpoint()
        try:
            yield Scripted("a")
        finally:
            if isinstance(self.closing, float):
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.closing)
            if isinstance(self.closing, BaseException):
                raise self.closing


@pytest.mark.parametrize("closing", [1.5, ValueError("x"), SystemExit(1), GeneratorExit()], ids=repr)
async def test_a_bad_closing_neither_fails_nor_holds_up_the_end(autojump_clock, closing):
    heard = Heard(ClosesBadly(closing))
    start = trio.current_time()
    await heard.run(5)
    assert trio.current_time() - start < 10


class Interrupted:
    """Somebody presses Ctrl-C while it opens."""

    @asynccontextmanager
    async def open(self):
        await trio.lowlevel.checkpoint()
        raise KeyboardInterrupt
        yield


async def test_ctrl_c_while_a_source_opens_ends_the_start(autojump_clock):
    error = await Heard(Interrupted()).refused()
    assert isinstance(error, KeyboardInterrupt)


async def test_a_huge_listing_asked_for_all_the_time_is_taken(autojump_clock):
    names = " ".join(f"n{number}" for number in range(2_000))
    heard = Heard(Scripted(names), interval_s=0.1)
    await heard.run(0.95)
    assert len(heard.changes) == 2_000
