"""When a cloud is asked again: what its answers say, and for how long it is left alone then. Pure.

An answer is a status, or that there was none; times are instants of one clock.
"""

from __future__ import annotations

import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from random import Random

import attrs

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""Answers after which the same request may well succeed."""

RETRY_AFTER_MAX_S = 3600.0
"""How long a cloud can ask to be left alone."""


@attrs.frozen
class Pace:
    """How fast a cloud is asked, and how long its answers are waited for. The scheduler of the run gives up at 60 s."""

    list_within_s: float = 45.0
    answer_within_s: float = 20.0
    connect_within_s: float = 10.0
    list_gap_s: float = 2.0
    """From the end of one list to the next."""
    page_gap_s: float = 0.2
    tries: int = 5
    """How often one request is sent."""
    readings: int = 3
    """How often a list that changes while it is read is begun."""
    backoff_first_s: float = 1.0
    backoff_max_s: float = 15.0

    def backoff_s(self, failures: int, retry_after_s: float | None, random: Random) -> float:
        """How long to wait after that many failures in a row, from 1 on: what the cloud asks for, and jitter.

        Without such a wish from a half to the whole of ``backoff_first_s``, doubled at each failure.
        """
        if retry_after_s is not None:
            return retry_after_s + random.uniform(0.0, self.backoff_first_s)
        longest_s = min(self.backoff_max_s, self.backoff_first_s * 2.0 ** min(failures - 1, 32))
        return longest_s * random.uniform(0.5, 1.0)


def retry_after_s(value: str | None, now: float) -> float | None:
    """The seconds in a ``Retry-After`` header (RFC 9110, section 10.2.3), from 0 to :data:`RETRY_AFTER_MAX_S`.

    *now* is in seconds since 1970. ``None`` where the header is not there or makes no sense.
    """
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,6})?", value.strip()):
        wait_s = float(value)
    else:
        try:
            at = parsedate_to_datetime(value)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        wait_s = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now
    return min(max(wait_s, 0.0), RETRY_AFTER_MAX_S) if math.isfinite(wait_s) else None
