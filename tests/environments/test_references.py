"""What is named as package.module:name, and the folder whose modules may be named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scavenge.environments.references import importable, load_scorer, resolve
from scavenge.errors import ConfigError

SCORERS = """
def score(reply, answer, row):
    return 1.0

async def late_score(reply, answer, row):
    return 1.0

def short_score(reply):
    return 1.0

NUMBER = 5

class Scorer: ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "scorers.py").write_text(SCORERS)
    with importable(tmp_path):
        yield tmp_path
    sys.modules.pop("scorers", None)


def test_a_folder_is_importable_inside_the_block_only(tmp_path: Path) -> None:
    before = list(sys.path)
    with importable(tmp_path):
        assert sys.path == [*before, str(tmp_path.resolve())]
        with importable(tmp_path):
            assert sys.path.count(str(tmp_path.resolve())) == 1
        assert sys.path[-1] == str(tmp_path.resolve())
    assert sys.path == before


def test_a_path_that_somebody_else_removed_stays_removed(tmp_path: Path) -> None:
    before = list(sys.path)
    with importable(tmp_path):
        sys.path.remove(str(tmp_path.resolve()))
    assert sys.path == before


def test_a_module_beside_the_file_does_not_hide_an_installed_one(folder: Path) -> None:
    (folder / "colorsys.py").write_text("mine = True\n")
    assert resolve("colorsys:rgb_to_hsv", "x")


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        ("scorers:late_score", "is a coroutine function"),
        ("scorers:NUMBER", "is no function"),
        ("scorers:Scorer", "is no function"),
        ("scorers:short_score", "must take (reply, answer, row): too many positional arguments"),
        ("scorers:scores", 'did you mean "score"?'),
    ],
)
def test_what_is_no_scorer_is_refused(folder: Path, reference: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_scorer(reference, "eval.toml: eval[0].env_args.scorer")
    assert error in str(caught.value)


def test_a_function_is_a_scorer(folder: Path) -> None:
    assert load_scorer("scorers:score", "x").score("a", "b", {}) == 1.0
    assert load_scorer("builtins:max", "x").name == "builtins.max"  # without a signature to look at
