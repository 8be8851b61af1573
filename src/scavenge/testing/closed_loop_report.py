"""What came of a closed loop: a row every few seconds, the moves of the limit, and what was counted. No decisions here.

versionadded: 0.1
"""

from __future__ import annotations

import attrs


@attrs.frozen
class LoopRow:
    """What went on in the time up to ``at``; all but counts are means over it."""

    at: float
    goodput: float
    """Tokens of the replies that were completed, per second."""
    tokens_per_s: float
    """Tokens that were generated, per second."""
    limit: float
    in_flight: float
    waiting: int
    """Requests that waited in the server at the end of it."""


@attrs.frozen
class LimitMove:
    """The policy says another limit than before."""

    at: float
    limit: int
    reason: str
    """As the policy's view tells, if it has one."""


@attrs.define
class LoopReport:
    """One run of a policy."""

    rows: list[LoopRow] = attrs.field(factory=list)
    moves: list[LimitMove] = attrs.field(factory=list)
    flows: int = 0
    """How often the policy was told of the flow."""
    requests: int = 0
    """Attempts that were made."""
    finished: int = 0
    timeouts: int = 0
    refused: int = 0
    """Attempts that were answered with 429."""
    errors: int = 0
    lost: int = 0
    preemptions: int = 0

    def goodput(self, since: float, until: float) -> float:
        """Tokens of completed replies per second between two instants, as far as whole rows tell."""
        rows = [row.goodput for row in self.rows if since < row.at <= until]
        return sum(rows) / len(rows) if rows else 0.0

    def peak_limit(self, since: float, until: float) -> float:
        """The highest limit between two instants, as a row's mean."""
        return max((row.limit for row in self.rows if since < row.at <= until), default=0.0)

    def moves_between(self, since: float, until: float) -> int:
        """How often the limit moved between two instants."""
        return sum(since < move.at <= until for move in self.moves)

    def reaches_at(self, tokens_per_s: float, since: float, until: float) -> float | None:
        """When the speed of three rows together first was so high; ``None``: never between the two instants."""
        rows = [row for row in self.rows if since < row.at <= until]
        for earlier, row, later in zip(rows[:1] + rows[:-1], rows, rows[1:] + rows[-1:], strict=True):
            if earlier.tokens_per_s + row.tokens_per_s + later.tokens_per_s >= 3 * tokens_per_s:
                return row.at
        return None
