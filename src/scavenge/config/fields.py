"""Reads attrs classes from tables: unknown keys, wrong types and failing validators are all found at once.

A field's metadata may say ``alias`` (another key for it), ``secret`` (messages do not show the value) and ``rest`` (it
takes all keys that no other field has).
Knows no file; faults have paths relative to the table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import cattrs

from scavenge.config.converter import faults_of, is_table, noun_of, strict_converter
from scavenge.config.problems import Fault, Mismatch, Wrong
from scavenge.core.naming import shown, suggestion
from scavenge.errors import UsageError

T = TypeVar("T")


@attrs.frozen
class _Field:
    key: str
    alias: str | None
    secret: bool
    attribute: attrs.Attribute[Any]

    @classmethod
    def of(cls, attribute: attrs.Attribute[Any]) -> _Field:
        metadata = attribute.metadata
        return cls(attribute.alias or attribute.name, metadata.get("alias"), bool(metadata.get("secret")), attribute)

    def key_in(self, table: Mapping[str, object]) -> str | None:
        """The key that the table uses for this field."""
        if table.get(self.key) is not None:
            return self.key
        return self.alias if self.alias is not None and table.get(self.alias) is not None else None


@attrs.frozen
class _Shape:
    """The fields of a class with a key of their own, and the one that takes the rest of the keys."""

    fields: tuple[_Field, ...]
    rest: _Field | None

    @classmethod
    def of(cls, kind: type) -> _Shape:
        name = f"{kind.__module__}.{kind.__qualname__}"
        try:
            attrs.resolve_types(kind)
        except NameError as exc:
            raise UsageError(f"{name}: {exc}; import what its annotations name at run time") from exc
        every = [_Field.of(attribute) for attribute in attrs.fields(kind) if attribute.init]
        rests = [field for field in every if field.attribute.metadata.get("rest")]
        if len(rests) > 1:
            raise UsageError(f"{name}: {rests[0].key} and {rests[1].key} each take the rest of the keys; keep one")
        if rests and not is_table(rests[0].attribute.type):
            raise UsageError(f"{name}: {rests[0].key} takes the rest of the keys; annotate it as Mapping[str, Any]")
        return cls(tuple(field for field in every if field not in rests), rests[0] if rests else None)

    @property
    def every(self) -> tuple[_Field, ...]:
        return self.fields if self.rest is None else (*self.fields, self.rest)


@attrs.define
class Found:
    """What a table has for a class: the values that are right, by the names ``__init__`` takes, and what is wrong."""

    values: dict[str, Any] = attrs.field(factory=dict)
    faults: list[Fault] = attrs.field(factory=list)
    used: dict[str, str] = attrs.field(factory=dict)
    """The key that the table uses for a field: its name or its alias."""


class Reader:
    """Makes values of annotated types, with relative paths below one folder."""

    def __init__(self, base_dir: Path) -> None:
        self._base_dir = base_dir
        self.converter: cattrs.Converter = strict_converter(base_dir)
        self._shapes: dict[type, _Shape] = {}
        self.converter.register_structure_hook_func(
            lambda kind: isinstance(kind, type) and attrs.has(kind) and not hasattr(kind, "from_text"),
            lambda value, kind: self.build(kind, value),
        )

    def read(self, kind: Any, value: object) -> Any:
        """One value. Raises ``ValueError`` or ``TypeError``, which :func:`faults_of` takes apart."""
        try:
            return self.converter.structure(value, kind)
        except cattrs.StructureHandlerNotFoundError as exc:
            raise UsageError(f"a setting of type {kind} cannot be read from a file") from exc

    def build(self, cls: type[T], table: object) -> T:
        """An instance of an attrs class. Raises :class:`Wrong` with every fault of the table."""
        if not isinstance(table, Mapping):
            raise Mismatch("a table", table)
        found = self.present(cls, table)
        faults = [*self.unknown(cls, table), *found.faults, *self.missing(cls, table)]
        if faults:
            raise Wrong(faults)
        try:
            return cls(**{**self._default_paths(cls), **found.values})
        except (ValueError, TypeError) as exc:
            raise Wrong(faults_of(exc)) from exc

    def _default_paths(self, cls: type) -> dict[str, Path]:
        """The defaults of a class that are paths, which are relative to the same folder as those that are given."""
        defaults = ((field.key, field.attribute.default) for field in self.fields(cls))
        return {key: self._base_dir / default for key, default in defaults if isinstance(default, Path)}

    def keys(self, cls: type) -> tuple[str, ...]:
        """Every key that a class names, aliases included."""
        return tuple(key for field in self.fields(cls) for key in (field.key, field.alias) if key is not None)

    def unknown(self, cls: type, table: Mapping[str, object]) -> list[Fault]:
        """A fault for each key that the class does not have; none where a field takes the rest."""
        return unknown_keys(table, self.keys(cls)) if self._shape(cls).rest is None else []

    def missing(self, cls: type, table: Mapping[str, object]) -> list[Fault]:
        """A fault for each key without a default that the table lacks."""
        return [
            Fault((field.key,), "this key is required")
            for field in self.fields(cls)
            if field.attribute.default is attrs.NOTHING and field.key_in(table) is None
        ]

    def present(self, cls: type, table: Mapping[str, object]) -> Found:
        """The keys of the class that the table has, each by itself; other keys and absent ones are not looked at."""
        found = Found()
        fields = [(field, key) for field in self.fields(cls) if (key := field.key_in(table)) is not None]
        for field, key in fields:
            found.used[field.key] = key
            found.faults.extend(_other_value(field, key, table))
            try:
                found.values[field.key] = self.read(field.attribute.type, table[key])
            except (ValueError, TypeError) as exc:
                found.faults.extend(_field_faults(field, key, table[key], exc))
        shape = self._shape(cls)
        if shape.rest is not None:
            found.faults.extend(self._collect(shape.rest, cls, table, found))
        _validate(_shell(cls, shape.every, found), fields, table, found)
        return found

    def _collect(self, rest: _Field, cls: type, table: Mapping[str, object], found: Found) -> Sequence[Fault]:
        """Give the field that takes the rest the keys that no other field has."""
        named = self.keys(cls)
        others = {key: value for key, value in table.items() if key not in named and value is not None}
        try:
            found.values[rest.key] = self.read(rest.attribute.type, others)
        except (ValueError, TypeError) as exc:
            return faults_of(exc)
        return ()

    def fields(self, cls: type) -> tuple[_Field, ...]:
        """The fields of an attrs class that ``__init__`` takes and that have a key of their own."""
        return self._shape(cls).fields

    def _shape(self, cls: type) -> _Shape:
        if cls not in self._shapes:
            self._shapes[cls] = _Shape.of(cls)
        return self._shapes[cls]


def unknown_keys(table: Mapping[str, object], valid: Collection[str]) -> list[Fault]:
    """A fault for each key that is not valid, with the nearest that is."""
    return [Fault((key,), f"unknown key; {suggestion(key, valid)}") for key in table if key not in valid]


def _other_value(field: _Field, key: str, table: Mapping[str, object]) -> list[Fault]:
    """The fault of an alias beside its name with another value."""
    alias = field.alias
    if alias is None or alias == key or table.get(alias) is None:
        return []
    if table[alias] == table[key]:
        return []
    return [Fault((alias,), f"another value than {key} beside it, which means the same; keep one of them")]


def _field_faults(field: _Field, key: str, value: object, error: Exception) -> list[Fault]:
    if isinstance(error, Mismatch):
        noun = _expected(field.attribute.validator, error.noun)
        got = "" if field.secret else f", got {shown(value)}"
        return [Fault((key,), f"expected {noun}{got}")]
    return [fault.below(key) for fault in faults_of(error)]


def _shell(cls: type, fields: Collection[_Field], found: Found) -> object:
    """An instance for validators to look at, with the values that are right so far and plain defaults only."""
    shell: Any = object.__new__(cls)
    for field in fields:
        value = found.values.get(field.key, attrs.NOTHING if field.key in found.used else field.attribute.default)
        if value is not attrs.NOTHING and not hasattr(value, "takes_self"):  # such are factories of defaults
            object.__setattr__(shell, field.attribute.name, value)
    return shell


def _validate(shell: object, fields: list[tuple[_Field, str]], table: Mapping[str, object], found: Found) -> None:
    """Run the validators of the values that are right so far."""
    for field, key in fields:
        attribute = field.attribute
        if attribute.validator is None or attribute.converter is not None or field.key not in found.values:
            continue
        try:
            attribute.validator(shell, attribute, found.values[field.key])
        except AttributeError:
            continue  # it looks at a field that the table lacks, or has wrong: the instance will be validated whole
        except (ValueError, TypeError) as exc:
            found.values.pop(field.key)
            found.faults.extend(_invalid(field, key, table[key], exc))


def _invalid(field: _Field, key: str, value: object, error: Exception) -> list[Fault]:
    noun = noun_of(field.attribute.type)
    expected = _expected(field.attribute.validator, noun)
    if expected != noun:
        return _field_faults(field, key, value, Mismatch(noun, value))
    return [fault.below(key) for fault in faults_of(error)]


def _expected(validator: Any, noun: str) -> str:
    """What a validator asks for beyond the type, as far as it lets itself be asked; attrs' own have attributes."""
    validator = getattr(validator, "validator", validator)  # inside attrs.validators.optional
    if callable(expects := getattr(validator, "expects", None)):
        return str(expects(noun))
    if (compared := _COMPARED.get(getattr(validator, "compare_op", ""))) is not None:
        return f"{noun} {compared} {validator.bound}"
    if (options := getattr(validator, "options", None)) is not None:
        return " or ".join(shown(option) for option in options)
    return noun


_COMPARED = {">=": "≥", ">": ">", "<=": "≤", "<": "<"}
