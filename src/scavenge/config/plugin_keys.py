"""Gives a plugin's keys the types of the plugin's own classes and signatures, as strictly as our own keys.

Knows no plugin: whoever has found one calls these with its class or callable, and says where the keys stand.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from scavenge.config.converter import faults_of
from scavenge.config.fields import Reader, unknown_keys
from scavenge.config.problems import Fault, Mismatch, Where, Wrong
from scavenge.errors import ConfigError, UsageError

T = TypeVar("T")


def structure_plugin(cls: type[T], keys: Mapping[str, object], where: Where | str, base_dir: Path) -> T:
    """An instance of a plugin's attrs class, made of the keys that stand at *where*.

    Fields of type ``pathlib.Path`` are relative to *base_dir*. A class with a classmethod ``from_text(text, base_dir)``
    is read from a string by it. Raises :class:`ConfigError` with every problem of the keys, and :class:`UsageError`
    when the class has annotations that cannot be read from a file.
    """
    try:
        return Reader(base_dir).build(cls, keys)
    except (Wrong, Mismatch) as exc:
        raise ConfigError(Where.of(where).problems(faults_of(exc))) from exc


def structure_arguments(
    target: Callable[..., object], keys: Mapping[str, object], where: Where | str, base_dir: Path = Path()
) -> dict[str, Any]:
    """The keyword arguments to call a class or function with, checked against its signature.

    An argument whose annotation is of a kind that files can hold is checked and converted as a plugin's field is;
    another is passed on as it is. Raises :class:`ConfigError` with every problem of the keys.
    """
    try:
        parameters = inspect.signature(target).parameters
    except (ValueError, TypeError):  # some callables written in C do not tell
        return dict(keys)
    faults = list(_misfits(parameters, keys))
    hints, reader = _hints(target), Reader(base_dir)
    arguments: dict[str, Any] = {}
    for key, value in keys.items():
        try:
            arguments[key] = reader.read(hints.get(key, object), value)
        except UsageError:
            arguments[key] = value
        except (ValueError, TypeError) as exc:
            faults.extend(fault.below(key) for fault in faults_of(exc))
    if faults:
        raise ConfigError(Where.of(where).problems(faults))
    return arguments


def _misfits(parameters: Mapping[str, inspect.Parameter], keys: Mapping[str, object]) -> Iterator[Fault]:
    named = [one for one in parameters.values() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        yield from unknown_keys(keys, [one.name for one in named])
    for one in named:
        if one.default is one.empty and one.name not in keys:
            yield Fault((one.name,), "this key is required")
    for one in parameters.values():
        if one.kind is one.POSITIONAL_ONLY and one.default is one.empty:
            yield Fault((one.name,), "takes no keyword, so a file cannot give it; remove the `/` from its signature")


def _hints(target: Any) -> Mapping[str, Any]:
    """The annotations of the arguments, or none where they name what cannot be found at run time."""
    function = target.__init__ if inspect.isclass(target) else target
    try:
        return {key: hint for key, hint in typing.get_type_hints(function).items() if key != "return"}
    except (NameError, TypeError, AttributeError):
        return {}
