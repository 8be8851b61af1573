"""Hypothesis without a deadline, since that measures how busy the machine is."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.load_profile("default")
