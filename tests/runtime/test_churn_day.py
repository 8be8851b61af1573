"""Hours of churn over a simulated fleet: whatever the servers do, no sample notices, and nothing is lent twice or lost.

``benchmarks/churn.py`` plays the same for a whole day and a thousand endpoints.
"""

from __future__ import annotations

import pytest
from churn_kit import Day, play_day
from fleet_kit import Questions, open_kit

from scavenge.testing import ChurnRates, ChurnSettings, EngineSettings, SimulatedFleet, SimulatedServer

FLEET = ChurnSettings(servers=150, duration_s=2 * 3600.0, token_s=5.0)
"""A token stands for some hundreds here: a reply of the median length takes five minutes on the fastest server."""
WILD = ChurnRates(kill=1, freeze=0.5, black_hole=0.5, flap=0.3, resize=0.5, leave=0.5, preempt=1, outage=2)


@pytest.mark.parametrize("random_seed", [1, 2, 3])
async def test_hours_of_churn_cost_no_sample(random_seed, autojump_clock, record_property):
    day = Day(random_seed, FLEET, work_share=0.3, poll_interval_s=120.0, probe_interval_s=300.0)
    report = await play_day(day)
    print(f"seed={random_seed} {report}")
    record_property("churn", str(report))
    assert report.errors == 0
    assert report.outcomes["ok"] == report.samples
    assert report.outcomes["failed"] < 0.03 * report.outcomes.total()
    assert report.revoked > 0
    assert 1 <= report.most_ratio < 3
    assert 1 <= report.ratio < 15


@pytest.mark.parametrize("capped", [True, False])
async def test_a_small_fleet_that_goes_wild_still_ends(capped, autojump_clock, record_property):
    churn = ChurnSettings(servers=12, duration_s=2 * 3600.0, token_s=2.0, rates=WILD, capped=capped)
    report = await play_day(Day(4, churn, work_share=0.4))
    record_property("churn", str(report))
    assert report.outcomes["ok"] + report.errors == report.samples


async def test_a_server_that_flaps_beside_long_generations_ends_no_run(autojump_clock):
    slow = EngineSettings(token_s=60.0, load_s=0.0, slots=2)
    servers = [SimulatedServer(name, slow, max_concurrent=2) for name in ("ep1", "ep2", "ep3", "flapping")]
    script = "; ".join(f"t={at_s} kill flapping; t={at_s + 5} restart flapping" for at_s in range(30, 2400, 20))
    async with open_kit(SimulatedFleet(servers, script)) as kit:
        await kit.play(kit.job(Questions(12)))
        assert kit.run.stalled == []
        assert sorted(key[1] for key in kit.lines.keys) == sorted(str(number) for number in range(12))
