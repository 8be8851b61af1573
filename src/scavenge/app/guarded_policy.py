"""A plugin's admission policy behind a guard: what it raises is told as the plugin's, and what it says is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeGuard

import attrs

from scavenge.core.codeplace import raised_line
from scavenge.errors import PluginError
from scavenge.runtime.ports import AdmissionPolicy
from scavenge.signals import GateView

MOST = 10**9
"""No limit is above that."""


@contextmanager
def blame(owner: str, what: str, called: object) -> Iterator[None]:
    """Name the plugin whose code raises inside the block, and the line in the code of *called*.

    Raises :class:`scavenge.errors.PluginError`.
    """
    try:
        yield
    except Exception as exc:
        raise PluginError(owner, f"{what} failed: {raised_line(exc, called)}") from exc


@attrs.frozen(eq=False)
class GuardedPolicy:
    """A plugin's admission policy; what it raises is told as the plugin's."""

    policy: AdmissionPolicy
    owner: str
    name: str

    def _blame(self) -> AbstractContextManager[None]:
        return blame(self.owner, f"admission policy {self.name!r}", self.policy)

    def observe(self, event: object, now: float) -> None:
        """Let the policy hear of an event."""
        with self._blame():
            self.policy.observe(event, now)

    def limit(self, now: float) -> int:
        """The policy's limit, which is at least 1."""
        with self._blame():
            limit: object = self.policy.limit(now)
            if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
                raise ValueError(f"limit() must give an integer from 1 to {MOST}, got {limit!r}")
            return limit

    def next_wake_at(self, now: float) -> float | None:
        """When the policy wants to hear of the flow."""
        with self._blame():
            at: object = self.policy.next_wake_at(now)
            if at is None or (_is_number(at) and not math.isnan(at)):
                return at
            raise ValueError(f"next_wake_at() must give an instant or None, got {at!r}")

    @property
    def wants_load(self) -> bool:
        """Whether the policy wants the server's own figures."""
        with self._blame():
            return bool(getattr(self.policy, "wants_load", False))

    def view(self, now: float) -> GateView:
        """What the policy says of itself; of one that says nothing, its limit."""
        view: Callable[[float], object] | None = getattr(self.policy, "view", None)
        if view is None:
            return GateView(self.limit(now))
        with self._blame():
            shown = view(now)
            if not isinstance(shown, GateView):
                raise TypeError(f"view() must give a GateView, got {type(shown).__name__}")
            _check_view(shown)
            return shown


def _check_view(view: GateView) -> None:
    """Raise where people would be shown nonsense, or an observer would stumble over it."""
    limit: object = view.limit
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= MOST:
        raise ValueError(f"view(): limit must be an integer from 1 to {MOST}, got {limit!r}")
    reason: object = view.reason
    if not isinstance(reason, str):
        raise TypeError(f"view(): reason must be a text, got {reason!r}")
    for name in ("queue", "goodput", "elasticity", "half_load"):
        value = getattr(view, name)
        if value is not None and not _is_number(value):
            raise TypeError(f"view(): {name} must be a number or None, got {value!r}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
