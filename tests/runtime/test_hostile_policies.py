"""An admission policy of a plugin that raises: it ends the run, and never counts as the error of a sample."""

from __future__ import annotations

import attrs
import pytest
from fleet_kit import Questions, open_kit
from source_kit import Caught
from test_network_lost import slow

from scavenge.errors import leaves
from scavenge.testing.fleet import SimulatedFleet
from scavenge.types import Json


@attrs.define
class Breaks:
    """Raises once, when it was asked for its limit so many times."""

    times: int

    def observe(self, event: object, now: float) -> None: ...

    def limit(self, now: float) -> int:
        self.times -= 1
        if self.times == 0:
            raise ZeroDivisionError("a bug of the policy")
        return 4

    def next_wake_at(self, now: float) -> float | None:
        return None


async def error_of_a_run(times: int, lines: list[Json]) -> BaseException:
    """What a run ends with whose policy raises; *lines* are the results that it wrote."""
    caught = Caught()
    with caught:
        async with open_kit(SimulatedFleet(slow("ep1", "ep2", "ep3"))) as kit:
            kit.lines.written = lines
            next(iter(kit.pool.members.values())).gate.policy = Breaks(times)
            await kit.play(kit.job(Questions(60)))
    assert caught.error is not None
    return caught.error


@pytest.mark.parametrize("times", range(1, 30, 4))
async def test_a_policy_that_raises_once_ends_the_run_and_no_sample_is_blamed(autojump_clock, times):
    lines: list[Json] = []
    error = await error_of_a_run(times, lines)
    assert {type(leaf) for leaf in leaves(error)} == {ZeroDivisionError}
    assert all(line["status"] == "ok" for line in lines)
