"""What a gate makes of the end of a request."""

from __future__ import annotations

import math

import pytest

from scavenge.core.gates.ending import SERVING_S, ending_of
from scavenge.signals import Ending
from scavenge.types import Answer, Busy, Failed, Lost, LostCause, Misrouted, Ok, Rejected, Reply, TimedOut

OK = Ok(Reply("hi", "stop"))


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        (None, Ending.CANCELLED),
        (Answer(OK), Ending.OK),
        (Answer(OK, cached=True), Ending.CACHED),
        (Answer(Failed("x"), cached=True), Ending.SERVER_ERROR),
        (Answer(Busy("x", 429)), Ending.RATE_LIMITED),
        (Answer(Lost("x")), Ending.DOWN),
        (Answer(Lost("x", LostCause.SILENT)), Ending.DOWN),
        (Answer(Lost("x", LostCause.REVOKED)), Ending.DOWN),
        (Answer(Lost("x", LostCause.LOCAL)), Ending.CANCELLED),
        (Answer(Lost("x", LostCause.LATE)), Ending.CANCELLED),
        (Answer(Failed("x", 500)), Ending.SERVER_ERROR),
        (Answer(Misrouted("x", 404)), Ending.CLIENT_ERROR),
        (Answer(Rejected("x", 400)), Ending.CLIENT_ERROR),
        (Answer(TimedOut("x")), Ending.TIMEOUT),
    ],
)
def test_every_end_of_a_request_means_one_thing_to_its_gate(answer: Answer | None, ending: Ending):
    assert ending_of(answer, math.inf) is ending


@pytest.mark.parametrize("status", [503, 529, None])
def test_a_server_that_is_starting_says_nothing_about_how_much_it_can_take(status: int | None):
    assert ending_of(Answer(Busy("loading", status)), math.inf) is Ending.SERVER_ERROR
    assert ending_of(Answer(Busy("full", status)), SERVING_S) is Ending.RATE_LIMITED
