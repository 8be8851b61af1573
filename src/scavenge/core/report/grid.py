"""Time in bins of equal width, of which only those in which something happened are kept. Pure.

A run may last a second or a month, and be resumed a year later; what is kept of it must not grow with that. So there
are at most ``most`` bins, and when there would be more, all of them become twice as wide and neighbours become one.
Bins begin at whole multiples of their width since 1970. Nothing depends on the order in which times come, and a time
that is years off takes one bin and no more.

Invariant: every width is :data:`FINEST_S` times a power of two, so that two bins become exactly one wider one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import attrs

FINEST_S = 0.25
Cell = TypeVar("Cell")


@attrs.define(eq=False)
class Grid(Generic[Cell]):
    """The bins. ``fold`` makes one cell of those of the left and the right half of a bin, given the halves' width."""

    make: Callable[[], Cell]
    fold: Callable[[Cell, Cell, float], Cell]
    most: int
    width_s: float = FINEST_S
    cells: dict[int, Cell] = attrs.field(factory=dict)

    def at(self, time: float) -> Cell:
        """The cell of a moment, made if it is not there. Call :meth:`settle` once it has been filled."""
        index = int(time // self.width_s)
        found = self.cells.get(index)
        if found is None:
            found = self.cells[index] = self.make()
        return found

    def settle(self) -> None:
        """Keep the bound."""
        while len(self.cells) > self.most:
            self._widen()

    def _widen(self) -> None:
        wider: dict[int, Cell] = {}
        for index in {index >> 1: None for index in self.cells}:
            left, right = self.cells.get(2 * index), self.cells.get(2 * index + 1)
            wider[index] = self.fold(
                self.make() if left is None else left, self.make() if right is None else right, self.width_s
            )
        self.cells, self.width_s = wider, 2 * self.width_s

    def coarsened(self, width_s: float) -> Grid[Cell]:
        """A copy with bins at least that wide. What the grid itself has stays as it is."""
        copy = Grid(self.make, self.fold, self.most, self.width_s, dict(self.cells))
        while copy.width_s < width_s:
            copy._widen()
        return copy

    def in_order(self) -> Iterator[tuple[float, Cell]]:
        """When each bin begins, and its cell."""
        for index in sorted(self.cells):
            yield index * self.width_s, self.cells[index]
