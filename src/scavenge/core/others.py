"""What an endpoint's failures are compared with: the others of its pool. Pure; knows no pool and judges nobody.

Only endpoints that are there to take work count as better: a record from before an ejection tells nothing about the
prompts of now.
"""

from __future__ import annotations

from collections.abc import Iterable

from scavenge.core.health import EndpointHealth
from scavenge.core.health_state import OPEN
from scavenge.core.trust import NOBODY, Others
from scavenge.types import Failed, Lost, Outcome, TimedOut


def others_of(health: EndpointHealth, healths: Iterable[EndpointHealth], outcome: Outcome) -> Others:
    """Those of *healths* but *health* itself; looked at only where *outcome* is compared with what others do."""
    if not isinstance(outcome, Failed | Lost | TimedOut):
        return NOBODY
    others = [other for other in healths if other is not health]
    shares = [share for other in others if other.state in OPEN and (share := other.trust.share) is not None]
    served_at = max((other.served_at for other in others), default=NOBODY.served_at)
    return Others(served_at, min(shares, default=None))
