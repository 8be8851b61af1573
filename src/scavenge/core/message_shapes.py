"""Strict shapes of the messages between run and worker: tables read from JSON become exactly the classes of
:mod:`scavenge.core.worker_messages`, or a :class:`ValueError` says in one line where and what. Pure; knows no bytes.

Every field must be there and no other, in exactly its type; only a whole number stands for a number, too. The whole
numbers of messages count something, so none is negative. What is annotated as JSON is taken as it is.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import cattrs

from scavenge.core import worker_messages as says
from scavenge.core.naming import key_name, listed, shown
from scavenge.errors import Problem
from scavenge.rollouts import ErrorInfo, Example, Failure, Rollout
from scavenge.types import ModelAddress

TO_WORKER: Mapping[str, type[says.ToWorker]] = {
    "load": says.Load,
    "read_rows": says.ReadRows,
    "play": says.Play,
    "abort": says.Abort,
    "stop": says.Stop,
}
FROM_WORKER: Mapping[str, type[says.FromWorker]] = {
    "ready": says.Ready,
    "broken": says.Broken,
    "rows": says.Rows,
    "rows_failed": says.RowsFailed,
    "played": says.Played,
    "play_failed": says.PlayFailed,
    "aborted": says.Aborted,
    "beat": says.Beat,
}
KIND_OF: Mapping[type, str] = {shape: kind for kinds in (TO_WORKER, FROM_WORKER) for kind, shape in kinds.items()}

_PARTS = (Example, ModelAddress, Problem, Rollout, Failure, ErrorInfo)
_NOUNS: Mapping[object, str] = {
    bool: "true or false",
    int: "a whole number from 0",
    float: "a finite number",
    str: "text",
}
K = TypeVar("K")
T = TypeVar("T")


class Mismatch(ValueError):
    """A part of a message is not what is wanted in its place."""

    def __init__(self, said: str, path: str = "") -> None:
        self.said, self.path = said, path
        super().__init__(f"{path}: {said}" if path else said)

    def below(self, part: str) -> Mismatch:
        """The same mismatch, seen from one level further out."""
        between = "." if self.path and not self.path.startswith("[") else ""
        return Mismatch(self.said, f"{part}{between}{self.path}")


def fields_of(message: says.ToWorker | says.FromWorker | Example | Rollout) -> dict[str, object]:
    """The fields by their names, down to what is annotated as JSON, which is left as it is."""
    table: dict[str, object] = _converter.unstructure(message)
    return table


def shaped(table: Mapping[str, object], shape: type[T]) -> T:
    """The message that *table* has the fields of. Raises :class:`ValueError`."""
    return _converter.structure(table, shape)


def _not(wanted: str, value: object) -> Mismatch:
    return Mismatch(f"{wanted} is wanted, got {shown(value)}")


def _scalar(value: object, kind: Any) -> object:
    if type(value) is not kind or (kind is int and value < 0):  # type: ignore[operator] # an int by the line itself
        raise _not(_NOUNS[kind], value)
    return value


def _number(value: object, _: object) -> float:
    if type(value) not in (int, float):
        raise _not(_NOUNS[float], value)
    try:
        number = float(value)  # type: ignore[arg-type] # one of the two, by the line above
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _not(_NOUNS[float], value)
    return number


def _table(value: object, kind: Any) -> dict[str, object]:
    table = _as_object(value)
    _, wanted = typing.get_args(kind)
    return table if wanted is object else dict(_each(table.items(), wanted, key_name))


def _items(value: object, kind: Any) -> tuple[object, ...]:
    if type(value) is not list:
        raise _not("a list", value)
    wanted = typing.get_args(kind)[0]
    return tuple(item for _, item in _each(enumerate(value), wanted, "[{}]".format))


def _each(items: Iterable[tuple[K, object]], kind: Any, name: Callable[[K], str]) -> Iterator[tuple[K, object]]:
    hook = _converter.get_structure_hook(kind)
    for key, item in items:
        try:
            yield key, hook(item, kind)
        except Mismatch as exc:
            raise exc.below(name(key)) from None


def _as_object(value: object) -> dict[str, object]:
    if type(value) is not dict:
        raise _not("an object", value)
    return value


def _attrs_hook(shape: type[T], converter: cattrs.Converter) -> Callable[[object, object], T]:
    fields: Sequence[attrs.Attribute[Any]] = attrs.fields(shape)  # type: ignore[arg-type] # an attrs class, as asked
    names = {field.name for field in fields}
    hooks = [(field.name, field.type, converter.get_structure_hook(field.type)) for field in fields]

    def structure(value: object, _: object) -> T:
        table = _as_object(value)
        if table.keys() != names:
            raise _other_names(table, names)
        made = {}
        for name, kind, hook in hooks:
            try:
                made[name] = hook(table[name], kind)
            except Mismatch as exc:
                raise exc.below(name) from None
        return shape(**made)

    return structure


def _other_names(table: Mapping[str, object], names: set[str]) -> Mismatch:
    missing, unknown = sorted(names - table.keys()), sorted(table.keys() - names)
    said = [f"without {listed(missing)}"] * bool(missing)
    said += [f"with unknown {listed(map(key_name, unknown), 3)}"] * bool(unknown)
    return Mismatch(f"an object {' and '.join(said)}")


def _origin(kind: object) -> object:
    return typing.get_origin(kind)


def _make_converter() -> cattrs.Converter:
    for shape in (*KIND_OF, *_PARTS):  # ``Json`` is an alias of text, and its words are not known in every module
        attrs.resolve_types(shape, localns={"Mapping": Mapping})
    converter = cattrs.Converter(detailed_validation=False)
    for kind in (bool, int, str):
        converter.register_structure_hook(kind, _scalar)
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)
    converter.register_structure_hook_func(lambda kind: _origin(kind) is Mapping, _table)
    converter.register_structure_hook_func(lambda kind: _origin(kind) is tuple, _items)
    converter.register_structure_hook_factory(attrs.has, _attrs_hook)
    converter.register_unstructure_hook_func(
        lambda kind: kind is object or _origin(kind) is Mapping, lambda value: value
    )
    return converter


_converter = _make_converter()
