"""A field that takes the keys which no other field of a plugin's class has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import attrs
import pytest

from scavenge.config import structure_plugin
from scavenge.errors import ConfigError, UsageError
from scavenge.plugin import rest

WHERE = "eval.toml: source[0]"
FOLDER = Path("/folder")


@attrs.frozen
class Inner:
    port: int
    host: str = "h"


@attrs.frozen
class Open:
    """A class that takes whatever it does not name."""

    path: Path = Path("data")
    model: str = attrs.field(default="m", metadata={"alias": "llm"})
    rest: Mapping[str, Any] = rest()
    inner: Inner | None = None


@attrs.frozen
class Counts:
    unit: str
    counts: Mapping[str, int] = attrs.field(metadata={"rest": True})

    @counts.validator
    def _some(self, attribute: attrs.Attribute[Any], value: Mapping[str, int]) -> None:
        if "none" in value:
            raise ValueError("none is no count")


def problems_of(cls: type, **keys: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        structure_plugin(cls, keys, WHERE, FOLDER)
    return [str(problem) for problem in caught.value.problems]


def test_keys_that_no_field_has_go_where_the_rest_goes():
    keys = {"path": "a", "llm": "x", "split": "eval", "when": date(2030, 1, 2), "deep": {"a": [1, {"b": 2.5}]}}
    made = structure_plugin(Open, keys, WHERE, FOLDER)
    assert (made.path, made.model) == (FOLDER / "a", "x")
    assert made.rest == {"split": "eval", "when": date(2030, 1, 2), "deep": {"a": [1, {"b": 2.5}]}}


def test_the_rest_has_no_key_of_its_own_and_may_be_empty():
    assert structure_plugin(Open, {"rest": 3, "absent": None}, WHERE, FOLDER).rest == {"rest": 3}
    assert structure_plugin(Open, {}, WHERE, FOLDER).rest == {}
    assert structure_plugin(Counts, {"unit": "s"}, WHERE, FOLDER) == Counts("s", {})


def test_what_is_wrong_beside_the_rest_or_in_it_is_told_with_its_key():
    assert problems_of(Open, path=3, misspelt=1, inner={"port": 1, "odd": 1}) == [
        f"{WHERE}.path: expected a string, got 3",
        f'{WHERE}.inner.odd: unknown key; valid: "host", "port"',
    ]
    assert problems_of(Counts, apples=1, pears="2", plums=True) == [
        f'{WHERE}.pears: expected an integer, got "2"',
        f"{WHERE}.plums: expected an integer, got true",
        f"{WHERE}.unit: this key is required",
    ]
    assert problems_of(Counts, unit="s", none=1) == [f"{WHERE}: none is no count"]


def test_a_class_that_takes_the_rest_twice_or_as_no_table_cannot_be_read():
    @attrs.frozen
    class Twice:
        some: Mapping[str, Any] = rest()
        more: Mapping[str, Any] = rest()

    @attrs.frozen
    class Listed:
        others: list[str] = attrs.field(metadata={"rest": True})

    with pytest.raises(UsageError, match=r"Twice: some and more each take the rest of the keys; keep one"):
        structure_plugin(Twice, {}, WHERE, FOLDER)
    with pytest.raises(UsageError, match=r"Listed: others takes the rest of the keys; annotate it as Mapping"):
        structure_plugin(Listed, {}, WHERE, FOLDER)
