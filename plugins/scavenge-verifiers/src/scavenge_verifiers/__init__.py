"""Environments written with Prime Intellect's verifiers: each that is installed is an environment of scavenge's."""

from __future__ import annotations

from functools import partial

from scavenge.plugin import EnvironmentType, hookimpl
from scavenge_verifiers.config import VerifiersConfig, create
from scavenge_verifiers.installed import installed_environments

__all__ = ["VerifiersConfig"]


@hookimpl
def scavenge_environments() -> list[EnvironmentType]:
    """Name the environments that are installed, without importing any of them, nor verifiers itself."""
    return [
        EnvironmentType(name=found.name, config=VerifiersConfig, create=partial(create, found), with_owner=True)
        for found in installed_environments()
    ]
