"""The session policies by name, each with the class of its settings: what ``[sessions]`` may say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from scavenge.core.sessions.budget import Budget, BudgetSettings
from scavenge.core.sessions.concur import Concur, ConcurSettings
from scavenge.core.sessions.fixed import FixedSessions, FixedSessionsSettings
from scavenge.core.sessions.follow import Follow, FollowSettings
from scavenge.core.sessions.off import Off, OffSettings
from scavenge.core.sessions.policy import SessionPolicy

DEFAULT_POLICY = "budget"


@attrs.frozen
class SessionPolicyType:
    """A kind of session policy: ``[sessions]`` with ``policy = name`` and the keys of ``config``."""

    name: str
    config: type
    create: Callable[[Any], SessionPolicy]
    """Makes the policy of one pool from its settings."""


SESSION_POLICIES: Mapping[str, SessionPolicyType] = {
    one.name: one
    for one in (
        SessionPolicyType(DEFAULT_POLICY, BudgetSettings, Budget),
        SessionPolicyType("follow", FollowSettings, Follow),
        SessionPolicyType("concur", ConcurSettings, Concur),
        SessionPolicyType("fixed", FixedSessionsSettings, FixedSessions),
        SessionPolicyType("off", OffSettings, Off),
    )
}


@attrs.frozen
class MakeSessions:
    """What makes the session policy of each pool of a run; ``name`` is the policy's."""

    name: str
    create: Callable[[], SessionPolicy]


DEFAULT_SESSIONS = MakeSessions(DEFAULT_POLICY, lambda: Budget(BudgetSettings()))
