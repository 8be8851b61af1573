"""How many requests fit into a server's key-value cache once all of them have grown to their usual length.

A request that was let in a moment ago holds its prompt only; it will hold its reply as well. What the cache is used for
now therefore says little while the limit grows, and the length of replies is known late: the first ones to end are the
short ones. So the mean length is taken as the tokens that came on *all* streams over the replies that ended, and one
more: the estimate for censored lifetimes (Epstein and Sobel, "Life Testing", Journal of the American Statistical
Association 48, 1953), on the safe side. While none has ended, it is all that has come.

It must not know the limit. Invariant: sums are finite, and what is long ago counts for little.
"""

from __future__ import annotations

import math

import attrs

from scavenge.signals import Ended, Flow

_HELD = 0.75
"""A stream seen at any one time holds so much of the mean reply: half of its own, and long ones are seen more often."""
_FEWEST = 16
_ROUNDS = 2.0
"""So many rounds of requests are remembered; then half is forgotten."""
_ENORMOUS = 1e12


@attrs.define
class Room:
    """What requests hold in the end, learnt from those that have ended and those that have not."""

    _streamed: float = 0.0
    _prompted: float = 0.0
    _ended: float = 0.0
    _whole: float = 0.0
    _whole_s: float = 0.0
    _whole_in_flight_s: float = 0.0
    """Of a reply that comes in one piece, only the time that it has taken so far is known."""

    def on_flow(self, flow: Flow) -> None:
        """Tokens came on streams."""
        if self._ended > max(_FEWEST, _ROUNDS * flow.in_flight):
            for field in attrs.fields(Room):
                setattr(self, field.name, getattr(self, field.name) / 2.0)
        self._streamed += flow.output_tokens
        self._whole_in_flight_s += (1.0 - flow.streamed) * flow.in_flight * flow.span_s

    def on_done(self, ended: Ended) -> None:
        """A request was served. A part of its prompt that others hold as well takes no room."""
        reply, prompt = ended.output_tokens or 0.0, (ended.prompt_tokens or 0.0) - (ended.cached_tokens or 0.0)
        if not (0.0 <= reply < _ENORMOUS and 0.0 <= prompt < _ENORMOUS and 0.0 < ended.duration_s < _ENORMOUS):
            return
        self._prompted += prompt
        self._ended += 1.0
        if not ended.streamed:
            self._whole += reply
            self._whole_s += ended.duration_s

    def requests(self, kv_tokens: float, held_now: float) -> float:
        """How many fit into a cache of so many tokens; infinite where nothing is known.

        A prompt is no longer than the *held_now* tokens that a request holds now on average.
        """
        replied = self._streamed
        if self._whole_s > 0.0:
            replied += self._whole_in_flight_s * self._whole / self._whole_s
        prompt = min(held_now, self._prompted / max(1.0, self._ended))
        held = prompt + _HELD * replied / (self._ended + 1.0)
        return kv_tokens / held if held > 0.0 else math.inf
