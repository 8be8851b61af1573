"""Names a place in code so that whoever reads it finds it, without telling where it is installed. Pure."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial

import attrs

from scavenge.core.naming import one_line
from scavenge.errors import ScavengeError

_NOBODYS = sys.stdlib_module_names | {"scavenge"}
"""Modules whose lines say nothing to whoever wrote the code that was called."""
_INSTALLED = {"site-packages", "dist-packages"}
"""Folders of installed libraries, also of those whose folder lies in a project's."""


def code_place(path: str, module: str, line: int, function: str) -> str:
    """``package/module.py:12 function``: the file from its package on, else by its name alone; never a whole path.

    *path* is the file of the code and *module* the name of its module, where it has one.
    """
    parts = path.split("/")
    depth = module.count(".") + 1 + (parts[-1] == "__init__.py")
    inside = depth <= len(parts) and parts[-depth] == module.partition(".")[0]
    return f"{'/'.join(parts[-depth:]) if inside else parts[-1]}:{line} {function}"


@attrs.frozen
class Spot:
    """One frame of a traceback: its file, the name of its module, and the line."""

    path: str
    module: str
    line: int


def own_spot(spots: Sequence[Spot], module: str) -> Spot | None:
    """The innermost of *spots*, outermost first, that is in the code which *module* is a part of.

    That is its package; of a module that is in none, what lies in its folder and below, but nothing that is installed
    there. Nothing of Python's or scavenge's counts.
    """
    top = _top(module)
    home = next((spot.path for spot in spots if _top(spot.module) == top), None)
    if home is None or top in _NOBODYS:
        return None
    folder = "" if "." in module else home.rpartition("/")[0]
    return next((spot for spot in reversed(spots) if _top(spot.module) == top or _is_below(spot, folder)), None)


def _is_below(spot: Spot, folder: str) -> bool:
    if folder == "" or folder.rpartition("/")[2] in _INSTALLED or not spot.path.startswith(f"{folder}/"):
        return False
    return _top(spot.module) not in _NOBODYS and _INSTALLED.isdisjoint(spot.path[len(folder) :].split("/"))


def _top(module: str) -> str:
    return module.partition(".")[0]


def raised_at(error: BaseException, called: object) -> str:
    """`` (guessing.py, line 27)``, the end of a message: where in its own code what was called raised *error*.

    *called* is the function or the object whose method was called, or the name of its module. Empty for what scavenge
    raises on purpose, whose text is a sentence for whoever uses the code, and where the code has no part in it.
    """
    if isinstance(error, ScavengeError):
        return ""
    spots = [
        Spot(frame.f_code.co_filename, str(frame.f_globals.get("__name__", "")), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith("<")
    ]
    spot = own_spot(spots, _module_of(called))
    return "" if spot is None else f" ({one_line(spot.path.rpartition('/')[2])}, line {spot.line})"


def raised_line(error: BaseException, called: object, shorten: Callable[[str], str] = str) -> str:
    """``KeyError: 'a' (guessing.py, line 27)``: an error with its text, which *shorten* may cut, and its place."""
    text = shorten(error_text(error))
    return f"{type(error).__name__}{text and f': {text}'}{raised_at(error, called)}"


def error_text(error: BaseException) -> str:
    """What an error says; nothing where its own code cannot tell."""
    try:
        return str(error)
    except Exception:  # a foreign class's own __str__ failed
        return ""


def _module_of(called: object) -> str:
    if isinstance(called, str):
        return called
    while isinstance(called, partial):
        called = called.func
    module = getattr(called, "__module__", None)
    return module if isinstance(module, str) else ""
