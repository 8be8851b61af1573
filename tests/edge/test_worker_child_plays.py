"""Rollouts in a worker process, under each backend: results, failures with their place, cancellation, the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_child_kit import Child, Gateway, open_child, open_gateway

from scavenge.core.worker_messages import Abort, Aborted, Played, PlayFailed, Ready, Stop
from scavenge.rollouts import ErrorInfo, Failure, Rollout

BACKENDS = ["OnTrio", "OnAsyncio", "OnMain"]
SEVERAL = ["OnTrio", "OnAsyncio"]


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with open_gateway() as server:
        yield server


@pytest.fixture(scope="module")
def child(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """One for all tests of a backend: each leaves it with nothing under way."""
    with open_child(tmp_path_factory.mktemp("child")) as started:
        assert isinstance(started.load(request.param), Ready), started.printed()
        yield started
        started.say(Stop())
        assert started.wait_end() == 0


every_backend = pytest.mark.parametrize("child", BACKENDS, indirect=True)
every_loop = pytest.mark.parametrize("child", SEVERAL, indirect=True)


def outcome(child: Child, rollout: int, *args: object, **data: object) -> Rollout | ErrorInfo:
    child.play(rollout, *args, **data)  # type: ignore[arg-type]
    answer = child.hear()
    assert isinstance(answer, Played | PlayFailed)
    assert answer.rollout == rollout
    return answer.result if isinstance(answer, Played) else answer.failure.error


@every_backend
def test_what_play_comes_to_is_told(child: Child):
    good = outcome(child, 1, do="print")
    assert good == Rollout("done", 1.0)
    assert "printed by the environment" in child.printed()
    failed = outcome(child, 2, do="fail")
    assert isinstance(failed, ErrorInfo)
    assert (failed.type, failed.counts) == ("ZeroDivisionError", True)
    assert failed.message.startswith("division by zero (worker_child_envs.py, line ")
    assert outcome(child, 3, do="infrastructure") == ErrorInfo("InfrastructureError", "the sandbox is gone")
    env_id = f"worker_child_envs:{child.name}"
    said = f"play() of {env_id!r} returned NoneType, not a scavenge.Rollout"
    assert outcome(child, 4, do="nothing") == ErrorInfo("TypeError", said)


@every_backend
def test_an_exit_in_play_is_that_rollouts_failure(child: Child):
    for rollout, (do, name) in enumerate([("exit", "SystemExit"), ("interrupt", "KeyboardInterrupt")]):
        failed = outcome(child, rollout, do=do)
        assert isinstance(failed, ErrorInfo)
        assert failed.type == name
        assert "worker_child_envs.py, line " in failed.message
    failed = outcome(child, 3, do="base")
    assert isinstance(failed, ErrorInfo)
    assert failed.message.startswith("of no kind (")
    failed = outcome(child, 4, do="group")
    assert isinstance(failed, ErrorInfo)
    assert "ValueError: bad" in failed.message
    assert outcome(child, 5, do="fine") == Rollout("fine", 1.0)


@every_backend
def test_what_is_no_json_is_told_as_results_tell_it(child: Child):
    odd = outcome(child, 1, do="odd")
    assert isinstance(odd, Rollout)
    assert (odd.completion, odd.reward, odd.metrics) == ("{1, 2}", 0.5, {"good": 2.0})
    assert odd.info["key"] == "b'bytes'"
    assert "scavenge_note" in odd.info
    bad = outcome(child, 2, do="nan")
    assert isinstance(bad, ErrorInfo)
    assert bad.type == "BadReward"


@pytest.mark.parametrize("child", ["OnTrio"], indirect=True)
def test_a_result_too_long_for_the_way_is_that_rollouts_failure(child: Child):
    failed = outcome(child, 1, do="huge")
    assert isinstance(failed, ErrorInfo)
    assert failed.type == "FrameTooLong"
    assert outcome(child, 2, do="fine") == Rollout("fine", 1.0)


@every_backend
def test_chat_goes_through_the_gateway(child: Child, gateway: Gateway):
    good = outcome(child, 1, gateway.address("s7"), do="chat", options={"temperature": 0.5, "n": 1})
    assert isinstance(good, Rollout)
    assert (good.completion, good.info["attempts"]) == ("you said hello", ["ok"])
    assert "scavenge" not in good.info["raw"]  # type: ignore[operator]
    (path, key, body) = gateway.asked[0]
    assert (path, key) == ("/session/s7/v1/chat/completions", "Bearer the key")
    assert body == {
        "messages": [{"role": "user", "content": "hello"}], "model": "", "temperature": 0.5, "n": 1,
    }  # fmt: skip
    address = gateway.address("s8")
    assert outcome(child, 2, address, do="address") == Rollout([address.base_url, address.api_key], 1.0)
    for rollout in range(3, 6):
        assert isinstance(outcome(child, rollout, gateway.address(), do="chat"), Rollout)
    assert gateway.connections == 1


@every_backend
def test_a_kept_connection_that_was_closed_is_replaced(child: Child, gateway: Gateway):
    outcome(child, 1, gateway.address(), do="chat")
    gateway.drop_next.set()
    assert isinstance(outcome(child, 2, gateway.address(), do="chat"), Rollout)
    assert gateway.connections == 2


@every_backend
def test_chat_raises_what_the_runs_own_session_would(child: Child, gateway: Gateway):
    def failure(rollout: int, says: str) -> Failure:
        child.play(rollout, gateway.address(), do="chat", messages=[{"role": "user", "content": says}])
        answer = child.hear_a(PlayFailed)
        assert answer.rollout == rollout
        return answer.failure

    rejected = failure(1, "reject")
    assert (rejected.error.type, rejected.error.counts, rejected.final) == ("RequestFailed", False, True)
    assert rejected.error.message.startswith("rejected (HTTP 400) after 1 attempt: too long")
    lost = failure(2, "lose")
    assert lost.error.message.startswith("lost after 2 attempts: gone")
    assert (failure(3, "poison").error.type, failure(3, "poison").final) == ("PoisonRequest", True)
    assert failure(4, "unknown") == Failure(ErrorInfo("UnknownSession", "the session is over"))
    assert failure(5, "unauthorized").error.misrouted
    assert failure(6, "nonsense").error.message.startswith("failed after")
    cut = failure(7, "cut")
    assert (cut.error.type, cut.final) == ("InfrastructureError", False)
    assert "gateway" in cut.error.message
    assert "closed before the reply was whole" in cut.error.message


@every_backend
def test_a_gateway_that_is_not_there_is_no_fault_of_the_model(child: Child):
    failed = outcome(child, 1, do="chat")
    assert isinstance(failed, ErrorInfo)
    assert failed.type == "InfrastructureError"
    assert "the run's gateway at 127.0.0.1:9 cannot be asked" in failed.message


@every_backend
def test_a_rollout_is_cancelled_while_it_waits_for_the_model(child: Child, gateway: Gateway):
    child.play(1, gateway.address(), do="chat", messages=[{"role": "user", "content": "hang"}])
    assert gateway.hung.acquire(timeout=60)
    child.say(Abort(1))
    assert child.hear() == Aborted(1)
    assert gateway.gone.acquire(timeout=60), "the request is still under way"
    child.say(Abort(1))  # of one that is answered: nothing
    child.say(Abort(99))
    assert outcome(child, 2, gateway.address(), do="chat").completion == "you said hello"  # type: ignore[union-attr]


@every_loop
def test_a_rollout_is_cancelled_wherever_it_waits(child: Child):
    child.play(1, do="wait")
    child.say(Abort(1))
    assert child.hear() == Aborted(1)


@every_backend
def test_a_rollout_that_goes_on_though_cancelled_is_answered_at_its_end(child: Child, gateway: Gateway):
    child.play(1, gateway.address(), do="swallow")
    if child.name == "OnMain":
        assert gateway.hung.acquire(timeout=60)
    child.play(2, do="fine")
    if child.name != "OnMain":
        assert child.hear_a(Played).rollout == 2
    child.say(Abort(1))
    if child.name == "OnMain":
        assert child.hear() == Aborted(1)
        assert "swallowed RolloutAborted" in child.printed()
        assert child.hear_a(Played).rollout == 2
    else:
        answer = child.hear()
        assert answer in (Played(1, Rollout("swallowed", 1.0)), Aborted(1))


@pytest.mark.parametrize("child", ["OnMain"], indirect=True)
def test_a_sync_rollout_that_asks_again_whatever_happens_ends_when_cancelled(child: Child, gateway: Gateway):
    printed = child.printed().count("printed by the environment")
    child.play(1, gateway.address(), do="again and again")
    assert gateway.hung.acquire(timeout=60)
    child.play(2, gateway.address(), do="print")
    child.say(Abort(2))  # before its turn comes
    child.say(Abort(1))
    assert child.hear() == Aborted(1)
    assert child.hear() == Aborted(2)
    assert len(gateway.asked) == 1
    assert child.printed().count("printed by the environment") == printed


@pytest.mark.parametrize("child", ["OnMain"], indirect=True)
def test_a_sync_rollout_is_played_in_the_main_thread(child: Child):
    assert outcome(child, 1, do="thread") == Rollout(True, 1.0)


@every_loop
def test_several_are_played_at_once(child: Child, gateway: Gateway):
    for rollout in range(20):
        child.play(rollout, gateway.address(), do="chat", messages=[{"role": "user", "content": "hang"}])
    for _ in range(20):
        assert gateway.hung.acquire(timeout=60)
    assert outcome(child, 20, gateway.address(), do="chat").completion == "you said hello"  # type: ignore[union-attr]
    for rollout in range(20):
        child.say(Abort(rollout))
    answered = {child.hear_a(Aborted).rollout for _ in range(20)}
    assert answered == set(range(20))
    for _ in range(20):
        assert gateway.gone.acquire(timeout=60)


@pytest.mark.parametrize("child", ["OnAsyncio"], indirect=True)
def test_an_exit_in_a_task_of_an_asyncio_environment_is_that_tasks(child: Child):
    child.play(1, do="wait")
    failed = outcome(child, 2, do="task exits")
    assert isinstance(failed, ErrorInfo)
    assert failed.type == "SystemExit"
    failed = outcome(child, 3, do="cancelled")
    assert isinstance(failed, ErrorInfo)
    assert (failed.type, failed.message) == ("CancelledError", "cancelled, but not by the run")
    child.say(Abort(1))
    assert child.hear() == Aborted(1)


@pytest.mark.parametrize("child", ["OnTrio"], indirect=True)
def test_an_error_alone_in_a_nursery_is_told_as_itself(child: Child):
    failed = outcome(child, 1, do="nursery")
    assert isinstance(failed, ErrorInfo)
    assert (failed.type, failed.message[:22]) == ("ValueError", "in a nursery (worker_c")


@pytest.mark.parametrize("name", BACKENDS)
def test_a_stop_cancels_what_is_under_way_and_closes(name: str, tmp_path: Path, gateway: Gateway):
    with open_child(tmp_path) as child:
        child.load(name)
        child.play(1, gateway.address(), do="chat", messages=[{"role": "user", "content": "hang"}])
        assert gateway.hung.acquire(timeout=60)
        child.say(Stop())
        assert child.hear() == Aborted(1)
        assert child.wait_end() == 0
        assert gateway.gone.acquire(timeout=60)
        assert child.printed() == ""
