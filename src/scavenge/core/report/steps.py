"""A value that holds until it changes: a limit, a budget, a state. Pure.

What is kept of a bin are its lowest, its highest and its last value with their times, so that no peak is lost and every
bin ends where the next one begins, however wide bins have become. ``None`` is a value that is none: a gap.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from scavenge.core.report.grid import Grid

KEPT = 3
"""Points of a bin."""


@attrs.frozen
class Step:
    """From ``time`` on it is ``value``, because of ``why``."""

    time: float
    value: float | None
    why: str = ""


@attrs.define(eq=False)
class Steps:
    """The changes of one value."""

    most: int
    """Bins, of :data:`KEPT` points each."""
    grid: Grid[list[Step]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.grid = Grid(list, _joined, self.most)

    def __bool__(self) -> bool:
        return bool(self.grid.cells)

    def add(self, step: Step) -> None:
        """Take in a change. Of one bin, the last to be taken in is the one that holds on."""
        cell = self.grid.at(step.time)
        cell.append(step)
        if len(cell) > KEPT:
            cell[:] = thinned(cell)
        self.grid.settle()

    def __iter__(self) -> Iterator[Step]:
        """What is kept, in the order of time."""
        for _, cell in self.grid.in_order():
            yield from sorted(cell, key=lambda step: step.time)


def thinned(steps: list[Step]) -> list[Step]:
    """The lowest, the highest and the last of some steps, in their order."""
    values = [(step.value, place) for place, step in enumerate(steps) if step.value is not None]
    kept = {len(steps) - 1}
    if values:
        kept |= {min(values)[1], max(values, key=lambda value: value[0])[1]}
    return [steps[place] for place in sorted(kept)]


def _joined(left: list[Step], right: list[Step], width_s: float) -> list[Step]:
    steps = left + right
    return thinned(steps) if len(steps) > KEPT else steps
