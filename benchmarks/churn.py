"""A day of churn over a thousand simulated endpoints, on virtual time: what it costs and how near it is to the best.

    python benchmarks/churn.py [ENDPOINTS] [HOURS] [SEED ...]

Servers that differ in speed by a factor of 36 join, leave, die, freeze, fail fast, flap, shrink and are preempted, and
the source has outages. A line a seed tells the samples, the attempts by outcome, the leases that were revoked, the
makespan beside its lower bound (every slot of every usable server taken at every moment), CPU seconds and peak memory.
The run is checked at each step as in tests/runtime/test_churn_day.py, which is the same in small; the checks are part
of the CPU seconds. The ratio is what a slower machine does not move.

To keep a day short, everything that happens by the clock is slower than usual: a token takes 20 s on the fastest idle
server (it stands for some hundreds), sources are asked every 600 s and healthy servers probed every 1800 s.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import trio
from trio.testing import MockClock

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "runtime")]

from churn_kit import Day, play_day  # noqa: E402 - it lives beside the tests

from scavenge.testing import ChurnSettings  # noqa: E402

TOKEN_S = 20.0
POLL_INTERVAL_S = 600.0
PROBE_INTERVAL_S = 1800.0
WORK_SHARE = 0.4


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("endpoints", nargs="?", type=int, default=1000, help="default %(default)s")
    parser.add_argument("hours", nargs="?", type=float, default=24.0, help="of churn, default %(default)s")
    parser.add_argument("seeds", nargs="*", type=int, default=[1, 2, 3], help="default 1 2 3")
    arguments = parser.parse_args()
    churn = ChurnSettings(arguments.endpoints, 3600 * arguments.hours, token_s=TOKEN_S)
    for seed in arguments.seeds:
        day = Day(seed, churn, WORK_SHARE, POLL_INTERVAL_S, PROBE_INTERVAL_S)
        report = trio.run(play_day, day, clock=MockClock(autojump_threshold=0))
        print(f"seed={seed} {report}", flush=True)


if __name__ == "__main__":
    main()
