"""Threads for tests on a virtual clock."""

from __future__ import annotations

import trio


class InPlace:
    """Runs what blocks in place: a virtual clock must not jump while a thread works."""

    async def run(self, step, *, abandon_on_cancel: bool = False):
        await trio.lowlevel.checkpoint()
        return step()
