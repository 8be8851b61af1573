"""The ``env_args`` of an environment, checked in the run's own process as far as that goes without importing it."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from scavenge import ConfigError
from scavenge.plugin import Environment, rest
from scavenge_verifiers.arguments import problems_of
from scavenge_verifiers.installed import Installed, Kind

_CLASSIC_PARTS = ("legacy", "envs")
"""Folders of verifiers, one of which is there where the classic API is."""
_NEWER_PART = "v1/utils/loaders.py"


@attrs.frozen
class VerifiersConfig:
    """All keys are the environment's own."""

    args: Mapping[str, Any] = rest()


def create(installed: Installed, config: VerifiersConfig) -> Environment:
    """The environment, which imports nothing before it is opened.

    Raises :class:`scavenge.ConfigError` that names the argument, or ``ValueError``.
    """
    version = _checked_version(installed)
    arguments = dict(config.args)
    if installed.kind is Kind.TASKSET:
        from scavenge_verifiers.tasksets import TasksetEnvironment

        return TasksetEnvironment(installed, arguments, version)
    function = None if installed.function is None else installed.function.node
    if isinstance(function, ast.FunctionDef) and (problems := list(problems_of(function, arguments))):
        raise ConfigError(problems)
    from scavenge_verifiers.classic import ClassicEnvironment

    return ClassicEnvironment(installed, arguments, version)


def _checked_version(installed: Installed) -> str:
    """The version of verifiers that is installed, if it can play the environment."""
    if installed.kind is Kind.UNREADABLE:
        raise ValueError(f"the environment {installed.name} {installed.version} is broken: {installed.why}")
    root, version = _verifiers_folder(), importlib.metadata.version("verifiers")
    if installed.kind is Kind.FUNCTION:
        if not any((root / part).is_dir() for part in _CLASSIC_PARTS):
            what = f"{installed.name} {installed.version} has load_environment, verifiers' classic API"
            raise ValueError(f'{what}, which verifiers {version} lacks; pip install "verifiers>=0.3.1,<0.4"')
    elif not (root / _NEWER_PART).is_file():
        what = f"{installed.name} {installed.version} is written for verifiers.v1"
        raise ValueError(f'{what}, which verifiers {version} lacks; pip install "verifiers>=0.3.1"')
    return version


def _verifiers_folder() -> Path:
    spec = importlib.util.find_spec("verifiers")
    if spec is None or spec.origin is None:
        raise ValueError("the package verifiers is not installed; pip install verifiers")
    return Path(spec.origin).parent
