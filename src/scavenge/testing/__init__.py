"""Public test tools: a simulated fleet in memory and as HTTP servers, and helpers for testing Trio code.

Names are imported when they are first used: a run that lists no simulated server pays for none of them, and some bring
Hypothesis, or trio.testing and with it pytest where that is installed; a user may have neither.

versionadded: 0.1
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scavenge.testing import faults
    from scavenge.testing.batching import BatchingEngine, BatchingSettings
    from scavenge.testing.bound import Pace, fleet_paces, least_makespan_s, most_tokens
    from scavenge.testing.churn import Churn, ChurnRates, ChurnSettings, random_churn, random_engine
    from scavenge.testing.driver import TrioDriver
    from scavenge.testing.engine import Engine, EngineSettings, Progress
    from scavenge.testing.faults import Step, format_script, parse_script
    from scavenge.testing.fleet import SimulatedClient, SimulatedFleet
    from scavenge.testing.host import Host
    from scavenge.testing.lister import Lister
    from scavenge.testing.node import Node
    from scavenge.testing.policies import check_admission_policy
    from scavenge.testing.policy_histories import Told, check_history, random_history
    from scavenge.testing.policy_strategies import histories
    from scavenge.testing.served import Generation, SimulatedServer, Truth
    from scavenge.testing.server import FleetPlan, HttpFleet, open_http_fleet
    from scavenge.testing.source import SimulatedConfig, open_simulated
    from scavenge.testing.source_kit import check_endpoint_source
    from scavenge.testing.source_troubles import SourceFault
    from scavenge.testing.stores import check_image_store
    from scavenge.testing.sweep import cancel_at_every_step

__all__ = [
    "BatchingEngine",
    "BatchingSettings",
    "Churn",
    "ChurnRates",
    "ChurnSettings",
    "Engine",
    "EngineSettings",
    "FleetPlan",
    "Generation",
    "Host",
    "HttpFleet",
    "Lister",
    "Node",
    "Pace",
    "Progress",
    "SimulatedClient",
    "SimulatedConfig",
    "SimulatedFleet",
    "SimulatedServer",
    "SourceFault",
    "Step",
    "Told",
    "TrioDriver",
    "Truth",
    "cancel_at_every_step",
    "check_admission_policy",
    "check_endpoint_source",
    "check_history",
    "check_image_store",
    "faults",
    "fleet_paces",
    "format_script",
    "histories",
    "least_makespan_s",
    "most_tokens",
    "open_http_fleet",
    "open_simulated",
    "parse_script",
    "random_churn",
    "random_engine",
    "random_history",
]

_HOMES = {
    "BatchingEngine": "batching",
    "BatchingSettings": "batching",
    "Churn": "churn",
    "ChurnRates": "churn",
    "ChurnSettings": "churn",
    "Engine": "engine",
    "EngineSettings": "engine",
    "FleetPlan": "server",
    "Generation": "served",
    "Host": "host",
    "HttpFleet": "server",
    "Lister": "lister",
    "Node": "node",
    "Pace": "bound",
    "Progress": "engine",
    "SimulatedClient": "fleet",
    "SimulatedConfig": "source",
    "SimulatedFleet": "fleet",
    "SimulatedServer": "served",
    "SourceFault": "source_troubles",
    "Step": "faults",
    "Told": "policy_histories",
    "TrioDriver": "driver",
    "Truth": "served",
    "cancel_at_every_step": "sweep",
    "check_admission_policy": "policies",
    "check_endpoint_source": "source_kit",
    "check_history": "policy_histories",
    "check_image_store": "stores",
    "fleet_paces": "bound",
    "format_script": "faults",
    "histories": "policy_strategies",
    "least_makespan_s": "bound",
    "most_tokens": "bound",
    "open_http_fleet": "server",
    "open_simulated": "source",
    "parse_script": "faults",
    "random_churn": "churn",
    "random_engine": "churn",
    "random_history": "policy_histories",
}
"""In which module of this package each name is."""


def __getattr__(name: str) -> object:
    if name == "faults":
        return import_module("scavenge.testing.faults")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"scavenge.testing.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
