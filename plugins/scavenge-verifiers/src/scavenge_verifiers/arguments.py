"""Checks the arguments for a function against its source, where the function itself cannot be imported yet. Pure.

It decides what the source tells for certain, and lets everything else pass: the function itself has the last word.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time

from scavenge import Problem

_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "list": (list,),
    "List": (list,),
    "dict": (dict,),
    "Dict": (dict,),
    "Mapping": (dict,),
    "None": (),
}
"""By the names that annotations use: what TOML gives for them."""
_UNIONS = ("Optional", "Union")


def problems_of(function: ast.FunctionDef, keys: Mapping[str, object]) -> Iterator[Problem]:
    """What is wrong with *keys* as keyword arguments; ``where`` is the key. With a decorator, there is no telling."""
    if function.decorator_list:
        return
    arguments = function.args
    named = {one.arg: one for one in (*arguments.args, *arguments.kwonlyargs)}
    required = _required(arguments)
    if arguments.kwarg is None:
        for key in keys:
            if key not in named:
                yield Problem(key, f"{function.name} takes no such argument; {_hint(key, list(named))}")
    for name in required:
        if name not in keys:
            yield Problem(name, f"this argument of {function.name} is required")
    for name, value in keys.items():
        if name in named and (wrong := _misfit(named[name].annotation, value)) is not None:
            yield Problem(name, wrong)


def _required(arguments: ast.arguments) -> list[str]:
    positional = arguments.args[: max(0, len(arguments.args) - len(arguments.defaults))]
    keyword = [one for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    return [one.arg for one in (*positional, *keyword)]


def _hint(key: str, names: list[str]) -> str:
    if near := difflib.get_close_matches(key, names, n=1):
        return f'did you mean "{near[0]}"?'
    return f"it takes {', '.join(names)}" if names else "it takes none"


def _misfit(annotation: ast.expr | None, value: object) -> str | None:
    wanted = list(_alternatives(annotation)) if annotation is not None else [None]
    if any(one is None or _fits(one, value) for one in wanted):
        return None
    texts = [one for one in wanted if one is not None and one != "None"]
    return f"expected {' or '.join(texts) or 'nothing'}, got {_shown(value)}"


def _fits(wanted: str, value: object) -> bool:
    if (types := _TYPES.get(wanted)) is not None:
        return isinstance(value, types) and (isinstance(value, bool) == (wanted == "bool"))
    return wanted == repr(value)


def _alternatives(annotation: ast.expr) -> Iterator[str | None]:
    """The types and the values that an annotation allows; ``None``: something that only the module can tell."""
    match annotation:
        case ast.Constant(value=None):
            yield "None"
        case ast.Constant(value=str() as text):
            yield from _parsed(text)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _alternatives(left)
            yield from _alternatives(right)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name if name in _TYPES else None
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            yield from _subscripted(name, inner)
        case _:
            yield None


def _subscripted(name: str, inner: ast.expr) -> Iterator[str | None]:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name in _UNIONS:
        for part in parts:
            yield from _alternatives(part)
    elif name == "Literal":
        for part in parts:
            yield repr(part.value) if isinstance(part, ast.Constant) else None
    else:
        yield name if name in _TYPES else None


def _parsed(text: str) -> Iterator[str | None]:
    try:
        yield from _alternatives(ast.parse(text, mode="eval").body)
    except SyntaxError:
        yield None


def _shown(value: object) -> str:
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "bool"),
        (int, "int"),
        (float, "float"),
        (str, "str"),
        (list, "list"),
        (dict, "table"),
        ((datetime, date, time), "date or time"),
    )
    kind = next((name for types, name in kinds if isinstance(value, types)), type(value).__name__)
    return f"{kind} {value!r}" if kind in ("bool", "int", "float", "str") else kind
