"""Evaluation files and endpoint rows: strictly read, every problem told at once, and written back without secrets."""

from __future__ import annotations

from scavenge.config.dump import dump, dump_table
from scavenge.config.endpoint_rows import check_listing, pool_modes
from scavenge.config.load import load_run, parse_run
from scavenge.config.plugin_keys import structure_arguments, structure_plugin
from scavenge.config.problems import Where
from scavenge.config.schema import (
    EvalSettings,
    GatewaySettings,
    ImageSettings,
    PolicySettings,
    RunSettings,
    SourceSettings,
    WorkerSettings,
    identity,
)

__all__ = [
    "EvalSettings",
    "GatewaySettings",
    "ImageSettings",
    "PolicySettings",
    "RunSettings",
    "SourceSettings",
    "Where",
    "WorkerSettings",
    "check_listing",
    "dump",
    "dump_table",
    "identity",
    "load_run",
    "parse_run",
    "pool_modes",
    "structure_arguments",
    "structure_plugin",
]
