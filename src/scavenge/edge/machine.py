"""What this machine grants the process. Decides nothing but to ask for as much as is allowed."""

from __future__ import annotations

import resource


def raise_descriptor_limit() -> int:
    """Raise the number of files and sockets that may be open to the most the system allows, and tell it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # some systems grant less than they name
            return soft
    return hard
