"""Cancellation at every step."""

from __future__ import annotations

import pytest
import trio

from scavenge.testing.sweep import cancel_at_every_step


def test_every_step_is_cut_once_and_the_last_run_is_whole():
    reached = []

    async def use():
        reached.append(0)
        for step in (1, 2, 3):
            await trio.lowlevel.checkpoint()
            reached[-1] = step

    runs = cancel_at_every_step(use, lambda: None)
    assert runs == len(reached)
    assert reached == sorted(reached)
    assert set(reached) == {0, 1, 2, 3}


def test_what_is_lost_between_being_woken_and_running_is_found():
    slots = trio.Semaphore(1)
    free = []

    async def use():
        nonlocal slots
        slots = trio.Semaphore(1)
        await slots.acquire()
        await trio.sleep(1)
        await trio.lowlevel.checkpoint()
        slots.release()

    with pytest.raises(AssertionError, match="lost"):
        cancel_at_every_step(use, lambda: free.append(slots.value) or assert_one(slots.value))
    assert free[-1] == 0


def assert_one(value):
    assert value == 1, "lost"


def test_what_is_woken_but_cancelled_before_it_runs_is_among_the_steps():
    outcomes = set()

    async def use():
        event = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(set_later, event)
            try:
                await event.wait()
                outcomes.add(("passed", trio.current_effective_deadline() == float("-inf")))
            except trio.Cancelled:
                outcomes.add(("cut", event.is_set()))
                raise

    async def set_later(event):
        await trio.sleep(1)
        event.set()

    cancel_at_every_step(use, lambda: None)
    assert outcomes == {("cut", False), ("passed", True), ("passed", False)}


def test_idle_time_costs_nothing():
    async def use():
        await trio.sleep(24 * 3600)

    assert cancel_at_every_step(use, lambda: None) > 1


def test_code_that_never_ends_is_given_up():
    async def use():
        while True:
            await trio.lowlevel.cancel_shielded_checkpoint()
            if trio.current_effective_deadline() == float("-inf"):
                return

    with pytest.raises(AssertionError, match="not at the end after 5 steps"):
        cancel_at_every_step(use, lambda: None, max_steps=5)


def test_an_error_of_the_code_comes_out():
    async def use():
        await trio.lowlevel.checkpoint()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        cancel_at_every_step(use, lambda: None, max_steps=9)
