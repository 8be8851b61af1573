"""The policies of benchmarks/gates.py by name: ``tide``, ``tide-blind``, ``fixed64`` ..."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import attrs

from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.runtime.ports import AdmissionPolicy
from scavenge.signals import GateView

MakePolicy = Callable[[], AdmissionPolicy]
DEFAULT = ("tide", "tide-blind", "pi", "aimd", "gradient2", "fixed16", "fixed64", "fixed256")
BLIND = "-blind"


@attrs.define
class Blind:
    """A policy that does not hear of the server's own figures."""

    policy: AdmissionPolicy

    def observe(self, event: object, now: float) -> None:
        self.policy.observe(event, now)

    def limit(self, now: float) -> int:
        return self.policy.limit(now)

    def next_wake_at(self, now: float) -> float | None:
        return self.policy.next_wake_at(now)

    def view(self, now: float) -> GateView:
        view: Callable[[float], GateView] = getattr(self.policy, "view")  # noqa: B009 - not of the protocol
        return view(now)


def make_policy(name: str) -> AdmissionPolicy:
    """A new policy. Raises :class:`ImportError` or :class:`AttributeError` where there is none of that name."""
    if name.endswith(BLIND):
        return Blind(make_policy(name.removesuffix(BLIND)))
    if name.startswith("fixed"):
        return Fixed(FixedSettings(int(name.removeprefix("fixed"))))
    module = import_module(f"scavenge.core.limits.{name}")
    policy: AdmissionPolicy = getattr(module, name.capitalize())(getattr(module, f"{name.capitalize()}Settings")())
    return policy
