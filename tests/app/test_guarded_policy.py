"""A plugin's admission policy behind its guard: what it says is looked at, and its plugin is named."""

from __future__ import annotations

import math
import re

import attrs
import pytest

from scavenge.app.guarded_policy import GuardedPolicy
from scavenge.errors import PluginError
from scavenge.signals import GateView


@attrs.define
class Says:
    """Says what it is told to say."""

    limit_now: object = 4
    wake_at: object = None
    shown: object = attrs.field(factory=lambda: GateView(4, "start"))

    def observe(self, event: object, now: float) -> None: ...

    def limit(self, now: float) -> object:
        return self.limit_now

    def next_wake_at(self, now: float) -> object:
        return self.wake_at

    def view(self, now: float) -> object:
        return self.shown


class Mute:
    """Shows nothing of itself."""

    def observe(self, event: object, now: float) -> None: ...

    def limit(self, now: float) -> int:
        return 7

    def next_wake_at(self, now: float) -> None: ...


def guarded(policy: object) -> GuardedPolicy:
    return GuardedPolicy(policy, "acme", "theirs")  # type: ignore[arg-type]


class Broken:
    """Raises whatever it is asked."""

    @property
    def wants_load(self) -> bool:
        return bool(1 // 0)

    def observe(self, event: object, now: float) -> None:
        raise KeyError(event)

    def limit(self, now: float) -> int:
        return math.comb(-1, 0)

    def next_wake_at(self, now: float) -> None:
        raise AssertionError

    def view(self, now: float) -> GateView:
        return self.view(now, now)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda policy: policy.wants_load, "ZeroDivisionError: integer division or modulo by zero"),
        (lambda policy: policy.observe("x", 0.0), "KeyError: 'x'"),
        (lambda policy: policy.limit(0.0), "ValueError: n must be a non-negative integer"),
        (lambda policy: policy.next_wake_at(0.0), "AssertionError"),
        (lambda policy: policy.view(0.0), "TypeError: .*"),
    ],
)
def test_what_a_policy_raises_is_told_with_its_line(ask, error):
    with pytest.raises(PluginError) as caught:
        ask(guarded(Broken()))
    what = r"plugin acme: admission policy 'theirs' failed"
    assert re.fullmatch(rf"{what}: {error} \(test_guarded_policy\.py, line \d+\)", str(caught.value))


@pytest.mark.parametrize("limit", [0, -1, True, 2.0, "4", None, 10**30])
def test_a_limit_that_is_none_is_the_plugins_fault(limit: object):
    with pytest.raises(PluginError, match=r"plugin acme: admission policy 'theirs' failed: ValueError: limit.*[^)]$"):
        guarded(Says(limit)).limit(0.0)


@pytest.mark.parametrize("at", [math.nan, "soon", True])
def test_an_instant_that_is_none_is_the_plugins_fault(at: object):
    with pytest.raises(PluginError, match="next_wake_at"):
        guarded(Says(wake_at=at)).next_wake_at(0.0)


@pytest.mark.parametrize("at", [None, 5, 5.5, math.inf])
def test_an_instant_is_passed_on(at: float | None):
    assert guarded(Says(wake_at=at)).next_wake_at(0.0) == at


@pytest.mark.parametrize(
    "shown",
    [
        None,
        "ramp",
        GateView(0),
        GateView("4"),  # type: ignore[arg-type]
        GateView(2**70),
        GateView(4, reason=None),  # type: ignore[arg-type]
        GateView(4, elasticity="high"),  # type: ignore[arg-type]
        GateView(4, half_load=True),
    ],
)
def test_a_view_that_nobody_can_be_shown_is_the_plugins_fault(shown: object):
    with pytest.raises(PluginError, match="view\\(\\)"):
        guarded(Says(shown=shown)).view(0.0)


def test_a_view_is_passed_on_and_one_that_shows_nothing_shows_its_limit():
    view = GateView(4, "ramp", queue=1, goodput=2.5)
    assert guarded(Says(shown=view)).view(0.0) == view
    assert guarded(Mute()).view(0.0) == GateView(7)
    assert not guarded(Mute()).wants_load
