"""The checks for admission policies: a right policy passes them, and each way to be wrong is found and told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from scavenge.signals import Ended, Ending, Flow, GateView, WarmStart
from scavenge.testing import Told, check_admission_policy, check_history
from scavenge.types import CapChanged


@attrs.define
class Right:
    """Adds a request after a reply that had the whole limit beside it, and takes some away at a refusal."""

    level: int = 8
    cap: int = 1024
    cut_at: float = -1e9
    told_at: float = 0.0
    reason: str = "start"

    def observe(self, event: object, now: float) -> None:
        match event:
            case CapChanged(max_concurrent=cap):
                self.cap = 1024 if cap is None else min(cap, 1024)
            case WarmStart(limit=limit):
                self.level = min(limit, 1024)
            case Flow():
                self.told_at = now
            case Ended():
                self.on_ended(event, now)

    def on_ended(self, ended: Ended, now: float) -> None:
        if self.is_reason_to_cut(ended, now):
            self.level, self.cut_at = max(1, self.limit(now) // 2), now
        elif self.is_reason_to_grow(ended):
            self.level = min(self.limit(now) + 1, 1024)

    def is_reason_to_cut(self, ended: Ended, now: float) -> bool:
        return ended.ending is Ending.RATE_LIMITED and ended.admitted_at >= self.cut_at and now >= self.cut_at + 15.0

    def is_reason_to_grow(self, ended: Ended) -> bool:
        return ended.ending is Ending.OK and self.cap > ended.in_flight >= self.level

    def limit(self, now: float) -> int:
        return min(self.level, self.cap)

    def next_wake_at(self, now: float) -> float | None:
        return self.told_at + 5.0


def wrong(doc: str, **methods: Callable[..., Any]) -> type[Right]:
    return type(doc, (Right,), methods)


def hear_all(self, event, now):
    self.level += not isinstance(event, Ended | Flow | CapChanged | WarmStart)
    Right.observe(self, event, now)


def count_calls(self, now):
    self.level = self.level % 1000 + 1
    return Right.limit(self, now)


def heed_patience(self, ended, now):
    if ended.retry_after_s:
        self.cut_at = now + ended.retry_after_s
    Right.on_ended(self, ended, now)


def only_a_few(self, ended):
    return Right.is_reason_to_grow(self, ended) and ended.in_flight > 1


def one_burst_many_cuts(self, ended, now):
    return ended.ending is Ending.RATE_LIMITED


WRONG = {
    r"int from 1 to \d+, gave 8\.0": wrong("a float", limit=lambda self, now: float(Right.limit(self, now))),
    r"int from 1 to \d+, gave True": wrong("a bool", limit=lambda self, now: True),
    r"int from 1 to \d+, gave 0": wrong("shuts", is_reason_to_cut=lambda *_: False, limit=lambda *_: 0),
    r"int from 1 to 1, gave \d+ after it heard CapChanged": wrong("no cap", limit=lambda self, now: self.level),
    r"must lie in the future": wrong("always due", next_wake_at=lambda self, now: now),
    r"must give a number or None": wrong("no number", next_wake_at=lambda self, now: "soon"),
    r"must give a GateView": wrong("no view", view=lambda self, now: self.level),
    r"view\(\) shows the limit 3": wrong("another view", view=lambda self, now: GateView(3)),
    r"where time begins": wrong(
        "wall clock", limit=lambda self, now: max(1, Right.limit(self, now) - int(now / 1000.0) % 3)
    ),
    r"to be asked changes": wrong("counts calls", limit=count_calls),
    r"kind that it cannot know": wrong("hears all", observe=hear_all),
    r"a Retry-After moves": wrong("patient", on_ended=heed_patience),
    r"grew from 40 to \d+ with 10 in flight": wrong(
        "grows idle", is_reason_to_grow=lambda self, ended: ended.ending is Ending.OK
    ),
    r"grew from 40 to \d+ with nothing but cached": wrong(
        "grows by anything", is_reason_to_grow=lambda self, ended: ended.in_flight >= self.level
    ),
    r"for one server_error": wrong(
        "cuts for 5xx", is_reason_to_cut=lambda self, ended, now: ended.ending in (Ending.SERVER_ERROR, Ending.TIMEOUT)
    ),
    r"fell \d+ times": wrong("cascades", is_reason_to_cut=one_burst_many_cuts),
    r"stayed at \d+ when all in flight": wrong("never cuts", is_reason_to_cut=lambda *_: False),
    r"for an hour after one cut": wrong(
        "frozen", is_reason_to_grow=lambda self, ended: self.cut_at < 0 and Right.is_reason_to_grow(self, ended)
    ),
    r"stays at 1": wrong("cannot leave one", is_reason_to_grow=only_a_few),
}


def test_a_right_policy_passes():
    check_admission_policy(Right)


@pytest.mark.parametrize("message", WRONG)
def test_each_way_to_be_wrong_is_found(message):
    with pytest.raises(AssertionError, match=message):
        check_admission_policy(WRONG[message], seeds=range(8))


def test_a_failure_names_the_seed_of_its_history():
    with pytest.raises(AssertionError) as caught:
        check_admission_policy(wrong("shut", limit=lambda self, now: 0), seeds=[7])
    assert caught.value.__notes__ == ["the random history of seed 7"]


def test_a_policy_that_never_moves_passes_as_such():
    fixed = wrong("fixed", limit=lambda self, now: min(4, self.cap))
    check_admission_policy(fixed, adaptive=False)
    with pytest.raises(AssertionError, match="stayed at 4"):
        check_admission_policy(fixed, seeds=())


def test_a_policy_for_one_request_has_nowhere_to_go():
    check_admission_policy(wrong("one", limit=lambda self, now: 1), most=1, adaptive=False)


def test_what_a_policy_raises_is_not_hidden():
    def raises(self: Right, event: object, now: float) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        check_history(wrong("raises", observe=raises), [Told(0.0, CapChanged(None))])


def test_nobody_needs_hypothesis_to_import_the_kit():
    code = "import sys; sys.modules['hypothesis'] = None; from scavenge.testing import check_admission_policy"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
