"""An endpoint's gate: what its policy hears, and that it outlives the endpoint's row."""

from __future__ import annotations

import attrs
import pytest

from scavenge.core.flow import SHORTEST_WAKE_S
from scavenge.runtime.gate import KEEP_S, LATE_S, Gate, Gates
from scavenge.signals import Ended, Ending, Flow, GateView, WarmStart
from scavenge.types import Answer, Busy, CapChanged, Ok, Reply, Url, Usage

A, B, C = Url("http://a/v1"), Url("http://b/v1"), Url("http://c/v1")


@attrs.define
class Policy:
    """Says what it is told to say, and keeps what it hears."""

    now_limit: int = 4
    wake_at: float | None = None
    settled: bool = False
    reason: str = "start"
    heard: list[object] = attrs.field(factory=list)

    def observe(self, event: object, now: float) -> None:
        self.heard.append(event)

    def limit(self, now: float) -> int:
        return self.now_limit

    def next_wake_at(self, now: float) -> float | None:
        return self.wake_at

    def view(self, now: float) -> GateView:
        return GateView(self.now_limit, self.reason, settled=self.settled)


class Broken:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str):
        raise ZeroDivisionError(name)


@attrs.define
class Bare:
    """A policy with nothing but what it must have."""

    def observe(self, event: object, now: float) -> None: ...

    def limit(self, now: float) -> int:
        return 7

    def next_wake_at(self, now: float) -> float | None:
        return None


def gates(*policies: object) -> Gates:
    made = iter(policies)

    def fail(error: Exception) -> None:
        raise error

    return Gates(lambda: next(made), fail)  # type: ignore[arg-type, return-value]


def one(policy: object) -> Gate:
    return gates(policy).open(A, "m", None, 0.0)


def ends(policy: Policy) -> list[Ended]:
    return [event for event in policy.heard if isinstance(event, Ended)]


def test_a_policy_hears_how_each_request_ended_with_what_is_known_of_it():
    policy = Policy()
    gate = one(policy)
    gate.begin(1.0, streamed=True)
    stream = gate.begin(2.0, streamed=True, prompt_tokens=10)
    stream.came(2.5)
    gate.end(stream, Answer(Ok(Reply("hi", "stop", usage=Usage(12, 5, 3)))), 4.0)
    assert ends(policy) == [Ended(Ending.OK, 2.0, 2, 2.0, 0.5, True, 12, 5, 3)]
    busy = gate.begin(5.0, streamed=False)
    gate.end(busy, Answer(Busy("later", 503, 9.0)), 6.0)
    assert ends(policy)[-1] == Ended(Ending.RATE_LIMITED, 5.0, 2, 1.0, streamed=False, retry_after_s=9.0)
    gate.end(gate.begin(7.0, streamed=True), None, 8.0)
    assert ends(policy)[-1].ending is Ending.CANCELLED


def test_a_policy_is_told_of_the_flow_when_it_asked_for_it_and_something_flows():
    policy = Policy(wake_at=5.0)
    gate = one(policy)
    gate.wake(5.0)
    assert policy.heard == [CapChanged(None)]
    gate.begin(4.0, streamed=True)
    assert gate.next_wake_at(4.0) == 5.0
    gate.wake(5.0)
    assert policy.heard[1:] == [Flow(5.0, 0.2, 0.2, in_flight_now=1)]
    assert gate.next_wake_at(5.0) == 5.0 + SHORTEST_WAKE_S


def test_a_flow_that_is_due_for_long_is_passed_over():
    policy = Policy(wake_at=5.0)
    gate = one(policy)
    gate.begin(4.0, streamed=True)
    gate.wake(5.0 + LATE_S + 0.5)
    assert policy.heard == [CapChanged(None)]
    gate.wake(7.0)
    assert policy.heard[1:] == [Flow(0.5, 1.0, 1.0, in_flight_now=1)]


def test_requests_of_somebodys_own_are_in_flight_and_their_ends_are_told():
    policy = Policy()
    gate = one(policy)
    with gate.occupied(3, lambda: 1.0):
        assert gate.meter.in_flight == 3
        gate.note(Answer(Ok(Reply("", "stop"))), 1.0, 2.0)
    assert gate.meter.in_flight == 0
    assert ends(policy) == [Ended(Ending.OK, 1.0, 3, 1.0, streamed=False)]


def test_an_endpoint_that_comes_back_finds_its_gate_and_after_long_none():
    first, second = Policy(), Policy()
    pool = gates(first, second)
    gate = pool.open(A, "m", None, 0.0)
    pool.leave(A, 10.0)
    assert pool.open(A, "m", None, 10.0 + KEEP_S) is gate
    pool.leave(A, 400.0)
    assert pool.open(A, "m", None, 401.0 + KEEP_S) is not gate


def test_a_gate_with_requests_in_flight_is_kept_until_they_end():
    pool = gates(Policy(), Policy())
    gate = pool.open(A, "m", None, 0.0)
    gate.begin(0.0, streamed=True)
    pool.leave(A, 0.0)
    assert pool.open(A, "m", None, 10 * KEEP_S) is gate


def test_another_model_behind_a_url_is_another_gate():
    pool = gates(Policy(), Policy())
    assert pool.open(A, "m", None, 0.0) is not pool.open(A, "other", None, 1.0)


def test_a_new_endpoint_begins_where_the_lowest_of_its_kind_has_settled():
    policies = [Policy(40, settled=True), Policy(30, settled=True), Policy(9), Policy(), Policy()]
    pool = gates(*policies)
    for url in (A, B, C):
        pool.open(url, "m", None, 0.0)
    pool.open(Url("http://d/v1"), "m", None, 1.0)
    assert policies[3].heard == [CapChanged(None), WarmStart(30)]
    pool.open(Url("http://e/v1"), "m", 16, 1.0)
    assert policies[4].heard == [CapChanged(16)]


def test_what_is_asked_of_the_gates_does_not_grow_with_the_square_of_endpoints_that_come_and_go_at_once():
    looked = 0

    class Looking(Policy):
        def view(self, now: float) -> GateView:
            nonlocal looked
            looked += 1
            return super().view(now)

    urls = [Url(f"http://{number}.test/v1") for number in range(1000)]
    pool = gates(*(Looking() for _ in urls))
    for url in urls:
        pool.open(url, "m", None, 0.0)
    for url in urls:
        pool.leave(url, 0.0)
    assert looked < 20 * len(urls)


def test_what_a_gate_had_settled_at_is_remembered_after_it_is_gone():
    policies = [Policy(40, settled=True), Policy(), Policy()]
    pool = gates(*policies)
    pool.open(A, "m", None, 0.0)
    pool.leave(A, 1.0)
    pool.open(B, "m", None, 2.0 + KEEP_S)
    assert policies[1].heard == [CapChanged(None), WarmStart(40)]


def test_the_first_limit_is_told_as_one_that_was_none_before():
    gate = one(Policy(100))
    move = gate.moved(0.0)
    assert move is not None
    assert (move.old, move.view.limit) == (None, 100)
    assert gate.moved(5.0) is None


def test_an_endpoint_that_comes_back_has_its_limit_told_anew():
    pool = gates(Policy(40))
    gate = pool.open(A, "m", None, 0.0)
    gate.moved(0.0)
    assert pool.open(A, "m", 64, 5.0).moved(5.0) is None
    pool.leave(A, 10.0)
    move = pool.open(A, "m", None, 20.0).moved(20.0)
    assert move is not None
    assert (move.old, move.view.limit) == (None, 40)


def test_a_move_is_told_once_and_trying_out_is_not():
    policy = Policy(100)
    gate = one(policy)
    assert gate.moved(0.0) is not None
    policy.now_limit = 108
    assert gate.moved(1.0) is None
    policy.now_limit = 120
    move = gate.moved(2.0)
    assert move is not None
    assert (move.old, move.view.limit) == (100, 120)
    assert gate.moved(3.0) is None
    policy.now_limit, policy.reason = 119, "queue"
    move = gate.moved(4.0)
    assert move is not None
    assert move.view.reason == "queue"


@pytest.mark.parametrize("ask", ["limit", "next_wake_at", "tell", "view", "wants_load"])
def test_what_a_policy_raises_goes_to_whoever_made_the_gate(ask: str):
    errors: list[Exception] = []
    pool = Gates(Broken, errors.append)  # type: ignore[arg-type]
    gate = pool.open(A, "m", None, 0.0)
    errors.clear()
    gate.meter.begin(0.0)
    if ask == "tell":
        gate.tell(WarmStart(3), 0.0)
    elif ask == "wants_load":
        assert not gate.wants_load
    else:
        assert getattr(gate, ask)(0.0) in (0, None, GateView(0))
    assert [type(error) for error in errors] == [ZeroDivisionError]


def test_a_policy_that_shows_nothing_of_itself_shows_its_limit():
    gate = one(Bare())
    assert gate.view(0.0) == GateView(7)
    assert not gate.wants_load
