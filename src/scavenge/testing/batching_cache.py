"""The prefix cache of a simulated engine: contexts of idle sessions, in what running requests leave free. Pure.

The session that was used longest ago gives way first, from the tail of its context on, since a prefix is of use
without its tail and a tail without its prefix is not. Knows no requests and no time.

Invariant: ``tokens`` is the sum of all that is kept, and nobody is kept with nothing.
"""

from __future__ import annotations

import attrs


@attrs.define
class PrefixCache:
    """Contexts by session, the one used longest ago first."""

    tokens: int = attrs.field(default=0, init=False)
    """How many tokens are kept in all."""
    queries: int = attrs.field(default=0, init=False)
    """Tokens that were looked up."""
    hits: int = attrs.field(default=0, init=False)
    """Those of them that were found."""
    _kept: dict[str, int] = attrs.field(factory=dict, init=False)

    def put(self, session: str | None, tokens: int) -> None:
        """Keep a session's context, which is the newest now; nobody comes back for that of no session."""
        if session is None:
            return
        self.tokens += tokens - self._kept.pop(session, 0)
        if tokens:
            self._kept[session] = tokens

    def look_up(self, session: str | None, known: int) -> int:
        """Hand a session's context over to a request that reads *known* tokens; its last one has to be read anew."""
        tokens = min(self.drop(session), max(0, known - 1))
        self.queries += known
        self.hits += tokens
        return tokens

    def drop(self, session: str | None) -> int:
        """Keep a session's context no longer, and tell what there was."""
        tokens = 0 if session is None else self._kept.pop(session, 0)
        self.tokens -= tokens
        return tokens

    def shrink(self, room: int) -> None:
        """Give up what is more than *room*."""
        while self._kept and self.tokens > room:
            session = next(iter(self._kept))
            tokens = self._kept[session]
            cut = min(tokens, self.tokens - max(0, room))
            self.tokens -= cut
            if cut == tokens:
                del self._kept[session]
            else:
                self._kept[session] = tokens - cut
