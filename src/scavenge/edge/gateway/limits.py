"""What a client of the gateway may do, and how long it may take."""

from __future__ import annotations

import attrs


@attrs.frozen
class GatewayLimits:
    """Bounds for clients. Times are in seconds."""

    max_head_bytes: int = 64 * 1024
    max_body_bytes: int = 64 * 2**20
    max_held_bytes: int = 2**30
    """Of the bodies of all requests that are being read or answered."""
    ahead_bytes: int = 64 * 1024
    """How much is read of requests that come before an earlier one is answered."""
    max_waiting: int = 10_000
    """How many connections may be without a whole request; of more, the one that has been so the longest is closed."""
    shed_after_s: float = 1.0
    """How long a new connection has time for its request before it may be closed for want of descriptors."""
    request_s: float = 60.0
    """From the first byte of a request to its last."""
    idle_s: float = 300.0
    """Between two requests."""
    write_s: float = 60.0
    """Without the client taking anything of its answer."""
    comment_s: float = 15.0
    """Of silence, after which a client that waits for a stream is shown that it lives."""
    linger_s: float = 2.0
    """For the client to read the last answer on a connection that is not closed in turn."""
    late_s: float = 5.0
    """How long a gateway that stops waits for the rest of requests that had begun to come in."""
    retry_after_s: int = 10
    """After which a request that found no endpoint, or a gateway that stops, may be sent again."""
    open_pages: frozenset[str] = frozenset({"/health"})
    """The pages that need no token."""
