"""What served requests tell ``tide``, apart from windows: how long they take, how soon the first token comes.

It must not know the limit, nor what time it is. Invariant: every figure is finite and not negative.
"""

from __future__ import annotations

import math

import attrs

from scavenge.signals import Ended

_MEMORY = 0.05
_LONGEST_RESIDENCE_S = 600.0
"""Windows are no longer for requests that take longer: the limit must not be blind for an hour."""
_FIRST_TOKENS = 64
_QUIET = 4
"""Requests in flight up to which a first token comes as from an all but empty server."""
_MANY = 24
"""Fewer requests than this fill no server that batches, however long they get."""
_KNOWN_PART = 1.0 / 8.0


@attrs.define
class Served:
    """What is known from requests that were served."""

    residence_s: float = 0.0
    """How long a request takes, the last ones above all."""
    first_token_s: float = 0.0
    """The mean time to the first token in an all but empty server."""
    _done: int = 0
    _first_tokens: int = 0

    def on_done(self, ended: Ended) -> None:
        """A request was served."""
        duration_s, first_s = ended.duration_s, ended.first_token_s
        if not 0.0 < duration_s < math.inf:
            return
        self._done += 1
        residence_s = min(duration_s, _LONGEST_RESIDENCE_S)
        self.residence_s += (_MEMORY if self.residence_s else 1.0) * (residence_s - self.residence_s)
        if first_s is not None and 0.0 <= first_s <= duration_s and ended.in_flight <= _QUIET:
            if self._first_tokens < _FIRST_TOKENS:
                self._first_tokens += 1
            self.first_token_s += (first_s - self.first_token_s) / self._first_tokens

    def is_too_few(self, in_flight: float) -> bool:
        """Whether so few are done that nobody knows what those *in_flight*, all of them young, will need in the end."""
        return in_flight >= _MANY and self._done < _KNOWN_PART * in_flight
