"""Which environments for verifiers are installed, told from files alone: nothing is imported.

It decides which distributions are environments, and of which kind. It must not know how one is made or played.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import attrs

from scavenge_verifiers.sources import Definition, Package, Unreadable

_NAME = re.compile(r"^Name:[ \t]*(\S+)", re.MULTILINE)
_VERSION = re.compile(r"^Version:[ \t]*(\S+)", re.MULTILINE)
_NEEDS_VERIFIERS = re.compile(r"^Requires-Dist:[ \t]*verifiers(?![\w.-])", re.MULTILINE)
_TASKSETS = ("Taskset",)
_ENVS = ("Env", "Environment")
"""How the names end of the classes that a package of the newer kind exports one of, or of that class's bases."""

LOAD = "load_environment"


class Kind(Enum):
    """How a package offers its environment."""

    FUNCTION = "function"
    """By a function ``load_environment(**arguments)``: the classic API."""
    TASKSET = "taskset"
    """By a class of tasks, or of environments, that its ``__all__`` names: the API of ``verifiers.v1``."""
    UNREADABLE = "unreadable"
    """Its source cannot be read, so there is no telling."""


@attrs.frozen
class Installed:
    """An installed environment. ``name`` is that of its distribution, in normal form: ``math-env``."""

    name: str
    version: str
    module: str
    kind: Kind
    function: Definition | None = None
    """``load_environment``, where it is of that kind."""
    why: str = ""
    """What is wrong with an unreadable one."""


def installed_environments() -> list[Installed]:
    """All that are installed, by name. Of two with the same name, Python imports the first; so it is here."""
    found: dict[str, Installed] = {}
    for name, version in _dependents():
        if name not in found and (one := look_at(name, version)) is not None:
            found[name] = one
    return [found[name] for name in sorted(found)]


def normal(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needs_verifiers(metadata: str) -> bool:
    """Whether a distribution's metadata lists verifiers among what it requires."""
    return _NEEDS_VERIFIERS.search(metadata.partition("\n\n")[0]) is not None


def _dependents() -> Iterator[tuple[str, str]]:
    for distribution in importlib.metadata.distributions():
        try:
            text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        except (OSError, UnicodeDecodeError):
            continue
        head = text.replace("\r\n", "\n").partition("\n\n")[0]
        name = _NAME.search(head)
        if name is not None and needs_verifiers(head):
            version = _VERSION.search(head)
            yield normal(name[1]), "" if version is None else version[1]


def look_at(name: str, version: str) -> Installed | None:
    """The environment that the distribution *name* has in the module of its own name; ``None`` if that is none.

    A package of both kinds is taken for one of the newer.
    """
    module = name.replace("-", "_")
    package = _package(module)
    if package is None:
        return None
    try:
        function = package.find(module, LOAD)
        if _exports(package, module, _TASKSETS if function else _TASKSETS + _ENVS):
            return Installed(name, version, module, Kind.TASKSET)
    except Unreadable as exc:
        return Installed(name, version, module, Kind.UNREADABLE, why=str(exc))
    return None if function is None else Installed(name, version, module, Kind.FUNCTION, function)


def _package(module: str) -> Package | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Package(module, Path(spec.origin), is_folder=spec.submodule_search_locations is not None)


def _exports(package: Package, module: str, endings: tuple[str, ...]) -> bool:
    """Whether ``__all__`` names a class like that. One from elsewhere is known by its own name alone."""
    for name in package.exported(module):
        if (definition := package.find(module, name)) is not None:
            names = [name] if definition.node is None else definition.bases
            if any(one.endswith(endings) for one in names):
                return True
    return False
