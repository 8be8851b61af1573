"""Waiting, in tests, for what another task or the kernel does in its own time."""

from __future__ import annotations

from collections.abc import Callable

import trio


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so that nobody tells us of; fail after ten seconds."""
    with trio.fail_after(10):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await trio.sleep(0.001)
