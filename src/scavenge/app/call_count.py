"""What became of a gateway's calls, in one line for its end."""

from __future__ import annotations

from collections import Counter

import attrs

from scavenge.events import AttemptStarted, CallEnded, Event


@attrs.define(eq=False)
class CallCount:
    """An observer that counts calls by how they ended. ``cutting``: those that end from now on were cut by us."""

    cutting: bool = False
    again: int = 0
    """Requests that were sent once more."""
    _ends: Counter[str] = attrs.field(factory=Counter, init=False)

    def __call__(self, event: Event) -> None:
        """Hear of an event."""
        if isinstance(event, AttemptStarted):
            self.again += event.again
        elif isinstance(event, CallEnded):
            self._ends[self._end_of(event.outcome)] += 1

    def _end_of(self, outcome: str) -> str:
        match outcome:
            case "ok":
                return "answered"
            case "hung up":
                return "cut" if self.cutting else "given up by their clients"
            case "rejected" | "ended":
                return outcome
            case _:
                return "given up"

    @property
    def line(self) -> str:
        """All of it, such as ``12 calls: 11 answered, 1 given up; 3 requests were sent again``."""
        calls = self._ends.total()
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self._ends.items()))
        said = f"{calls} call{'s' * (calls != 1)}" + (f": {ends}" if ends else "")
        sent = f"; {self.again} request{'s were' if self.again != 1 else ' was'} sent again"
        return said + (sent if self.again else "")
