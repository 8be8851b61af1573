"""What ``scavenge serve`` and ``scavenge exec`` are made of beside the gateway: signals, and the count of calls."""

from __future__ import annotations

import signal

import pytest
import trio
import trio.testing

from scavenge.app.call_count import CallCount
from scavenge.app.heeding import heeding, not_ignored
from scavenge.app.serve import token_in
from scavenge.errors import UsageError
from scavenge.events import AttemptStarted, CallEnded, Warned
from scavenge.types import EndpointId, Url

POOL = EndpointId("pool")
SEVEN = "2 answered, 1 ended, 2 given up, 1 given up by their clients, 1 rejected"
USED = (signal.SIGUSR1, signal.SIGUSR2)


def ended(outcome: str) -> CallEnded:
    return CallEnded(POOL, outcome, False, 1.0, 1)


async def test_each_signal_is_told_in_its_order_and_as_often_as_it_comes():
    heard: list[signal.Signals] = []
    with heeding(heard.append, USED):
        for number in (signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR2):
            signal.raise_signal(number)
        await trio.testing.wait_all_tasks_blocked()
    assert heard == [signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR2]


async def test_after_the_block_nothing_is_told_and_all_is_as_it_was():
    heard: list[signal.Signals] = []
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with heeding(heard.append, USED):
            signal.raise_signal(signal.SIGUSR1)  # its turn comes when the block is over
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
        await trio.testing.wait_all_tasks_blocked()
        assert heard == []
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_is_ignored_is_left_out():
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        assert not_ignored(*USED) == (signal.SIGUSR2,)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("outcomes", "again", "line"),
    [
        ([], 0, "0 calls"),
        (["ok"], 1, "1 call: 1 answered; 1 request was sent again"),
        (["ok", "ok", "lost", "stalled", "rejected", "hung up", "ended"], 2,
         "7 calls: " + SEVEN + "; 2 requests were sent again"),
    ],
)  # fmt: skip
def test_calls_are_counted_by_how_they_ended(outcomes, again, line):
    count = CallCount()
    count(Warned("of something else"))
    for outcome in outcomes:
        count(ended(outcome))
    for number in range(again + 1):
        count(AttemptStarted(POOL, Url("http://a/v1"), again=number > 0))
    assert count.line == line


def test_what_ends_while_we_cut_was_cut():
    count = CallCount()
    count(ended("hung up"))
    count.cutting = True
    for outcome in ("hung up", "ok"):
        count(ended(outcome))
    assert count.line == "3 calls: 1 answered, 1 cut, 1 given up by their clients"


def test_a_token_is_what_its_variable_has():
    assert token_in({"DOOR": "opal-zebra"}, "DOOR") == "opal-zebra"
    assert token_in({"DOOR": "opal-zebra"}, None) is None


@pytest.mark.parametrize("value", ["a b", "a\n", "\u00e9", "\udcff", "a\x7f"])
def test_a_token_that_no_client_could_send_is_refused_and_not_shown(value):
    with pytest.raises(UsageError, match="DOOR has blanks, line breaks") as caught:
        token_in({"DOOR": value}, "DOOR")
    assert value not in str(caught.value)
