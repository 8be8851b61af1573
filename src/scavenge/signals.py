"""What an admission policy hears of its endpoint, and what it says of itself: frozen values. No decisions here.

An endpoint's policy hears, in the order of time: :class:`scavenge.types.CapChanged` first of all and whenever the cap
changes; :class:`WarmStart` at most once, before any work; :class:`Flow` whenever the policy asked to be woken;
:class:`Ended` for every request that left the endpoint, however it did; :class:`ServerLoad` when the server's own
figures were read. An event of a kind that a policy does not know is to be ignored: there will be more.
"""

from __future__ import annotations

import enum

import attrs


class Ending(enum.Enum):
    """How a request left its endpoint, as far as a gate is concerned."""

    OK = "ok"
    CACHED = "cached"
    """Answered by something before the engine, which had no work with it."""
    RATE_LIMITED = "rate_limited"
    """429, 503 or 529: the server, or what stands before it, asks for patience."""
    DOWN = "down"
    """The endpoint was lost under it."""
    SERVER_ERROR = "server_error"
    CLIENT_ERROR = "client_error"
    """The request's own fault, or that of the settings."""
    TIMEOUT = "timeout"
    """``request_timeout`` passed."""
    CANCELLED = "cancelled"
    """Given up from our side."""


@attrs.frozen
class Ended:
    """A request left the endpoint. What is not known is ``None``."""

    ending: Ending
    admitted_at: float
    """When it was let in: what was let in before a cut says nothing about the time after it."""
    in_flight: int
    """Requests in flight on the endpoint when it was let in, itself included."""
    duration_s: float
    first_token_s: float | None = None
    """From its admission to the first token; ``None`` where none came, and for a reply that came in one piece."""
    streamed: bool = True
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    cached_tokens: float | None = None
    """How many of the prompt's tokens the server had in its prefix cache."""
    retry_after_s: float | None = None
    """How long the server asks this request to stay away; it says nothing about its capacity."""


@attrs.frozen
class Flow:
    """What went on at the endpoint in the last ``span_s`` seconds. ``in_flight`` and the like are means over that time.

    Replies that come in one piece give no tokens while they are made; of those only :class:`Ended` tells.
    """

    span_s: float
    in_flight: float
    awaiting: float = 0.0
    """Streamed requests that had no token yet."""
    stalled: float = 0.0
    """Streams that had begun and then fell silent for long: what they should give was taken from them."""
    output_tokens: float = 0.0
    """Tokens that came in on all streams."""
    prompt_tokens: float = 0.0
    """Tokens of the prompts whose replies began, without those that are taken to have been in the prefix cache."""
    streamed: float = 1.0
    """The part of ``in_flight`` that is streamed."""
    in_flight_now: int = 0


@attrs.frozen
class ServerLoad:
    """A server's own figures. What it does not tell is ``None``; counters count from the start of its process."""

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    """Part of the key-value cache that running requests use, 0 to 1."""
    kv_tokens: int | None = None
    """How many tokens the key-value cache holds."""
    slots: int | None = None
    """How many requests it works on at once; more of them wait in the server."""
    preemptions: int | None = None
    """Counter of running requests that had to give up their place."""
    prefix_queries: float | None = None
    """Counter of prompt tokens that were looked up in the prefix cache."""
    prefix_hits: float | None = None
    """Counter of those that were found there."""


@attrs.frozen
class WarmStart:
    """What a gate can begin with instead of nothing: the level at which gates of the same kind have settled."""

    limit: int


@attrs.frozen
class GateView:
    """What a policy says of itself, for people: its limit, and why it is what it is."""

    limit: int
    reason: str = ""
    """One word or two: why the limit moved last, such as ``ramp``, ``gain``, ``flat``, ``queue`` or ``429``."""
    queue: float | None = None
    """Requests that it takes to be queueing in the server."""
    goodput: float | None = None
    """Tokens per second that it saw last."""
    elasticity: float | None = None
    """By what part of one per cent the goodput grows with one per cent more in flight."""
    half_load: float | None = None
    """Requests in flight at which the endpoint gives half of what it can give at most."""
    settled: bool = False
    """Whether the limit is one to begin with at an endpoint of the same kind."""
