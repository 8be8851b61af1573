"""The rule for tests whose real part is absent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from real_parts import VARIABLE, check_mark, real, required

TESTS = Path(__file__).parent
SUITE = """
import signal

import pytest
from real_parts import excuse_processor, real

absent = real("engine", False, "not installed; install engine")


@absent
def test_with_the_engine():
    raise AssertionError("it ran")


def test_on_another_processor():
    excuse_processor("engine", -signal.SIGILL)
    raise AssertionError("it ran")


def test_that_died_of_something_else():
    excuse_processor("engine", -signal.SIGKILL)


@real("engine", True, "not installed")
def test_with_what_is_there():
    pass


def test_with_a_package():
    pytest.importorskip("no_such_package")
"""


def run_suite(folder: Path, *, insist: bool, suite: str = SUITE) -> str:
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "test_engine.py").write_text(suite, encoding="utf-8")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    environ |= {VARIABLE: "1" if insist else "0", "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    return done.stdout


def test_an_absent_part_skips_its_tests_with_a_reason(tmp_path):
    told = run_suite(tmp_path, insist=False)
    assert "2 passed, 3 skipped" in told
    assert "engine: not installed; install engine" in told


def test_where_everything_has_to_be_there_an_absent_part_fails_and_only_the_processor_is_excused(tmp_path):
    told = run_suite(tmp_path, insist=True)
    assert "1 failed, 2 passed, 1 skipped, 1 error" in told  # an error: it never came to the test itself
    assert "engine: not installed; install engine (SCAVENGE_REQUIRE_REAL is set)" in told
    assert "engine: this processor lacks an instruction" in told


def test_a_whole_module_whose_package_is_absent_fails_too(tmp_path):
    suite = "import pytest\n\npytest.importorskip('no_such_package')\n"
    assert "1 skipped" in run_suite(tmp_path, insist=False, suite=suite)
    assert "1 error" in run_suite(tmp_path, insist=True, suite=suite)


@pytest.mark.parametrize(("value", "insist"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_the_variable_insists_unless_it_is_empty_or_0(value, insist):
    assert required({} if value is None else {VARIABLE: value}) is insist


def test_a_part_that_is_there_changes_nothing():
    check_mark(real("engine", True, "not installed").mark, insist=True)
