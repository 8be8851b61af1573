"""Arguments checked against the source of a function."""

from __future__ import annotations

import ast
from datetime import date

import pytest
from scavenge_verifiers.arguments import problems_of


def problems(signature: str, **keys: object) -> list[str]:
    (function,) = ast.parse(f"def load_environment({signature}): ...").body
    assert isinstance(function, ast.FunctionDef)
    return [str(problem) for problem in problems_of(function, keys)]


@pytest.mark.parametrize(
    ("signature", "keys", "said"),
    [
        ("a=1", {"b": 1}, ["b: load_environment takes no such argument; it takes a"]),
        (
            "difficulty=1",
            {"dificulty": 1},
            ['dificulty: load_environment takes no such argument; did you mean "difficulty"?'],
        ),
        ("", {"b": 1}, ["b: load_environment takes no such argument; it takes none"]),
        ("**kwargs", {"b": 1}, []),
        (
            "a, *, b, c=2",
            {},
            ["a: this argument of load_environment is required", "b: this argument of load_environment is required"],
        ),
        ("a, b=2", {"a": 1}, []),
        ("a: int = 1", {"a": True}, ["a: expected int, got bool True"]),
        ("a: bool = False", {"a": 1}, ["a: expected bool, got int 1"]),
        ("a: float = 1", {"a": 1}, []),
        ("a: int = 1", {"a": 1.5}, ["a: expected int, got float 1.5"]),
        ("a: str | None = None", {"a": 3}, ["a: expected str, got int 3"]),
        ("a: 'str | None' = None", {"a": 3}, ["a: expected str, got int 3"]),
        ("a: Optional[list[str]] = None", {"a": "x"}, ["a: expected list, got str 'x'"]),
        ("a: t.Union[int, str] = 1", {"a": [1]}, ["a: expected int or str, got list"]),
        ("a: Literal['x', 2] = 2", {"a": "y"}, ["a: expected 'x' or 2, got str 'y'"]),
        ("a: Literal['x', 2] = 2", {"a": 2}, []),
        ("a: dict[str, int] = {}", {"a": {"b": "c"}}, []),
        ("a: str = ''", {"a": {"b": 1}}, ["a: expected str, got table"]),
        ("a: str = ''", {"a": date(2026, 1, 2)}, ["a: expected str, got date or time"]),
        ("a: Path = None", {"a": 3}, []),
        ("a: vf.Anything[int] = None", {"a": 3}, []),
        ("a: int | Path = None", {"a": "x"}, []),
        ("a: 'not python at all' = None", {"a": 3}, []),
        ("a: Literal[Colour.RED] = 1", {"a": 3}, []),
        ("a: None = None", {"a": 3}, ["a: expected nothing, got int 3"]),
        ("a: lambda: 1 = None", {"a": 3}, []),
    ],
)
def test_what_the_source_tells_for_certain_is_checked(signature, keys, said):
    assert problems(signature, **keys) == said


def test_a_decorated_function_may_take_anything():
    (function,) = ast.parse("@click.command()\ndef load_environment(a): ...").body
    assert isinstance(function, ast.FunctionDef)
    assert not list(problems_of(function, {"b": 1}))
