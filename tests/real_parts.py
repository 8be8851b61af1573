"""What becomes of a test whose real counterpart (a server, a package) is not on this machine.

It is skipped with a reason, so that a machine with little can still run the suite. With ``SCAVENGE_REQUIRE_REAL=1``,
as in continuous integration, it fails: a suite that skips what it is for proves nothing. The one excuse is a processor
that cannot run a prebuilt binary.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

import pytest

VARIABLE = "SCAVENGE_REQUIRE_REAL"
NOT_IMPORTED = "could not import"
"""How the reason of ``pytest.importorskip`` begins."""


def real(name: str, available: bool, reason: str) -> pytest.MarkDecorator:
    """A mark for tests that need the real *name*; *reason* says what is missing and how to get it."""
    return pytest.mark.real(name, available=available, reason=reason)


def excuse_processor(name: str, returncode: int | None) -> None:
    """Skip the test whose *name* died of an instruction that this processor does not have."""
    if returncode == -signal.SIGILL:
        pytest.skip(f"{name}: this processor lacks an instruction that the prebuilt binary uses")


def required(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether an absent part fails its tests."""
    return environ.get(VARIABLE, "") not in ("", "0")


def check_mark(mark: pytest.Mark, *, insist: bool) -> None:
    """Skip or fail the test that has this mark, if its part is absent."""
    if mark.kwargs["available"]:
        return
    text = f"{mark.args[0]}: {mark.kwargs['reason']}"
    if insist:
        pytest.fail(f"{text} ({VARIABLE} is set)", pytrace=False)
    pytest.skip(text)


def refuse_missing_import(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a test (or a module of tests) that skipped itself because a package is absent into a failure."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    if report.skipped and NOT_IMPORTED in reason:
        report.outcome = "failed"
        report.longrepr = f"{reason} ({VARIABLE} is set)"
