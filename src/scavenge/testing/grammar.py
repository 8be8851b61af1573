"""How a statement of a fleet's script is read and written, whatever the words are. Pure.

A statement is ``t=SECONDS WORD TARGET [OPTION=VALUE ...]``. This module knows the shape and the values; which words
there are and what they mean is :mod:`scavenge.testing.faults`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Generic, TypeVar

import attrs

FLEET = "fleet"
"""The target of a word that is about the listing of the whole fleet; no server may have this name."""

T = TypeVar("T")

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", re.ASCII)


def number(low: float, high: float = math.inf) -> Callable[[str], float]:
    """Reads a finite number between two bounds."""

    def read(text: str) -> float:
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not (low <= value <= high and math.isfinite(value)):
            wanted = f"of at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            raise ValueError(f'expected a number {wanted}, got "{text}"')
        return value

    return read


def whole(low: int, high: int, what: str = "a whole number") -> Callable[[str], int]:
    """Reads a whole number between two bounds, written in decimal digits."""

    def read(text: str) -> int:
        digits = len(str(high))
        if not re.fullmatch(f"[0-9]{{1,{digits}}}", text, re.ASCII) or not low <= int(text) <= high:
            raise ValueError(f'expected {what} from {low} to {high}, got "{text}"')
        return int(text)

    return read


@attrs.frozen
class Word(Generic[T]):
    """One word of the language: what it makes, of which options, and what it may be said of."""

    make: Callable[..., T]
    options: Mapping[str, tuple[str, Callable[[str], float]]] = attrs.field(factory=dict)
    """What is written -> the field's name and how its value is read."""
    needs: tuple[str, ...] = ()
    """Options of which there has to be one at least."""
    of_server: bool = True
    of_fleet: bool = False


@attrs.frozen
class Statement(Generic[T]):
    """One statement that was read."""

    at_s: float
    target: str
    made: T


def statements(text: str) -> Iterator[tuple[str, str]]:
    """The statements of a script, each with its ``line:column``, without comments."""
    for line_number, line in enumerate(text.split("\n"), start=1):
        code = line.partition("#")[0]
        for match in re.finditer(r"[^;]+", code):
            if statement := match[0].strip():
                column = match.start() + len(match[0]) - len(match[0].lstrip()) + 1
                yield f"{line_number}:{column}", statement


def read_statement(statement: str, words: Mapping[str, Word[T]], servers: Collection[str]) -> Statement[T]:
    """What one statement says. Raises :class:`ValueError` that tells what is wrong and the remedy."""
    parts = statement.split()
    if not parts[0].startswith("t="):
        raise ValueError(f'expected "t=SECONDS WORD SERVER", got "{statement}"')
    at_s = _read_value("t", parts[0].removeprefix("t="), number(0))
    if len(parts) < 3:
        raise ValueError(f'expected a word and a server after "{parts[0]}", as in "{parts[0]} kill {min(servers)}"')
    name, target = parts[1:3]
    word = words.get(name)
    if word is None:
        raise ValueError(_unknown("word", name, words))
    check_target(name, word, target, servers)
    return Statement(at_s, target, word.make(**_read_options(word, name, parts[3:])))


def check_target(name: str, word: Word[T], target: str, servers: Collection[str]) -> None:
    """Raises :class:`ValueError` when a word cannot be said of this target."""
    if target == FLEET and not word.of_fleet:
        raise ValueError(f'{name} happens to a server, not to the listing of the fleet, as in "{name} {min(servers)}"')
    if target != FLEET and not word.of_server:
        raise ValueError(f'{name} happens to the listing of the whole fleet: expected "{FLEET}", got "{target}"')
    if target != FLEET and target not in servers:
        raise ValueError(_unknown("server", target, servers))


def write_statement(at_s: float, name: str, word: Word[T], target: str, made: attrs.AttrsInstance) -> str:
    """The statement that says so; options that have their default are left out."""
    defaults = {field.name: field.default for field in attrs.fields(type(made))}
    values = {option: getattr(made, field) for option, (field, _) in word.options.items()}
    given = [
        f"{option}={_plain(value)}"
        for option, value in values.items()
        if value is not None and value != defaults[word.options[option][0]]
    ]
    return " ".join([f"t={_plain(at_s)}", name, target, *given])


def _plain(value: float) -> str:
    """A number in a form that is read back as the same number."""
    return repr(value).removesuffix(".0").replace("e+", "e")


def _read_options(word: Word[T], name: str, parts: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in parts:
        option, equals, value = part.partition("=")
        if not word.options:
            raise ValueError(f'{name} takes no options, got "{part}"')
        if option not in word.options:
            raise ValueError(_unknown(f"option of {name}", option, word.options))
        if not equals:
            raise ValueError(f'expected "{option}=VALUE", got "{part}"')
        field, read = word.options[option]
        if field in found:
            raise ValueError(f'option "{option}" is given twice')
        found[field] = _read_value(option, value, read)
    if word.needs and not any(word.options[option][0] in found for option in word.needs):
        raise ValueError(f"{name} needs {' or '.join(f'{option}=VALUE' for option in word.needs)}")
    return found


def _read_value(name: str, text: str, read: Callable[[str], float]) -> float:
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _unknown(what: str, got: str, valid: Collection[str]) -> str:
    near = difflib.get_close_matches(got, valid, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"expected one of {', '.join(sorted(valid))}"
    return f'unknown {what} "{got}", {hint}'
