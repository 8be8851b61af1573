"""Hypothesis profiles, the rule for tests that need something real, and what makes the suite quick.

Profiles: ``dev`` by default, ``ci`` under CI, ``machines`` for the long runs of ``nox -s machines``.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from real_parts import check_mark, refuse_missing_import, required
from suite_order import long_first

settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, database=None)
settings.register_profile(
    "machines", deadline=None, max_examples=2000, stateful_step_count=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("SCAVENGE_HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Without byte code each of the hundreds of processes that the suite starts would compile all of scavenge anew, and each
# of pytest's own all tests.

DISTURBED_BY_COVERAGE = ("test_a_disk_that_fills_up", "test_a_disk_with_no_room")
"""On a full disk coverage cannot write either, and complains in the name of the program that is tested."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process more than there are processors: many tests wait for processes and sockets most of their time."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, while coverage is measured, what it would break; in several processes, begin with the long ones."""
    if config.getoption("cov_source", default=None):
        left_out = [item for item in items if any(name in item.nodeid for name in DISTURBED_BY_COVERAGE)]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
    if hasattr(config, "workerinput"):
        items[:] = long_first(items, config.workerinput["workercount"])


def pytest_collection_finish() -> None:
    """Take what all these tests are made of out of the garbage collector's sight.

    Some tests have it look through everything, which would be hundreds of thousands of things more, each time.
    """
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark of :func:`real_parts.real` known, and Ctrl-C an interrupt.

    A shell starts what it runs in the background with SIGINT and SIGQUIT ignored; the suite must not depend on that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    config.addinivalue_line("markers", "real(name, available, reason): needs a real part (tests/real_parts.py)")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look for absent parts before any fixture starts them."""
    for mark in item.iter_markers("real"):
        check_mark(mark, insist=required())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a package that is absent as a failure where everything has to be there."""
    report = yield
    if required():
        refuse_missing_import(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Count a module that skips itself in the same way as a failure, too."""
    report = yield
    if required():
        refuse_missing_import(report)
    return report
