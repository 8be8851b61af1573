"""What the failures of an endpoint are compared with."""

from __future__ import annotations

from random import Random

import pytest

from scavenge.core.health import EndpointHealth
from scavenge.core.health_settings import HealthSettings
from scavenge.core.health_state import State
from scavenge.core.others import others_of
from scavenge.core.trust import NOBODY, SHARE_KNOWN_AFTER, Others
from scavenge.types import Busy, Failed, Healthy, Lost, Misrouted, Ok, Outcome, Rejected, Reply, TimedOut

OK = Ok(Reply("4", "stop"))
COMPARED = [Failed("boom", 500), TimedOut("slow"), Lost("reset")]


def served(times: int, now: float) -> EndpointHealth:
    health = EndpointHealth.listed(HealthSettings(), Random(1), 0.0)
    health.on_probe(Healthy(), 0.0)
    for _ in range(times):
        health.on_outcome(OK, now)
    return health


@pytest.mark.parametrize("outcome", COMPARED)
def test_the_best_share_and_the_last_success_are_those_of_the_others(outcome: Outcome):
    failing, middling, good = served(99, 9.0), served(SHARE_KNOWN_AFTER, 5.0), served(SHARE_KNOWN_AFTER, 3.0)
    middling.on_outcome(Failed("boom", 500), 6.0)
    everybody = (failing, middling, good)
    assert others_of(failing, everybody, outcome) == Others(5.0, 0.0)
    assert others_of(good, (good, middling), outcome) == Others(5.0, middling.trust.share)


@pytest.mark.parametrize(
    "outcome", [OK, Rejected("too long", 400), Busy("later", 429), Misrouted("no such model", 404)]
)
def test_what_is_no_failure_is_compared_with_nobody(outcome: Outcome):
    assert others_of(served(0, 0.0), [served(99, 1.0)], outcome) is NOBODY


def test_nothing_is_known_of_no_others_nor_of_one_that_is_new():
    health = served(0, 0.0)
    assert others_of(health, [health], COMPARED[0]) == NOBODY
    assert others_of(health, [health, served(SHARE_KNOWN_AFTER - 1, 2.0)], COMPARED[0]) == Others(2.0, None)


def test_the_record_of_one_that_is_out_of_work_is_no_measure():
    paused, ejected = served(99, 2.0), served(99, 3.0)
    paused.on_outcome(Busy("later", 429, 60.0), 4.0)
    ejected.on_outcome(Lost("reset"), 4.0)
    assert ejected.state is State.EJECTED
    assert others_of(served(0, 0.0), [ejected], COMPARED[0]) == Others(3.0, None)
    assert others_of(served(0, 0.0), [paused, ejected], COMPARED[0]) == Others(3.0, 0.0)
