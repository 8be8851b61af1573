"""Keeps the process's signal handlers from those that an environment of the classic API puts in their place."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TAKEN = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Put the handlers back that were there before the block. Only the main thread can set any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _TAKEN}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # it was not set from Python
                signal.signal(number, handler)
