"""How large the servers' caches are, from what returning turns found there. Pure.

Each turn has its distance: what all sessions used since its own last use (see :mod:`.recency`). One that found its
prefix shows that the caches hold that much, one that lost it that they do not; one that found a part shows both, by
that part. Servers are several, and others may use them too, so there is no sharp edge: the size is where the fewest
tell the contrary, between the last distance below and the first one above. What was seen stays true whatever the
budget was, so a start with far too many sessions teaches as much as one with too few.

Servers tell how much of a prompt was cached. Where they do not, the time to the first token tells something: a first
call reads its whole prompt, so it shows what a token costs that is not cached. A turn whose prefix was there reads only
what is new, one whose prefix was lost reads all; both wait in the same queues. So the time a token of a returning turn
is compared with the median of that of the latest first calls, and only turns count whose prompt was for the most part
known, where the two cases lie far apart. It is a coarse measure, and takes waiting for reading: where calls wait in the
server for long, it tells nothing right.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

import attrs

from scavenge.core.sessions.policy import TurnEnded

SEEN = 512
"""So many of the latest turns tell."""
LOST_LEAST = 3.0
"""Fewer prefixes lost beyond an edge make none."""
FIRST_CALLS = 32
"""Of so many first calls the time a token is remembered."""
FIRST_CALLS_LEAST = 5
"""Before there were so many, times tell nothing."""
KNOWN_LEAST = 0.75
"""The part of a prompt that has to be known for its time to be of use."""
FEW, MANY = 0.85, 0.95
"""Guessed from times, a prefix was lost below the first, and found above the second; in between, nothing is clear."""


ALONE, IN_VAIN = 1.25, 10
"""Where so many turns lost their prefix though they had used nearly all that was used since, by this factor, and none
found it, nothing is ever kept."""


@attrs.frozen
class Edge:
    """Between what distances the caches end."""

    found: float
    """The longest distance below; 0: nothing was found."""
    lost: float
    """The shortest distance above; infinity: nothing was lost."""
    keeps: bool = True
    """Whether the caches keep anything from turn to turn."""

    @property
    def tokens(self) -> float:
        """The size of the caches: half way, by factors; the upper bound where that is all that is known."""
        return math.sqrt(self.found * self.lost) if self.found else self.lost


@attrs.frozen
class _Turn:
    distance: float
    part: float
    """How much of what was to be found was found."""
    is_alone: bool
    """Whether next to nothing was used in between but by the session itself."""


@attrs.define(eq=False)
class HitMeter:
    """Remembers the latest turns."""

    turns: int = 0
    """Turns that told something since this was set to 0 last."""
    _seen: deque[_Turn] = attrs.field(factory=lambda: deque(maxlen=SEEN), init=False)
    _first_calls: deque[float] = attrs.field(factory=lambda: deque(maxlen=FIRST_CALLS), init=False)
    """Seconds a token of the latest first calls."""

    def count(self, turn: TurnEnded) -> None:
        """Take in a turn."""
        if turn.first:
            self._note_first(turn)
        elif turn.expected_tokens > turn.shared_tokens and (part := self._part(turn)) is not None:
            self.turns += 1
            self._seen.append(_Turn(turn.distance_tokens, part, turn.distance_tokens <= ALONE * turn.prompt_tokens))

    def _note_first(self, turn: TurnEnded) -> None:
        if turn.first_token_s and turn.prompt_tokens and not turn.cached_tokens:
            self._first_calls.append(turn.first_token_s / turn.prompt_tokens)

    def _part(self, turn: TurnEnded) -> float | None:
        """The part of what was to be found that was; ``None``: nobody knows."""
        if turn.cached_tokens is not None:
            part = (turn.cached_tokens - turn.shared_tokens) / (turn.expected_tokens - turn.shared_tokens)
            return max(0.0, min(1.0, part))
        if turn.first_token_s is None or len(self._first_calls) < FIRST_CALLS_LEAST:
            return None
        known = turn.expected_tokens / turn.prompt_tokens
        if known < KNOWN_LEAST:
            return None
        read = turn.first_token_s / turn.prompt_tokens / median(self._first_calls)
        part = (1.0 - read) / known
        return 0.0 if part < FEW else 1.0 if part > MANY else None

    def edge(self) -> Edge:
        """Where the caches end."""
        seen = sorted(self._seen, key=lambda turn: turn.distance)
        against = least = sum(turn.part for turn in seen)
        below = 0
        for number, turn in enumerate(seen, 1):
            against += 1.0 - 2.0 * turn.part
            if against < least:
                least, below = against, number
        lost = sum(1.0 - turn.part for turn in seen[below:])
        found = seen[below - 1].distance if below else 0.0
        in_vain = sum(turn.is_alone for turn in seen) if not found else 0
        return Edge(found, seen[below].distance if lost >= LOST_LEAST else math.inf, in_vain < IN_VAIN)

    def rescale(self, factor: float) -> None:
        """The caches are together so many times as large: what was seen of those before is true of so much more."""
        self._seen = deque((attrs.evolve(turn, distance=factor * turn.distance) for turn in self._seen), SEEN)
