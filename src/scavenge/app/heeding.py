"""Signals for whoever has more than one answer to them: each is told, in the order in which they came.

A run, which has one answer, has :mod:`scavenge.runtime.shutdown`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import trio


@contextmanager
def heeding(heed: Callable[[signal.Signals], None], numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """While the block runs, call *heed* in the event loop for each of these signals. Belongs in the main thread.

    The block may be over when a signal's turn has come: it is dropped then.
    """
    token, over = trio.lowlevel.current_trio_token(), False

    def tell(number: signal.Signals) -> None:
        if not over:
            heed(number)

    def on_signal(number: int, frame: FrameType | None) -> None:
        token.run_sync_soon(tell, signal.Signals(number))

    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        over = True
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: it was set outside Python


def not_ignored(*numbers: signal.Signals) -> tuple[signal.Signals, ...]:
    """Those of the signals that this process was not started to ignore, as ``nohup`` has it ignore SIGHUP."""
    return tuple(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)
