"""From the run's :class:`Load` to an environment, and what is told of one that cannot be loaded. Starts nothing."""

from __future__ import annotations

import os
from pathlib import Path

from scavenge.config.plugin_keys import structure_arguments, structure_plugin
from scavenge.core.codeplace import raised_line
from scavenge.core.documents import parse_toml
from scavenge.core.failure import checked_identity
from scavenge.core.frames import encode
from scavenge.core.naming import one_line
from scavenge.core.worker_messages import Broken, Load, Ready
from scavenge.environments.loader import EnvironmentLoader
from scavenge.errors import ConfigError, Problem, ScavengeError
from scavenge.plugins.registry import Registry
from scavenge.runtime.ports import Environment


def _registry(env_id: str) -> Registry:
    """The plugins, with all that they import, but for a name with a colon: no plugin may add one."""
    if ":" in env_id:
        return Registry()
    from scavenge.plugins.manager import load_plugins

    return load_plugins(os.environ)


def make_environment(load: Load) -> Environment:
    """The environment, made and checked, whatever its backend. The folder of the evaluation file is importable.

    Raises :class:`scavenge.errors.ConfigError`, and whatever its own code raises that the loader leaves as it is.
    """
    loader = EnvironmentLoader(_registry(load.env_id), structure_plugin, structure_arguments, Path(load.base_dir))
    return loader.load_hosted(load.env_id, parse_toml(load.env_args.encode()), where=load.where)


def ready(environment: Environment) -> Ready:
    """What is told of an environment that can be played. Blocks as long as its ``identity`` does, and raises likewise.

    Environments that only have the needed names may have none. One that is too long to be told raises
    :class:`scavenge.core.frames.FrameTooLong`.
    """
    identity = checked_identity(getattr(environment, "identity", dict)())
    facts = Ready(environment.backend, environment.multi_turn, identity)
    encode(facts)
    return facts


def broken(error: BaseException, called: object, what: str, where: str = "") -> Broken:
    """What is told of an environment that *error* came from; *what* says what it cannot do.

    *called* is the environment, or the name of the module that it is in, so that the place in its code is told; *where*
    is put before the places of problems in its own words.
    """
    if isinstance(error, ConfigError):
        problems = tuple(Problem(f"{where}{one.where}", one.what) for one in error.problems)
        return Broken("; ".join(map(str, problems)), problems)
    said = one_line(str(error)) if isinstance(error, ScavengeError) else raised_line(error, called, one_line)
    return Broken(f"{what}: {said}")
