"""Keyword arguments in the types of a signature."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from scavenge.config import structure_arguments
from scavenge.errors import ConfigError

WHERE = "eval.toml: eval[0].env_args"
FOLDER = Path("/folder")


def factory(count: int, path: Path = FOLDER, *, lock: functools.partial | None = None, plain=None) -> None: ...


class Made:
    def __init__(self, count: int = 10) -> None: ...


def arguments_problems(target, **keys: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        structure_arguments(target, keys, WHERE, FOLDER)
    return [str(problem).removeprefix(WHERE) for problem in caught.value.problems]


def test_arguments_are_converted_as_annotated():
    keys = {"count": 3, "path": "a", "plain": [1], "lock": "whatever"}
    assert structure_arguments(factory, keys, WHERE, FOLDER) == {**keys, "path": FOLDER / "a"}
    assert structure_arguments(Made, {"count": 3}, WHERE) == {"count": 3}


def test_all_problems_of_arguments_are_told_at_once():
    assert arguments_problems(factory, pat="x", plain=1, path=3) == [
        '.pat: unknown key; did you mean "path"?',
        ".count: this key is required",
        ".path: expected a string, got 3",
    ]
    assert arguments_problems(Made, count="3", cont=1) == [
        '.cont: unknown key; did you mean "count"?',
        '.count: expected an integer, got "3"',
    ]


def test_a_signature_that_takes_all_keywords_takes_unknown_ones():
    def takes_all(a, **rest): ...

    assert structure_arguments(takes_all, {"a": 1, "z": 2}, WHERE) == {"a": 1, "z": 2}


def test_a_positional_argument_cannot_be_given():
    def positional(a, /, b=1): ...

    assert arguments_problems(positional, b=2) == [
        ".a: takes no keyword, so a file cannot give it; remove the `/` from its signature"
    ]


def test_what_has_no_signature_is_not_checked():
    assert structure_arguments(type, {"x": 1}, WHERE) == {"x": 1}


def test_annotations_that_cannot_be_found_are_not_checked():
    def mystery(a: NotImported): ...  # noqa: F821

    assert structure_arguments(mystery, {"a": 1}, WHERE) == {"a": 1}
