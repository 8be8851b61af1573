"""What becomes of a request after each attempt: the table of outcomes."""

from __future__ import annotations

from random import Random

import pytest

from scavenge.core.retry import BACKOFF_MAX_S, Again, Done, GiveUp, RequestHistory, RetrySettings
from scavenge.types import Busy, Failed, Lost, LostCause, Misrouted, Ok, Outcome, Rejected, Reply, TimedOut, Url

A, B = Url("http://a/v1"), Url("http://b/v1")


def history(max_retries: int = 3, max_lost: int = 20) -> RequestHistory:
    return RequestHistory(RetrySettings(max_retries, max_lost), Random(5))


def after(past: RequestHistory, outcome: Outcome, url: Url = A, *, leaving: bool = False, elsewhere: bool = True):
    return past.after(outcome, url, leaving=leaving, elsewhere=elsewhere)


def test_a_reply_ends_the_request():
    reply = Reply("4", "stop")
    assert after(history(), Ok(reply)) == Done(reply)


def test_a_rejection_is_final_at_once():
    rejected = Rejected("context length", 400)
    assert after(history(), rejected) == GiveUp(rejected)


@pytest.mark.parametrize("outcome", [Lost("reset"), Lost("revoked", LostCause.REVOKED), Busy("429")])
def test_losses_and_refusals_cost_nothing_and_send_the_request_elsewhere_at_once(outcome: Outcome):
    past = history(max_retries=0)
    assert after(past, outcome, A) == Again(frozenset({A}))
    assert after(past, outcome, B) == Again(frozenset({A, B}))


def test_a_request_that_kills_endpoint_after_endpoint_is_poison():
    past = history(max_lost=2)
    lost = Lost("reset")
    assert isinstance(after(past, lost), Again)
    assert isinstance(after(past, lost), Again)
    assert after(past, lost) == GiveUp(lost, poison=True)


def test_losses_on_endpoints_that_were_leaving_do_not_make_poison():
    past = history(max_lost=1)
    for _ in range(10):
        assert isinstance(after(past, Lost("reset"), leaving=True), Again)


def test_max_lost_0_is_no_limit():
    past = history(max_lost=0)
    for _ in range(100):
        assert isinstance(after(past, Lost("reset")), Again)


def test_a_loss_through_this_machine_backs_off_and_blames_no_endpoint():
    past = history(max_lost=1)
    waits = []
    for _ in range(20):
        step = after(past, Lost("too many open files", LostCause.LOCAL))
        assert isinstance(step, Again)
        assert step.avoid == frozenset()
        waits.append(step.wait_s)
    assert 0 < max(waits) <= BACKOFF_MAX_S
    assert max(waits[10:]) > 5


@pytest.mark.parametrize("outcome", [Failed("boom", 500), TimedOut("60 s")])
def test_failures_use_up_the_retries_and_back_off(outcome: Outcome):
    past = history(max_retries=2)
    for most_s in (1.0, 2.0):
        step = after(past, outcome)
        assert isinstance(step, Again)
        assert 0 < step.wait_s <= most_s
        assert step.avoid == {A}
    assert after(past, outcome) == GiveUp(outcome)


def test_a_misrouted_request_goes_elsewhere_while_there_is_somewhere_else():
    misrouted = Misrouted("no such model", 404, curable=True)
    past = history(max_retries=0)
    assert after(past, misrouted) == Again(frozenset({A}))
    assert after(past, misrouted, B, elsewhere=False) == GiveUp(misrouted)
