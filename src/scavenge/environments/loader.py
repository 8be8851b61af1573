"""From ``env_id`` and ``env_args`` to an environment: a registered one by its name, or ``package.module:factory``.

It decides what an ``env_id`` names, and whether that is made in this process or left to workers. It must not know how
settings are validated, nor how plugins are found: both are handed in.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import attrs

from scavenge.core.codeplace import raised_line
from scavenge.core.failure import FOREIGN
from scavenge.core.naming import nearest, one_line, shown, suggestion
from scavenge.environments.playable import Traits, Wishes, check_class, check_made, class_traits
from scavenge.environments.references import fail, resolve
from scavenge.errors import ConfigError, PluginError, Problem, ScavengeError
from scavenge.plugin import EnvironmentType
from scavenge.runtime.ports import Environment
from scavenge.types import Json

_REGISTERED_BY = {"verifiers": "scavenge-verifiers"}
"""By the library that an environment's package is written for: the plugin that registers all of its kind."""


class Environments(Protocol):
    """The environments that plugins registered."""

    def find_environment(self, name: str) -> tuple[EnvironmentType, str] | None:
        """The environment of that name, and the plugin it comes from."""
        ...

    def environment_names(self, *, with_owner: bool = False) -> tuple[str, ...]:
        """All names that there are, or those alone that any owner may stand before."""
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


@attrs.frozen(eq=False)
class Staged:
    """Where an evaluation's environment is played."""

    environment: Environment | None
    """The one to play in this process; ``None`` where worker processes make one each."""

    @property
    def hosted(self) -> bool:
        """Whether it is played in worker processes."""
        return self.environment is None


@attrs.frozen(eq=False)
class _Recipe:
    """An environment that is not made yet; its arguments are right. ``kind`` is its class, where that is known."""

    maker: str
    make: Callable[[], object]
    kind: type | None = None
    eager: bool = False
    """Whether making it is cheap by contract, so that it is made even where only workers play it."""


@attrs.frozen
class EnvironmentLoader:
    """Makes the environments of one evaluation file. ``folder`` is the file's, and importable while this is used."""

    environments: Environments
    structure_plugin: StructurePlugin
    structure_arguments: StructureArguments
    folder: Path

    def load(
        self, env_id: str, env_args: Json, *, where: str, in_worker: bool | None = None, workers: bool = True
    ) -> Staged:
        """The environment of the ``[[eval]]`` table at ``where`` (``eval.toml: eval[0]``), checked.

        ``in_worker`` is the table's key, ``workers`` tells whether there are worker processes. A class that is played
        in workers, by its own attributes or the key, is imported and not made here: its constructor may take long,
        crash or leak. A function is called, unless ``in_worker`` is true, and a plugin's ``create`` always is; what
        they make is dropped where workers play it.

        Raises :class:`scavenge.errors.ConfigError` that names the key, :class:`scavenge.errors.PluginError` when the
        plugin it comes from fails.
        """
        wishes = Wishes(where, in_worker, workers)
        wishes.check()
        recipe = self._recipe(env_id, env_args, where)
        traits = class_traits(recipe.kind)
        if traits is not None and recipe.kind is not None and wishes.hosted(traits):
            check_class(recipe.kind, traits, recipe.maker, f"{where}.env_id")
            return Staged(None)
        if in_worker and not recipe.eager:
            return Staged(None)
        environment, traits = _made(recipe, where)
        return Staged(None if wishes.hosted(traits) else environment)

    def load_hosted(self, env_id: str, env_args: Json, *, where: str) -> Environment:
        """The environment for the worker process that this is, whatever its backend; checked as :meth:`load` does."""
        return _made(self._recipe(env_id, env_args, where), where)[0]

    def _recipe(self, env_id: str, env_args: Json, where: str) -> _Recipe:
        if (found := self.environments.find_environment(env_id)) is not None:
            return self._registered(*found, env_args, where)
        if ":" not in env_id:
            fail(f"{where}.env_id", self._unknown(env_id))
        return self._referenced(env_id, env_args, where)

    def _registered(self, kind: EnvironmentType, owner: str, env_args: Json, where: str) -> _Recipe:
        config = self.structure_plugin(kind.config, env_args, f"{where}.env_args", self.folder)
        return _Recipe(owner, partial(_create, kind, owner, config, where), eager=True)

    def _referenced(self, env_id: str, env_args: Json, where: str) -> _Recipe:
        factory: Any = resolve(env_id, f"{where}.env_id")
        if not callable(factory):
            fail(f"{where}.env_id", f'"{env_id}" is no class and no function')
        if inspect.iscoroutinefunction(factory):
            what = f"{env_id} is a coroutine function; an environment is made by a plain function or class"
            fail(f"{where}.env_id", what)
        arguments = self.structure_arguments(factory, env_args, f"{where}.env_args", self.folder)
        kind = factory if inspect.isclass(factory) else None
        return _Recipe(env_id, partial(_call, factory, arguments, env_id, where), kind)

    def _unknown(self, env_id: str) -> str:
        owner, _, package = env_id.rpartition("/")
        near = nearest(package, self.environments.environment_names(with_owner=True)) if owner else None
        if near is None:
            hint = suggestion(env_id, self.environments.environment_names())
        else:
            hint = f"did you mean {shown(f'{owner}/{near}')}?"
        return (
            f"unknown environment {shown(env_id)}: {_package_state(package)}; {hint};"
            f" one in Python is named package.module:factory{self.environments.failures()}"
        )


def _create(kind: EnvironmentType, owner: str, config: object, where: str) -> object:
    try:
        return kind.create(config)
    except ConfigError as exc:
        placed = [Problem(f"{where}.env_args.{problem.where}", problem.what) for problem in exc.problems]
        raise ConfigError(placed) from exc
    except ValueError as exc:
        fail(f"{where}.env_args", one_line(str(exc)), exc)
    except ScavengeError:
        raise
    except FOREIGN as exc:
        said = raised_line(exc, kind.create, one_line)
        raise PluginError(owner, f"environment {shown(kind.name)} cannot be made: {said}") from exc


def _call(factory: Callable[..., object], arguments: Mapping[str, Any], env_id: str, where: str) -> object:
    try:
        return factory(**arguments)
    except ScavengeError:
        raise
    except FOREIGN as exc:
        said = raised_line(exc, factory, one_line)
        fail(f"{where}.env_args", f'"{env_id}" cannot be made: {said}', exc)


def _made(recipe: _Recipe, where: str) -> tuple[Environment, Traits]:
    made = recipe.make()
    traits = check_made(made, recipe.maker, f"{where}.env_id")
    return cast("Environment", made), traits


def _package_state(package: str) -> str:
    if (version := _version(package)) is None:
        return f"the package {shown(package)} that would register it is not installed"
    requires = importlib.metadata.requires(package) or []
    needed = {name[0].lower() for requirement in requires if (name := re.match(r"[\w.-]+", requirement))}
    helpers = [helper for library, helper in _REGISTERED_BY.items() if library in needed and _version(helper) is None]
    remedy = f"; install {helpers[0]}, which does so for environments of its kind" if helpers else ""
    return f"the package {shown(package)} {version} is installed but does not register it{remedy}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
