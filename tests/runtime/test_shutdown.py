"""What the first and what a later signal does."""

from __future__ import annotations

import signal

import trio

from scavenge.runtime.shutdown import PATIENCE_S, run_signal_watcher


async def test_the_first_signal_stops_and_only_one_that_comes_much_later_kills(mock_clock):
    stopped: list[signal.Signals] = []
    killed: list[signal.Signals] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(run_signal_watcher, stopped.append, killed.append)
        for number, later_s in ((signal.SIGTERM, 0.0), (signal.SIGINT, PATIENCE_S / 2), (signal.SIGINT, PATIENCE_S)):
            mock_clock.jump(later_s)
            signal.raise_signal(number)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert stopped == [signal.SIGTERM]
    assert killed == [signal.SIGINT]
