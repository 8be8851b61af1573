from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from scavenge.core.codeplace import Spot, code_place, own_spot, raised_at, raised_line
from scavenge.errors import SourceError


@pytest.mark.parametrize(
    ("path", "module", "place"),
    [
        ("/home/ann/venv/site-packages/scavenge/runtime/pool.py", "scavenge.runtime.pool", "scavenge/runtime/pool.py"),
        ("/home/ann/venv/site-packages/trio/__init__.py", "trio", "trio/__init__.py"),
        ("/home/ann/project/envs.py", "envs", "envs.py"),
        ("/home/ann/project/main.py", "__main__", "main.py"),
        ("/home/ann/project/odd.py", "package.of.another.name", "odd.py"),
        ("/home/ann/project/odd.py", "", "odd.py"),
        ("<string>", "scavenge.core", "<string>"),
        ("<frozen importlib._bootstrap>", "importlib._bootstrap", "<frozen importlib._bootstrap>"),
    ],
)
def test_a_place_in_code_is_told_from_its_package_on_and_never_by_its_whole_path(path, module, place):
    assert code_place(path, module, 7, "run") == f"{place}:7 run"


HOME = "/home/ann/project"
ENV = f"{HOME}/.venv/lib/python3.11"
OURS = Spot(f"{ENV}/site-packages/scavenge/runtime/runner.py", "scavenge.runtime.runner", 1)
GUESSING = Spot(f"{HOME}/guessing.py", "guessing", 2)
HELPER = Spot(f"{HOME}/helper.py", "helper", 3)
TOOL = Spot(f"{HOME}/tools/board.py", "tools.board", 4)
JSON = Spot(f"{ENV}/json/decoder.py", "json.decoder", 5)
HTTPX = Spot(f"{ENV}/site-packages/httpx/_client.py", "httpx._client", 6)
PACKAGE = Spot(f"{ENV}/site-packages/scavenge_acme/__init__.py", "scavenge_acme", 7)
PART = Spot(f"{ENV}/site-packages/scavenge_acme/api.py", "scavenge_acme.api", 8)
SINGLE = Spot(f"{ENV}/site-packages/single.py", "single", 9)
OTHER = Spot(f"{ENV}/site-packages/other.py", "other", 10)
DEBIAN = Spot("/usr/lib/python3/dist-packages/single.py", "single", 11)
STRAY = Spot("/home/ann/elsewhere/stray.py", "stray", 12)
BESIDE = Spot("/home/ann/project2/beside.py", "beside", 13)
BARE = Spot("bare.py", "bare", 14)


@pytest.mark.parametrize(
    ("spots", "module", "own"),
    [
        ([OURS, GUESSING], "guessing", GUESSING),
        ([OURS, GUESSING, OURS], "guessing", GUESSING),
        ([OURS, GUESSING, JSON], "guessing", GUESSING),
        ([OURS, GUESSING, HTTPX, JSON], "guessing", GUESSING),
        ([OURS, GUESSING, HELPER, HTTPX], "guessing", HELPER),
        ([OURS, GUESSING, HELPER, TOOL], "guessing", TOOL),
        ([OURS, GUESSING, STRAY], "guessing", GUESSING),
        ([OURS, GUESSING, BESIDE], "guessing", GUESSING),
        ([OURS, HTTPX, GUESSING], "guessing", GUESSING),  # a decorator of a library's
        ([OURS, TOOL, HELPER], "tools.board", TOOL),  # of a package: that package only
        ([OURS, PACKAGE, PART, HTTPX], "scavenge_acme", PART),
        ([OURS, PART, HTTPX], "scavenge_acme.source", PART),
        ([OURS, SINGLE, OTHER], "single", SINGLE),
        ([OURS, DEBIAN, OTHER], "single", DEBIAN),
        ([OURS, BARE, GUESSING], "bare", BARE),
        ([OURS, HTTPX], "scavenge_acme", None),  # a task of a library's own
        ([OURS], "scavenge.runtime.runner", None),
        ([OURS, JSON], "json", None),
        ([], "guessing", None),
        ([OURS], "", None),
    ],
)
def test_the_innermost_line_counts_that_is_in_the_code_that_was_called(spots, module, own):
    assert own_spot(spots, module) == own


GUESSED = """
import json, functools, helper, scavenge.plugin
class Guessing:
    def play(self):
        return 1 / 0
    def read(self):
        return json.loads("{")
    def help(self):
        return helper.fail()
    def say(self):
        raise scavenge.plugin.SourceError("no such file")
    def made(self):
        exec("1 / 0")
"""


@pytest.fixture
def guessing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "guessing.py").write_text(GUESSED)
    (tmp_path / "helper.py").write_text("\n\n\ndef fail():\n    raise KeyError('a')\n")
    monkeypatch.syspath_prepend(tmp_path)
    import guessing  # type: ignore[import-not-found]  # written above

    yield guessing
    del sys.modules["guessing"], sys.modules["helper"]


def raised(step) -> Exception:
    try:
        step()
    except Exception as exc:
        return exc
    raise AssertionError


def test_an_error_is_told_with_the_name_of_the_file_and_the_line(guessing: ModuleType):
    one = guessing.Guessing()
    assert raised_line(raised(one.play), one) == "ZeroDivisionError: division by zero (guessing.py, line 5)"
    assert raised_at(raised(one.read), one) == " (guessing.py, line 7)"
    assert raised_line(raised(one.help), one) == "KeyError: 'a' (helper.py, line 5)"
    assert raised_at(raised(one.made), one) == " (guessing.py, line 13)"
    assert raised_line(raised(one.play), one, lambda text: text[:3]) == "ZeroDivisionError: div (guessing.py, line 5)"


def test_a_function_a_part_of_one_and_the_name_of_a_module_stand_for_its_code(guessing: ModuleType):
    one = guessing.Guessing()
    for called in (one.play, partial(partial(one.play), 1), guessing.Guessing, "guessing"):
        assert raised_at(raised(one.play), called) == " (guessing.py, line 5)"
    for called in (None, 5, max, "", type("Odd", (), {"__module__": 5})):
        assert raised_at(raised(one.play), called) == ""


def test_what_is_raised_on_purpose_is_a_sentence_without_a_place(guessing: ModuleType):
    one = guessing.Guessing()
    error = raised(one.say)
    assert isinstance(error, SourceError)
    assert raised_line(error, one) == "SourceError: no such file"


def test_an_error_that_was_never_raised_or_has_no_text_is_told_without(guessing: ModuleType):
    assert raised_line(KeyError("a"), guessing.Guessing()) == "KeyError: 'a'"
    assert raised_line(AssertionError(), guessing.Guessing()) == "AssertionError"
