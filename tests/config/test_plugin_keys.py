"""A plugin's keys in the types of the plugin's own classes and signatures."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal, NewType

import attrs
import pytest

from scavenge.config import structure_plugin
from scavenge.errors import ConfigError, UsageError

WHERE = "eval.toml: source[0]"
FOLDER = Path("/folder")
Host = NewType("Host", str)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@attrs.frozen
class Reference:
    path: Path

    @classmethod
    def from_text(cls, text: str, base_dir: Path) -> Reference:
        if text == "bad":
            raise ValueError("this reference is bad")
        return cls(base_dir / text)


class Word(str):
    __slots__ = ()

    @classmethod
    def from_text(cls, text: str, base_dir: Path) -> Word:
        return cls(text.upper())


@attrs.frozen
class Inner:
    port: int = attrs.field(validator=attrs.validators.in_([1, 2]))
    host: Host = Host("h")


@attrs.frozen
class Everything:
    number: float = 0.0
    path: Path | None = None
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    choice: Literal["a", 1] = "a"
    names: list[str] = attrs.field(factory=list)
    pairs: tuple[int, str] | None = None
    many: tuple[int, ...] = attrs.field(default=())
    few: Sequence[int] = ()
    unique: frozenset[str] = frozenset()
    table: Mapping[str, int] = attrs.field(factory=dict)
    raw: dict = attrs.field(factory=dict)
    items: list = attrs.field(factory=list)
    anything: Any = None
    either: int | str | list[int] = 0
    scale: float | int = 0
    mixed: Literal["x"] | Colour | float = 0.0
    holes: list[int | None] = attrs.field(factory=list)
    inner: Inner | None = None
    inners: list[Inner] = attrs.field(factory=list)
    reference: Reference | None = None
    word: Word = attrs.field(default=Word("x"))
    when: datetime | None = None
    day: date | None = None
    _private: int = 0
    computed: int = attrs.field(init=False, default=7)
    shouted: str = attrs.field(default="", converter=str.upper, validator=attrs.validators.in_(["", "A"]))

    @many.validator
    def _few_enough(self, attribute: attrs.Attribute[Any], value: tuple[int, ...]) -> None:
        if len(value) > self.number:
            raise ValueError("more than number says")


def built(**keys: object) -> Everything:
    return structure_plugin(Everything, keys, WHERE, FOLDER)


def problems_of(cls: type, **keys: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        structure_plugin(cls, keys, WHERE, FOLDER)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("key", "raw", "value"),
    [
        ("number", 3, 3.0),
        ("path", "a/b", FOLDER / "a/b"),
        ("path", "/abs", Path("/abs")),
        ("colour", "blue", Colour.BLUE),
        ("level", 1, Level.LOW),
        ("choice", 1, 1),
        ("names", ["a"], ["a"]),
        ("pairs", [1, "a"], (1, "a")),
        ("few", [1, 2], (1, 2)),
        ("unique", ["a", "a"], frozenset("a")),
        ("table", {"a": 1}, {"a": 1}),
        ("raw", {"a": [1]}, {"a": [1]}),
        ("items", [1, "a"], [1, "a"]),
        ("anything", {"a": 1.5}, {"a": 1.5}),
        ("either", "a", "a"),
        ("either", [1], [1]),
        ("scale", 3, 3),
        ("scale", 3.5, 3.5),
        ("mixed", "red", Colour.RED),
        ("holes", [1, None], [1, None]),
        ("inner", {"port": 1}, Inner(1)),
        ("inners", [{"port": 2, "host": "x"}], [Inner(2, Host("x"))]),
        ("reference", "r", Reference(FOLDER / "r")),
        ("word", "loud", Word("LOUD")),
        ("day", date(2030, 1, 1), date(2030, 1, 1)),
    ],
)
def test_a_value_becomes_what_is_annotated(key, raw, value):
    made = getattr(built(**{key: raw}), key)
    assert made == value
    assert type(made) is type(value)


def test_a_private_field_is_set_by_its_public_name():
    assert built(private=3)._private == 3
    assert built(shouted="a").shouted == "A"


@pytest.mark.parametrize(
    ("key", "raw", "problem"),
    [
        ("number", "3", 'number: expected a number, got "3"'),
        ("number", True, "number: expected a number, got true"),
        ("path", 3, "path: expected a string, got 3"),
        ("path", "a\0", 'path: expected a path, got "a\\u0000"'),
        ("colour", "green", 'colour: expected "red" or "blue", got "green"'),
        ("level", True, "level: expected 1, got true"),
        ("choice", True, 'choice: expected "a" or 1, got true'),
        ("names", "ab", 'names: expected a list, got "ab"'),
        ("names", ["a", 3], "names[1]: expected a string, got 3"),
        ("pairs", [1], "pairs: expected a list of 2, got a list of 1"),
        ("many", {"a": 1}, "many: expected a list, got a table with a"),
        ("table", {"a": "b"}, 'table.a: expected an integer, got "b"'),
        ("table", {3: 1}, "table: expected a table with strings for keys, got a table with 3"),
        ("table", [], "table: expected a table, got an empty list"),
        ("either", 1.5, "either: expected an integer or a string or a list, got 1.5"),
        ("either", ["a"], 'either[0]: expected an integer, got "a"'),
        ("mixed", "y", 'mixed: expected "x" or "red" or "blue" or a number, got "y"'),
        ("inner", 3, "inner: expected a table, got 3"),
        ("inner", {"port": 3}, "inner.port: expected 1 or 2, got 3"),
        ("inner", {}, "inner.port: this key is required"),
        ("inners", [{"port": 1}, {"prt": 1, "port": 1}], 'inners[1].prt: unknown key; did you mean "port"?'),
        ("reference", "bad", "reference: this reference is bad"),
        ("reference", 3, "reference: expected a string, got 3"),
        ("word", 3, "word: expected a string, got 3"),
        ("when", date(2030, 1, 1), "when: expected a date with a time, got a date (2030-01-01)"),
        ("many", [1], "many: more than number says"),
        ("_private", 3, "_private: unknown key; did you mean"),
        ("computed", 3, "computed: unknown key"),
        ("shouted", "b", "'shouted' must be in"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(key, raw, problem):
    (told,) = problems_of(Everything, **{key: raw})
    assert told.startswith((f"{WHERE}.{problem}", f"{WHERE}: {problem}"))


def test_all_problems_of_a_plugins_table_are_told_at_once():
    assert problems_of(Everything, number="x", many=[1], names=[1, 2], zzz=3, inner={"port": "a", "host": 1})[1:] == [
        f'{WHERE}.number: expected a number, got "x"',
        f"{WHERE}.names[0]: expected a string, got 1",
        f"{WHERE}.names[1]: expected a string, got 2",
        f'{WHERE}.inner.port: expected 1 or 2, got "a"',
        f"{WHERE}.inner.host: expected a string, got 1",
    ]


@attrs.frozen
class Cross:
    low: int = 0
    high: int = attrs.field(default=1)
    ratio: int = attrs.field(default=1, validator=attrs.validators.and_(attrs.validators.lt(5)))

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low must not be above high")


def test_what_a_class_refuses_as_a_whole_is_told_at_the_table():
    assert problems_of(Cross, low=3) == [f"{WHERE}: low must not be above high"]
    assert problems_of(Cross, ratio=9) == [f"{WHERE}.ratio: 'ratio' must be < 5: 9"]


@attrs.frozen
class Unreadable:
    lock: functools.partial | None = None
    blob: bytes = b""


@attrs.frozen
class Unresolvable:
    lock: NotImported = None  # noqa: F821


@pytest.mark.parametrize(
    ("cls", "keys", "says"),
    [(Unreadable, {"lock": 3}, "partial"), (Unreadable, {"blob": "x"}, "bytes"), (Unresolvable, {}, "NotImported")],
)
def test_a_class_that_no_file_can_fill_is_its_authors_error(cls, keys, says):
    with pytest.raises(UsageError, match=says):
        structure_plugin(cls, keys, WHERE, FOLDER)


def test_keys_that_are_no_table_are_an_error():
    with pytest.raises(ConfigError, match=r"source\[0\]: expected a table, got 3"):
        structure_plugin(Cross, 3, WHERE, FOLDER)  # type: ignore[arg-type]


def test_a_place_may_be_a_file_only():
    with pytest.raises(ConfigError, match=r"^eval.toml: low: expected an integer"):
        structure_plugin(Cross, {"low": "x"}, "eval.toml", FOLDER)


@attrs.frozen
class Placed:
    here: Path = Path()
    below: Path = Path("a")
    elsewhere: Path = Path("/abs")


def test_a_path_that_is_a_default_is_relative_to_the_same_folder():
    assert structure_plugin(Placed, {}, WHERE, FOLDER) == Placed(FOLDER, FOLDER / "a", Path("/abs"))
    assert structure_plugin(Placed, {"here": "b"}, WHERE, FOLDER).here == FOLDER / "b"


def test_a_class_whose_annotations_cannot_be_found_is_told_with_its_module():
    @attrs.frozen
    class Lost:
        name: Nope  # type: ignore[name-defined]  # noqa: F821 - what is tested

    with pytest.raises(UsageError, match=r"^test_plugin_keys\.\S*Lost: name 'Nope' is not defined; import what"):
        structure_plugin(Lost, {"name": "x"}, WHERE, FOLDER)
