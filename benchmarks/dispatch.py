"""What acquiring and releasing slots costs: CPU microseconds a pair, over waiters, endpoints and shares of groups.

    python benchmarks/dispatch.py [--pairs N]

A crew of tasks acquires and releases in turn while all slots are taken and as many asks wait as the case says, so each
release hands its slots to the head of the queue. The ratio to the first case of the same run is what a slower machine
does not move.
"""

from __future__ import annotations

import argparse
import time
from collections import deque

import trio

from scavenge.core.ledger import Ask, SlotLedger
from scavenge.runtime.dispatcher import Dispatcher, HeldLease
from scavenge.types import Url

SLOTS = 8
BATCH = 50
"""Releases between two turns of the scheduler."""
CASES = [
    # waiters, endpoints, every which ask is for a group of 4, every which ask avoids an endpoint (0: none)
    (10, 1, 0, 0),
    (1_000, 1, 0, 0),
    (10_000, 1, 0, 0),
    (10, 1_000, 0, 0),
    (1_000, 1_000, 0, 0),
    (10_000, 1_000, 0, 0),
    (10_000, 1_000, 10, 0),
    (10_000, 1_000, 0, 1),
    (10_000, 1_000, 10, 1),
]


def endpoint(number: int) -> Url:
    return Url(f"http://h{number}/v1")


async def pairs_us(waiters: int, endpoints: int, group_every: int, avoid_every: int, pairs: int) -> float:
    """CPU microseconds for one acquire and release, the task's start and end included."""
    ledger = SlotLedger()
    for number in range(endpoints):
        ledger.join(endpoint(number), SLOTS, SLOTS)
    dispatcher = Dispatcher(ledger)
    held: deque[HeldLease] = deque()

    async def come(number: int) -> None:
        slots = 4 if group_every and number % group_every == 0 else 1
        avoid = frozenset([endpoint(number % endpoints)]) if avoid_every and number % avoid_every == 0 else frozenset()
        held.append(await dispatcher.acquire(Ask((number,), slots, avoid)))

    async with trio.open_nursery() as nursery:
        came = 0
        while ledger.waiting < waiters:
            nursery.start_soon(come, came)
            came += 1
            if came % BATCH == 0 or ledger.waiting + BATCH > waiters:
                await trio.lowlevel.checkpoint()
        done, started_s = 0, time.process_time()
        while done < pairs:
            for _ in range(min(BATCH, waiters, len(held))):
                dispatcher.release(held.popleft())
                nursery.start_soon(come, came)
                came += 1
                done += 1
            await trio.lowlevel.checkpoint()
        spent_s = time.process_time() - started_s
        nursery.cancel_scope.cancel()
    return 1e6 * spent_s / done


async def task_us(tasks: int) -> float:
    """CPU microseconds for starting and ending a task that waits once: the part that is not ours."""
    async with trio.open_nursery() as nursery:
        started_s = time.process_time()
        for _ in range(tasks // BATCH):
            for _ in range(BATCH):
                nursery.start_soon(trio.lowlevel.checkpoint)
            await trio.lowlevel.checkpoint()
    return 1e6 * (time.process_time() - started_s) / tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=20_000, help="pairs to measure a case (default %(default)s)")
    arguments = parser.parse_args()
    bare = trio.run(task_us, arguments.pairs)
    print(f"a bare task: {bare:.1f} us; it is taken off below")
    print(f"{'waiters':>8} {'endpoints':>9} {'groups':>7} {'avoiding':>8} {'us a pair':>10} {'ratio':>6}")
    first = 0.0
    for waiters, endpoints, groups, avoiding in CASES:
        cost = trio.run(pairs_us, waiters, endpoints, groups, avoiding, arguments.pairs) - bare
        first = first or cost
        share = f"1/{groups}" if groups else "none"
        shy = f"1/{avoiding}" if avoiding else "none"
        print(f"{waiters:>8} {endpoints:>9} {share:>7} {shy:>8} {cost:>10.1f} {cost / first:>6.2f}")


if __name__ == "__main__":
    main()
