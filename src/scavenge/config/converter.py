"""The strict converter: values of TOML or JSON become exactly the annotated type, or a message says what was expected.

Nothing is coerced but an integer where a number is asked for, a list where a tuple is, a string where a path is,
and the normal form of an endpoint's URL.
Knows no settings class; attrs classes are read by :mod:`scavenge.config.fields`.
"""

from __future__ import annotations

import enum
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Literal, NewType, Union

import cattrs

from scavenge.config.problems import Fault, Mismatch, Wrong
from scavenge.core.naming import shown
from scavenge.core.urls import normal_url
from scavenge.types import Url

_SCALARS: Mapping[object, str] = {
    bool: "true or false",
    int: "an integer",
    str: "a string",
    datetime: "a date with a time",
    date: "a date",
    time: "a time",
}
_MOMENTS = (datetime, date, time)
_TUPLES = (tuple, Sequence, Iterable)
_SETS = (set, frozenset)
_TABLES = (dict, Mapping)


def strict_converter(base_dir: Path) -> cattrs.Converter:
    """A converter with relative paths below *base_dir*. It raises ``ValueError``, most often one that tells where."""
    converter = cattrs.Converter(detailed_validation=False)
    for base in (str, bytes, int, float, Path):  # cattrs asks these hooks before all others, also for what derives
        converter.register_structure_hook(base, lambda value, kind: _scalar(value, kind, base_dir))
    converter.register_structure_hook_func(
        lambda kind: kind in _MOMENTS, lambda value, kind: _scalar(value, kind, base_dir)
    )
    converter.register_structure_hook_func(lambda kind: kind is Url, lambda value, _: normal_url(_string(value)))
    converter.register_structure_hook_func(lambda kind: kind is Any or kind is object, lambda value, _: value)
    converter.register_structure_hook_func(_is_literal, lambda value, kind: _choice(value, typing.get_args(kind)))
    converter.register_structure_hook_func(_is_enum, _enum_member)
    converter.register_structure_hook_func(_reads_text, lambda value, kind: kind.from_text(_string(value), base_dir))
    converter.register_structure_hook_func(
        lambda kind: _origin(kind) in (list, *_TUPLES, *_SETS), lambda value, kind: _sequence(value, kind, converter)
    )
    converter.register_structure_hook_func(is_table, lambda value, kind: _table(value, kind, converter))
    converter.register_structure_hook_func(_is_union, lambda value, kind: _union(value, kind, converter))
    return converter


def noun_of(kind: Any) -> str:
    """What a value of that type is called in messages."""
    if isinstance(kind, NewType):
        return noun_of(kind.__supertype__)
    if _is_union(kind):
        return " or ".join(dict.fromkeys(noun_of(member) for member in _members(kind)))
    if _is_literal(kind):
        return _one_of(typing.get_args(kind))
    if _is_enum(kind):
        return _one_of([member.value for member in kind])
    if _origin(kind) in (list, *_TUPLES, *_SETS):
        return "a list"
    if kind is float:
        return "a number"
    return _SCALARS.get(kind, "a string" if kind is Path or _reads_text(kind) else "a table")


def is_table(kind: Any) -> bool:
    """Whether values of that type are tables with any keys."""
    return _origin(kind) in _TABLES


def _origin(kind: Any) -> Any:
    return typing.get_origin(kind) or kind


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (Union, types.UnionType)


def _is_literal(kind: Any) -> bool:
    return typing.get_origin(kind) is Literal


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.Enum)


def _reads_text(kind: Any) -> bool:
    return isinstance(kind, type) and callable(getattr(kind, "from_text", None))


def _members(kind: Any) -> list[Any]:
    return [member for member in typing.get_args(kind) if member is not types.NoneType]


def _one_of(values: Iterable[object]) -> str:
    return " or ".join(shown(value) for value in values)


def _scalar(value: object, kind: Any, base_dir: Path) -> object:
    if _is_enum(kind):
        return _enum_member(value, kind)
    if _reads_text(kind):
        return kind.from_text(_string(value), base_dir)
    if kind is float:
        return _number(value)
    if kind is Path:
        return base_dir / _path(value)
    if kind not in _SCALARS:
        raise cattrs.StructureHandlerNotFoundError(f"no file has a {kind}", kind)
    if type(value) is not kind:
        raise Mismatch(_SCALARS[kind], value)
    return value


def _number(value: object) -> float:
    if type(value) not in (int, float):
        raise Mismatch("a number", value)
    try:
        number = float(value)  # type: ignore[arg-type] # one of the two, by the line above
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Mismatch("a finite number", value)
    return number


def _string(value: object) -> str:
    if type(value) is not str:
        raise Mismatch("a string", value)
    return value


def _path(value: object) -> str:
    text = _string(value)
    if not text or "\0" in text:
        raise Mismatch("a path", value)
    return text


def _choice(value: object, options: Sequence[object]) -> object:
    for option in options:
        if type(option) is type(value) and option == value:
            return option
    raise Mismatch(_one_of(options), value)


def _enum_member(value: object, kind: type[enum.Enum]) -> enum.Enum:
    return kind(_choice(value, [member.value for member in kind]))


def _sequence(value: object, kind: Any, converter: cattrs.Converter) -> object:
    if not isinstance(value, list):
        raise Mismatch("a list", value)
    args = typing.get_args(kind) or (Any,)
    fixed = _origin(kind) is tuple and len(args) > 0 and args[-1] is not ... and kind is not tuple
    if fixed and len(value) != len(args):
        raise Mismatch(f"a list of {len(args)}", value)
    wanted = args if fixed else (args[0],) * len(value)
    items = _each(((index, item, wanted[index]) for index, item in enumerate(value)), converter)
    make = _origin(kind) if _origin(kind) in (list, *_SETS) else tuple
    return make(items.values())


def _table(value: object, kind: Any, converter: cattrs.Converter) -> object:
    if not isinstance(value, Mapping):
        raise Mismatch("a table", value)
    for key in value:
        if type(key) is not str:
            raise Mismatch("a table with strings for keys", value)
    _, wanted = typing.get_args(kind) or (str, Any)
    return _each(((key, item, wanted) for key, item in value.items()), converter)


def _each(items: Iterable[tuple[Any, object, Any]], converter: cattrs.Converter) -> dict[Any, object]:
    """Every item in its type; raises the faults of all of them together."""
    made: dict[Any, object] = {}
    faults: list[Fault] = []
    for part, item, kind in items:
        try:
            made[part] = converter.structure(item, kind)
        except (ValueError, TypeError) as exc:
            faults.extend(fault.below(part) for fault in faults_of(exc))
    if faults:
        raise Wrong(faults)
    return made


def _union(value: object, kind: Any, converter: cattrs.Converter) -> object:
    """The first member that takes the value, the one of exactly its type before the others."""
    if value is None and types.NoneType in typing.get_args(kind):
        return None
    members = sorted(_members(kind), key=lambda member: member is not type(value))
    if len(members) == 1:
        return converter.structure(value, members[0])
    closest: ValueError | None = None
    for member in members:
        try:
            return converter.structure(value, member)
        except Mismatch:
            continue
        except ValueError as exc:
            closest = exc
    raise closest or Mismatch(noun_of(kind), value)


def faults_of(error: Exception) -> tuple[Fault, ...]:
    """What an error of a hook or validator says, as faults."""
    if isinstance(error, Wrong):
        return error.faults
    first = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
    return (Fault((), str(error) if isinstance(error, Mismatch) else first),)
