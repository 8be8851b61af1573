"""When a server was last heard, over all connections to it. Kept, not judged.

The two instants differ where a process hangs on a machine that works: its kernel goes on accepting connections.
"""

from __future__ import annotations

import math


class Signs:
    """The last signs of life of one server, as instants of Trio's clock; minus infinity: never."""

    __slots__ = ("answered_at", "heard_at")

    def __init__(self) -> None:
        self.heard_at = -math.inf
        """When a byte last came from it."""
        self.answered_at = -math.inf
        """When its host last accepted, refused or ended a connection."""

    @property
    def reached_at(self) -> float:
        """When anything last came from its host."""
        return max(self.heard_at, self.answered_at)
