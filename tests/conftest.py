"""Hypothesis profiles: ``dev`` by default, ``ci`` under CI, ``machines`` for the long runs of ``nox -s machines``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, database=None)
settings.register_profile(
    "machines", deadline=None, max_examples=2000, stateful_step_count=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("SCAVENGE_HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
