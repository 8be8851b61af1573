"""A run over a fleet in doubt, cancelled at every step: nothing is left of it."""

from __future__ import annotations

import attrs
import pytest
import trio
from cable import Cable
from fleet_kit import Kit, Questions, open_kit
from test_network_lost import slow
from trio.testing import MockClock

from scavenge.core.health_settings import HealthSettings
from scavenge.runtime.run import RunLimits
from scavenge.testing.fleet import SimulatedFleet

MOST_STEPS = 20_000
STRIDE = 67
"""Steps between two moments at which a run is cut short; each part of the test begins elsewhere."""


@attrs.define
class Story:
    """What a run left behind."""

    kit: Kit | None = None
    fleet: SimulatedFleet | None = None

    async def use(self) -> None:
        self.kit = None
        self.fleet = SimulatedFleet(slow("ep1", "ep2", "ep3"), "t=0 kill ep3; t=13 leave ep2")
        cable = Cable(self.fleet)
        settings = {"transport": cable, "health": HealthSettings(interval=2.0), "limits": RunLimits(stall_timeout=0)}
        async with open_kit(self.fleet, limit=2, **settings) as kit:
            self.kit = kit
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.pull, cable)
                await kit.play(kit.job(Questions(4), idle_timeout=15.0))

    async def pull(self, cable: Cable) -> None:
        await trio.sleep(5)
        cable.pull()
        await trio.sleep(25)
        cable.plug()

    def check(self) -> None:
        if self.kit is None:
            return
        pool = self.kit.pool
        assert not pool.dispatcher.held()
        assert not pool.dispatcher.ledger.waiting
        assert sum(pool.dispatcher.ledger.lent(url) for url in pool.members) == 0
        assert self.fleet is not None
        truth = self.fleet.truth.values()
        assert sum(one.started for one in truth) == sum(one.finished + one.cancelled + one.lost for one in truth)
        keys = self.kit.lines.keys
        assert len(keys) == len(set(keys))


class Knife(trio.abc.Instrument):
    """Cancels ``scope`` after so many steps of any task."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.scope = trio.CancelScope()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


async def cut_short(story: Story, knife: Knife) -> None:
    with knife.scope:
        await story.use()


@pytest.mark.parametrize("offset", range(3))
def test_a_run_in_doubt_that_is_cancelled_anywhere_leaves_nothing(offset):
    story = Story()
    for steps in range(1 + offset * STRIDE // 3, MOST_STEPS, STRIDE):
        knife = Knife(steps)
        trio.run(cut_short, story, knife, instruments=[knife], clock=MockClock(autojump_threshold=0))
        story.check()
        if knife.left > 0:
            break
    assert knife.left > 0
    assert story.kit is not None
    assert len(story.kit.lines.keys) == 4
