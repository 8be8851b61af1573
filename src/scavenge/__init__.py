"""LLM evaluations on whatever inference servers happen to be alive.

Everything a program needs is here; plugins are written against :mod:`scavenge.plugin`, tests against
:mod:`scavenge.testing`. Names are imported when they are first used, so that ``import scavenge`` costs little.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scavenge.app.evaluation import RunResult, run_evaluation
    from scavenge.app.library import ClientLease, ModelPool, open_pool
    from scavenge.app.options import RunOptions
    from scavenge.errors import (
        CircuitBroken,
        ConfigError,
        EnvironmentBroken,
        ImageMissing,
        InfrastructureError,
        LeaseRevoked,
        NoEndpointsError,
        PluginError,
        PoisonRequest,
        Problem,
        ResultsError,
        ScavengeError,
        SourceError,
        UsageError,
    )
    from scavenge.listings import EndpointSpec, Listing
    from scavenge.rollouts import Example, Rollout
    from scavenge.runtime.ports import EndpointSource, Environment, ModelSession, SyncModelSession
    from scavenge.signals import GateView
    from scavenge.status import EndpointStatus, FleetStatus, PoolStatus, SessionsStatus, SourceStatus
    from scavenge.types import Attempt, Completion, Endpoint, RequestFailed, Usage

__all__ = [
    "Attempt",
    "CircuitBroken",
    "ClientLease",
    "Completion",
    "ConfigError",
    "Endpoint",
    "EndpointSource",
    "EndpointSpec",
    "EndpointStatus",
    "Environment",
    "EnvironmentBroken",
    "Example",
    "FleetStatus",
    "GateView",
    "ImageMissing",
    "InfrastructureError",
    "LeaseRevoked",
    "Listing",
    "ModelPool",
    "ModelSession",
    "NoEndpointsError",
    "PluginError",
    "PoisonRequest",
    "PoolStatus",
    "Problem",
    "RequestFailed",
    "ResultsError",
    "Rollout",
    "RunOptions",
    "RunResult",
    "ScavengeError",
    "SessionsStatus",
    "SourceError",
    "SourceStatus",
    "SyncModelSession",
    "Usage",
    "UsageError",
    "open_pool",
    "run_evaluation",
]

_HOMES = (
    "errors",
    "types",
    "listings",
    "rollouts",
    "signals",
    "status",
    "runtime.ports",
    "app.options",
    "app.evaluation",
    "app.library",
)
"""Where the names are defined, the cheapest to import first."""


def __getattr__(name: str) -> object:
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
