"""Which page of a server to read for its own figures, learnt from what came of those that were read. Pure.

A page that had figures is read from then on, until it has none any more or the server was gone: one that was restarted
may be another. While no page is known, all are tried in turn, once; a server that has none is left alone for
:data:`REST_S`, then for twice as long each time. Of a hosted service only the usual page is asked for: the others are
guesses, and there they would be noise in somebody else's log.
"""

from __future__ import annotations

import enum
import math

import attrs

REST_S = 60.0
LONGEST_REST_S = 3600.0

_PASSING = frozenset({408, 429, 500, 502, 503, 504, 529})
"""Statuses that say nothing of whether the server has a page that it had before."""


class Page(enum.Enum):
    """A page that may have figures; its value is the path below the server's root."""

    METRICS = "/metrics"
    TENSORRT_METRICS = "/prometheus/metrics"
    """Where ``trtllm-serve`` has them; its ``/metrics`` is a list in JSON."""
    SLOTS = "/slots"
    PROPS = "/props"


@attrs.define
class LoadPages:
    """The pages of one server."""

    hosted: bool = False
    """Whether it is a service on the Internet rather than a server that somebody runs."""
    _known: Page | None = attrs.field(default=None, init=False)
    _rests_until: float = attrs.field(default=-math.inf, init=False)
    _rest_s: float = attrs.field(default=REST_S, init=False)

    def to_read(self, now: float) -> tuple[Page, ...]:
        """The pages to ask for now, in this order, until one has figures.

        Whoever gives up before :meth:`on_nothing` has tried enough for :data:`REST_S`.
        """
        if self._known is not None:
            return (self._known,)
        if now < self._rests_until:
            return ()
        self._rests_until = now + REST_S
        return (Page.METRICS,) if self.hosted else tuple(Page)

    def on_figures(self, page: Page) -> None:
        """A page had figures."""
        self._known, self._rest_s = page, REST_S

    def on_nothing(self, now: float, http_status: int) -> None:
        """The known page had no figures this time, or none of all pages had any; the status is that of the last."""
        if self._known is None:
            self._rests_until = now + self._rest_s
            self._rest_s = min(2 * self._rest_s, LONGEST_REST_S)
        elif http_status not in _PASSING:
            self.forget()

    def forget(self) -> None:
        """The server is gone, or another."""
        self._known, self._rests_until, self._rest_s = None, -math.inf, REST_S
