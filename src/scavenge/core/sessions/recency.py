"""In what order sessions used the servers' caches, and how much was used since somebody's last use. Pure.

A cache that drops what was used longest ago still has a prefix exactly when no more than it holds was used since, the
prefix included. So the tokens between two uses of a prefix, its *distance*, tell with the hit or the miss how large the
cache is, whatever else went on: that is the stack distance of Mattson and others, "Evaluation techniques for storage
hierarchies" (IBM Systems Journal 9, 1970). A call under way counts as used, a session that has left as well.

Invariant: there is one key for each session that is remembered; those of sessions at work are above all others.
"""

from __future__ import annotations

from collections import deque

import attrs

from scavenge.core.sessions.sums import Key, PrefixSums

GONE = 1024
"""So many of the sessions that left are remembered."""
_AT_WORK = 1 << 62


@attrs.define(eq=False)
class Recency:
    """Sessions by their number, in the order of their last use."""

    _sums: PrefixSums = attrs.field(factory=PrefixSums, init=False)
    _keys: dict[int, Key] = attrs.field(factory=dict, init=False)
    _gone: deque[int] = attrs.field(factory=deque, init=False)
    _uses: int = attrs.field(default=0, init=False)

    def begin(self, number: int, tokens: int) -> int:
        """A call of a session with so many tokens goes out; the tokens used since its last use and its own."""
        key = self._keys.get(number)
        since = self._sums.weight - (0 if key is None else self._sums.before(key)[1])
        self._put(number, (_AT_WORK, number), tokens)
        return since

    def end(self, number: int, tokens: int) -> None:
        """The last call under way of a session is over."""
        self._uses += 1
        self._put(number, (self._uses, number), tokens)

    def leave(self, number: int) -> None:
        """A session left: what it used is still there."""
        self._gone.append(number)
        if len(self._gone) > GONE:
            self.forget(self._gone.popleft())

    def forget(self, number: int) -> None:
        """What a session used is gone."""
        if (key := self._keys.pop(number, None)) is not None:
            self._sums.remove(key)

    def _put(self, number: int, key: Key, tokens: int) -> None:
        self.forget(number)
        self._keys[number] = key
        self._sums.add(key)
        self._sums.set_weight(key, tokens)
