"""From ``env_id`` and ``env_args`` to an environment: a registered one by its name, or ``package.module:factory``.

It decides what an ``env_id`` names, and whether what it names can be played here. It must not know how settings are
validated, nor how plugins are found: both are handed in.
"""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import attrs

from scavenge.core.codeplace import raised_line
from scavenge.core.naming import one_line, shown, suggestion
from scavenge.environments.references import fail, resolve
from scavenge.errors import ConfigError, PluginError, Problem, ScavengeError
from scavenge.plugin import EnvironmentType
from scavenge.runtime.ports import Environment
from scavenge.types import Json

_NEEDED = ("examples", "play", "open", "close", "multi_turn", "backend", "in_worker")
_OWN = {"examples": "def examples(self)", "play": "async def play(self, example, model)"}
"""What the base class only names."""
_BACKENDS = ("trio", "asyncio", "sync")


class Environments(Protocol):
    """The environments that plugins registered."""

    def find_environment(self, name: str) -> tuple[EnvironmentType, str] | None:
        """The environment of that name, and the plugin it comes from."""
        ...

    def environment_names(self) -> tuple[str, ...]:
        """All names that there are."""
        ...

    def failures(self) -> str:
        """The plugins that could not be loaded, as the end of a message; empty when there are none."""
        ...


class StructurePlugin(Protocol):
    """Makes an instance of a plugin's attrs class; raises :class:`scavenge.errors.ConfigError`."""

    def __call__(self, cls: type[Any], keys: Json, where: str, base_dir: Path, /) -> object: ...


class StructureArguments(Protocol):
    """Checks keyword arguments against a signature; raises :class:`scavenge.errors.ConfigError`."""

    def __call__(self, target: Callable[..., object], keys: Json, where: str, base_dir: Path, /) -> dict[str, Any]: ...


@attrs.frozen
class EnvironmentLoader:
    """Makes the environments of one evaluation file. ``folder`` is the file's, and importable while this is used."""

    environments: Environments
    structure_plugin: StructurePlugin
    structure_arguments: StructureArguments
    folder: Path

    def load(self, env_id: str, env_args: Json, *, where: str, in_worker: bool | None = None) -> Environment:
        """The environment of the ``[[eval]]`` table at ``where`` (``eval.toml: eval[0]``).

        Raises :class:`scavenge.errors.ConfigError` that names the key, :class:`scavenge.errors.PluginError` when the
        plugin it comes from fails.
        """
        if in_worker:
            fail(f"{where}.in_worker", _NO_WORKERS)
        if (found := self.environments.find_environment(env_id)) is not None:
            made, maker = self._registered(*found, env_args, where), found[1]
        elif ":" in env_id:
            made, maker = self._referenced(env_id, env_args, where), env_id
        else:
            fail(f"{where}.env_id", self._unknown(env_id))
        return _playable(made, maker, f"{where}.env_id")

    def _registered(self, kind: EnvironmentType, owner: str, env_args: Json, where: str) -> object:
        config = self.structure_plugin(kind.config, env_args, f"{where}.env_args", self.folder)
        try:
            return kind.create(config)
        except ConfigError as exc:
            placed = [Problem(f"{where}.env_args.{problem.where}", problem.what) for problem in exc.problems]
            raise ConfigError(placed) from exc
        except ValueError as exc:
            fail(f"{where}.env_args", one_line(str(exc)), exc)
        except ScavengeError:
            raise
        except Exception as exc:
            said = raised_line(exc, kind.create, one_line)
            raise PluginError(owner, f"environment {shown(kind.name)} cannot be made: {said}") from exc

    def _referenced(self, env_id: str, env_args: Json, where: str) -> object:
        factory: Any = resolve(env_id, f"{where}.env_id")
        if not callable(factory):
            fail(f"{where}.env_id", f'"{env_id}" is no class and no function')
        if inspect.isclass(factory):
            _refuse_workers(factory, f"{where}.env_id")
        arguments = self.structure_arguments(factory, env_args, f"{where}.env_args", self.folder)
        try:
            made: object = factory(**arguments)
        except ScavengeError:
            raise
        except Exception as exc:
            said = raised_line(exc, factory, one_line)
            fail(f"{where}.env_args", f'"{env_id}" cannot be made: {said}', exc)
        return made

    def _unknown(self, env_id: str) -> str:
        package = env_id.rpartition("/")[2]
        names = self.environments.environment_names()
        return (
            f"unknown environment {shown(env_id)}: {_package_state(package)}; {suggestion(env_id, names)};"
            f" one in Python is named package.module:factory{self.environments.failures()}"
        )


_NO_WORKERS = "needs worker processes, which this version of scavenge does not have; leave in_worker out or false"


def _package_state(package: str) -> str:
    try:
        version = importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return f"the package {shown(package)} that would register it is not installed"
    return f"the package {shown(package)} {version} is installed but does not register it"


def _playable(made: object, maker: str, where: str) -> Environment:
    """What a factory made, if it is an environment that this process can play."""
    if inspect.iscoroutine(made):
        made.close()
        fail(where, f"{maker} is a coroutine function; an environment is made by a plain function or class")
    if missing := [name for name in _NEEDED if not hasattr(made, name)]:
        fail(where, f"{maker} made {type(made).__name__}, which lacks {missing[0]}; subclass scavenge.Environment")
    environment = cast("Environment", made)
    _refuse_workers(environment, where)
    for name, wanted in _OWN.items():
        if getattr(getattr(made, name), "__func__", None) is getattr(Environment, name):
            fail(where, f"{type(made).__name__} has no {name} of its own; give it `{wanted}`")
    if not inspect.iscoroutinefunction(inspect.unwrap(environment.play)):
        fail(where, f'{maker}: play must be an async function with backend = "trio"')
    return environment


def _refuse_workers(environment: object, where: str) -> None:
    backend = getattr(environment, "backend", "trio")
    if backend not in _BACKENDS:
        fail(where, f"backend is {shown(backend)}, must be one of {', '.join(map(shown, _BACKENDS))}")
    if backend != "trio":
        fail(where, f'the environment has backend = "{backend}": it needs worker processes, which this version lacks')
    if getattr(environment, "in_worker", False):
        fail(where, "the environment has in_worker = true: it needs worker processes, which this version lacks")
