"""The Trio run inside synchronous code."""

from __future__ import annotations

import pytest
import trio

from scavenge.testing.driver import TrioDriver


def test_tasks_move_only_when_told_to():
    seen = []

    async def task(name):
        seen.append(name)
        await trio.sleep_forever()

    with TrioDriver() as driver:
        driver.start(task, "first")
        assert seen == []
        driver.settle()
        assert seen == ["first"]


def test_pokes_between_two_settlements_meet_in_one_tick():
    seen = []
    event = trio.Event()

    async def task():
        try:
            await event.wait()
            seen.append("woken")
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            seen.append("cancelled")
            raise

    with TrioDriver() as driver:
        scope = driver.start(task)
        driver.settle()
        event.set()
        scope.cancel()
        assert seen == []
        driver.settle()
    assert seen == ["woken", "cancelled"]


def test_time_stands_still_but_for_what_settling_adds():
    woken_at = []

    async def task():
        await trio.sleep(10)
        woken_at.append(trio.current_time())

    with TrioDriver() as driver:
        driver.start(task)
        driver.settle()
        driver.settle(9)
        assert woken_at == []
        driver.settle(1)
        assert woken_at == [10]


def test_closing_cancels_the_tasks():
    ended = []

    async def task():
        try:
            await trio.sleep_forever()
        finally:
            ended.append("task")

    driver = TrioDriver()
    driver.start(task)
    driver.settle()
    driver.close()
    driver.close()
    assert ended == ["task"]


def test_an_error_in_a_task_comes_out_of_settle_and_ends_the_run():
    async def task():
        await trio.lowlevel.checkpoint()
        raise ValueError("mine")

    driver = TrioDriver()
    driver.start(task)
    with pytest.RaisesGroup(ValueError):
        driver.settle()
    with pytest.raises(RuntimeError, match="the run has ended"):
        driver.settle()
    driver.close()


def test_an_error_while_tasks_are_cancelled_comes_out_of_close():
    async def task():
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("mine")

    driver = TrioDriver()
    driver.start(task)
    driver.settle()
    with pytest.RaisesGroup(ValueError):
        driver.close()
