"""Runs the script of a simulated fleet: each step at its time, to the server or to the listing that it is about.

It waits for the steps' times and nothing else. What a fault does is decided by :mod:`scavenge.testing.host` and
:mod:`scavenge.testing.lister`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import trio

from scavenge.testing import faults
from scavenge.testing.grammar import FLEET
from scavenge.testing.lister import Lister
from scavenge.testing.node import Node


async def run_script(
    steps: Sequence[faults.Step], nodes: Mapping[str, Node], lister: Lister, on_step: Callable[[faults.Step], None]
) -> None:
    """Let the faults of a script happen, its seconds counted from now.

    ``on_step`` is called after each, and, with a ``heal`` of the fleet, when a fault of the listing ends by itself.
    """
    start_at = trio.current_time()
    await trio.lowlevel.checkpoint()
    for step in _with_ends(steps):
        await trio.sleep_until(start_at + step.at_s)
        _apply(step, nodes, lister)
        on_step(step)


def _apply(step: faults.Step, nodes: Mapping[str, Node], lister: Lister) -> None:
    match step.fault:
        case faults.Outage() | faults.Empty() | faults.Hang():
            lister.apply(step.fault)
        case faults.Heal() if step.server == FLEET:
            lister.apply(step.fault)
        case _:
            nodes[step.server].apply(step.fault)


def _with_ends(steps: Sequence[faults.Step]) -> Iterator[faults.Step]:
    """The steps, with an end for each fault of the listing that no later one replaces before."""
    end: faults.Step | None = None
    for step in steps:
        if end is not None and end.at_s <= step.at_s:
            yield end
            end = None
        if step.server == FLEET:
            for_s = None if isinstance(step.fault, faults.Heal) else getattr(step.fault, "for_s", None)
            end = None if for_s is None else faults.Step(step.at_s + for_s, FLEET, faults.Heal())
        yield step
    if end is not None:
        yield end
