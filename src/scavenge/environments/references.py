"""From the name of a Python object in a settings file, ``package.module:name``, to the object.

It decides what is importable and how a name that leads nowhere is reported. It must not know what the object is for,
but for scorers, which are functions.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from scavenge.core.codeplace import raised_line
from scavenge.core.naming import one_line, suggestion
from scavenge.errors import ConfigError, Problem
from scavenge.plugin import Scorer


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Make the modules of a folder importable inside the block, after those that are installed."""
    entry = str(folder.resolve())
    added = entry not in sys.path
    if added:
        sys.path.append(entry)
    try:
        yield
    finally:
        if added and entry in sys.path:
            sys.path.remove(entry)


def resolve(reference: str, where: str) -> object:
    """The Python object that ``package.module:name`` (or ``:name.name``) refers to, imported now.

    Raises :class:`scavenge.errors.ConfigError` at ``where`` that tells a module that is not there from one that fails.
    """
    module_name, _, path = reference.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        fail(where, f'expected "package.module:name", got "{reference}"')
    found: object = _imported(module_name, where)
    origin = getattr(found, "__file__", None) or module_name
    for name in path.split("."):
        if not hasattr(found, name):
            fail(where, f'there is no "{name}" in {origin}; {suggestion(name, _public(found))}')
        found = getattr(found, name)
    return found


def _imported(name: str, where: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and (name == exc.name or name.startswith(exc.name + ".")):
            fail(where, f'no module "{exc.name}": neither installed nor beside the evaluation file', exc)
        fail(where, f'the module "{name}" needs "{exc.name}", which is not installed', exc)
    except (Exception, SystemExit) as exc:
        fail(where, f'the module "{name}" cannot be imported: {raised_line(exc, name, one_line)}', exc)


def _public(found: object) -> list[str]:
    return [name for name in dir(found) if not name.startswith("_")]


def fail(where: str, what: str, cause: BaseException | None = None) -> NoReturn:
    """Raise the :class:`scavenge.errors.ConfigError` of one problem."""
    raise ConfigError([Problem(where, what)]) from cause


def load_scorer(reference: str, where: str) -> Scorer:
    """The scorer that a plain function ``(reply, answer, row) -> float`` is.

    Raises :class:`scavenge.errors.ConfigError` at ``where``.
    """
    function = resolve(reference, where)
    if not callable(function) or inspect.isclass(function):
        fail(where, f'"{reference}" is no function')
    if inspect.iscoroutinefunction(function):
        fail(where, f'"{reference}" is a coroutine function; a scorer is a plain function and runs in a thread')
    try:
        inspect.signature(function).bind("reply", "answer", {})
    except TypeError as exc:
        fail(where, f'"{reference}" must take (reply, answer, row): {exc}', exc)
    except ValueError:  # a function of C has no signature to look at
        pass
    return Scorer(reference.replace(":", "."), function)
