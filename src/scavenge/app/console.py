"""What every command needs of the terminal, and nothing that takes long to import."""

from __future__ import annotations

import io
import os
import sys

from scavenge.edge.console import Screen


def screen_on_stderr() -> Screen:
    """Standard error, with everything that looks like a secret taken out of what is said there."""
    # Python has no sys.stderr when the process was started without one
    return Screen.on(sys.stderr or io.StringIO(), os.environ)
