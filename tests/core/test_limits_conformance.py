"""Every policy of scavenge's own holds to what a policy has to hold to, and starts where it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from scavenge.plugin import AdmissionPolicy, AdmissionPolicyType
from scavenge.plugins.builtin import BuiltinPlugin
from scavenge.signals import WarmStart
from scavenge.testing import Told, check_admission_policy, check_history, histories
from scavenge.types import CapChanged

MOST = 10_000


def refuse(name: str) -> Any:
    raise AssertionError(f"no scorer is looked up here: {name}")


KINDS: list[AdmissionPolicyType] = BuiltinPlugin(refuse).scavenge_admission_policies()
ADAPTIVE = [kind for kind in KINDS if kind.name != "fixed"]


def maker(kind: AdmissionPolicyType, **keys: object) -> Callable[[], AdmissionPolicy]:
    return lambda: kind.create(kind.config(**keys))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_it_holds_to_all_that_a_policy_has_to(kind):
    check_admission_policy(maker(kind), most=MOST, adaptive=kind.name != "fixed")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_history_is_too_much_for_it(kind):
    @given(histories())
    def check(history: list[Told]) -> None:
        check_history(maker(kind), history, most=MOST)

    check()


@pytest.mark.parametrize("kind", ADAPTIVE, ids=lambda kind: kind.name)
def test_a_low_maximum_bounds_it(kind):
    check_admission_policy(maker(kind, start=3, max=3), most=3, adaptive=False, seeds=range(5))


@pytest.mark.parametrize("kind", ADAPTIVE, ids=lambda kind: kind.name)
def test_it_begins_at_its_start_or_at_the_level_of_others(kind):
    policy = kind.create(kind.config(start=5))
    policy.observe(CapChanged(None), 0.0)
    assert policy.limit(0.0) == 5
    policy.observe(WarmStart(77), 0.0)
    assert policy.limit(0.0) == 77
    policy.observe(CapChanged(12), 0.0)
    assert policy.limit(0.0) == 12


@pytest.mark.parametrize("kind", ADAPTIVE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("keys", [{"start": 0}, {"max": 0}])
def test_a_start_and_a_maximum_are_at_least_one(kind, keys):
    with pytest.raises(ValueError, match=r"start|max"):
        kind.config(**keys)


def test_a_fixed_limit_stays_below_the_cap_and_says_where_it_comes_from():
    (kind,) = (kind for kind in KINDS if kind.name == "fixed")
    policy: Any = kind.create(kind.config(limit=64))
    assert (policy.limit(0.0), policy.view(0.0).reason) == (64, "fixed")
    policy.observe(CapChanged(5), 0.0)
    assert (policy.limit(0.0), policy.view(0.0).reason) == (5, "cap")
