"""What this machine and the interpreter grant the process. Decides nothing but to ask for as much as is allowed."""

from __future__ import annotations

import gc
import resource

COLLECT_AFTER = 10_000
"""Objects made and not freed before the collector looks at the youngest; CPython's own figure is 700."""


def raise_descriptor_limit() -> int:
    """Raise the number of files and sockets that may be open to the most the system allows, and tell it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # some systems grant less than they name
            return soft
    return hard


def spare_collector() -> None:
    """Have the garbage collector leave alone what is there now, and look at the rest less often.

    For a server that is up: what a request leaves in cycles is little, and a full collection holds all clients up, for
    a tenth of a second with 512 of them (``benchmarks/gateway.py``: the longest added latency fell from 78 to 14 ms).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 10, 10)
