"""A worker whose environment takes it apart: what it must not answer, and that it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from worker_child_kit import Child, open_child, open_gateway

from scavenge.core.worker_messages import Broken, Played, Stop

BACKENDS = ["HostileTrio", "HostileAsyncio"]


@pytest.fixture
def child(tmp_path: Path):
    with open_child(tmp_path) as started:
        yield started


def load(child: Child, name: str, env_args: str = ""):
    return child.load(f"worker_hostile_envs:{name}", env_args)


@pytest.mark.parametrize("name", BACKENDS)
def test_rollouts_of_an_event_loop_that_breaks_down_are_not_answered_so_that_they_are_played_elsewhere(
    child: Child, name: str
):
    load(child, name)
    child.play(1, waits=True)
    child.play(2, deed="break the loop", waits=True)
    assert child.wait_end() != 0


@pytest.mark.parametrize("name", BACKENDS)
def test_a_worker_whose_descriptors_are_closed_ends(child: Child, name: str):
    load(child, name)
    child.play(1, deed="close", waits=True)
    assert child.wait_end() != 0


@pytest.mark.parametrize("name", BACKENDS)
def test_a_copy_that_an_environment_forked_and_forgot_ends_instead_of_playing_on(child: Child, name: str):
    load(child, name)
    for rollout in range(5):
        child.play(rollout, deed="fork")
    assert [child.hear_a(Played).rollout for _ in range(5)] == list(range(5))
    child.wait_printed("was forked by the environment and did not end there")
    child.say(Stop())
    assert child.wait_end() == 0


def test_copies_of_the_process_have_connections_of_their_own_to_the_model(child: Child):
    with open_gateway() as gateway:
        load(child, "ForkingMain")
        child.play(1, gateway.address())
        assert child.hear_a(Played).result.reward == 1.0
        assert len(gateway.asked) == 31


@pytest.mark.parametrize(
    ("identity", "why"),
    [("list", "TypeError: identity() returned list, not a dict"), ("long", "FrameTooLong: ready: 70000")],
)
def test_what_an_environment_says_of_itself_is_refused_by_its_reason(child: Child, identity: str, why: str):
    answer = load(child, "Hostile", f'identity = "{identity}"')
    assert isinstance(answer, Broken)
    assert why in answer.message
    assert child.wait_end() == 1
