"""Sums over time: how many, how much in each bin; and what was under way at once. Pure.

What lasts (a request, the tokens it brings) is kept as a step up where it begins and a step down where it ends, and in
a bin as the sum of its steps and of each step times its place in the bin. From these two sums the mean of a bin follows
exactly, however wide it has become, and a request costs the same whether it takes a moment or a day.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from scavenge.core.report.grid import Grid

Row = list[float]


@attrs.define(eq=False)
class Bins:
    """Sums in columns: ``add`` adds an amount to one of them in the bin of a moment."""

    columns: int
    most: int
    grid: Grid[Row] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.grid = Grid(lambda: [0.0] * self.columns, _added, self.most)

    def add(self, time: float, column: int, amount: float = 1.0) -> None:
        """Add an amount."""
        self.grid.at(time)[column] += amount
        self.grid.settle()

    def add_row(self, time: float, row: Row) -> None:
        """Add to every column."""
        cell = self.grid.at(time)
        for column, amount in enumerate(row):
            cell[column] += amount
        self.grid.settle()

    def totals(self) -> Row:
        """The sum of each column."""
        return [sum(cell[column] for cell in self.grid.cells.values()) for column in range(self.columns)]

    def cumulative(self) -> Iterator[tuple[float, Row]]:
        """The end of each bin, and what there was in each column until then."""
        sums = [0.0] * self.columns
        for begin, cell in self.grid.in_order():
            sums = _added(sums, cell, 0.0)
            yield begin + self.grid.width_s, sums


@attrs.define(eq=False)
class Load:
    """How much there is at once of something that lasts."""

    most: int
    grid: Grid[Row] = attrs.field(init=False)
    """Cells: the sum of the steps, and the sum of each step times its distance in seconds from the bin's beginning."""

    def __attrs_post_init__(self) -> None:
        self.grid = Grid(lambda: [0.0, 0.0], _joined, self.most)

    def __bool__(self) -> bool:
        return bool(self.grid.cells)

    def add(self, begin: float, end: float, height: float = 1.0) -> None:
        """There is ``height`` more of it from ``begin`` to ``end``."""
        self._step(begin, height)
        self._step(end, -height)
        self.grid.settle()

    def _step(self, time: float, height: float) -> None:
        cell = self.grid.at(time)
        cell[0] += height
        cell[1] += height * (time % self.grid.width_s)

    def means(self) -> Iterator[tuple[float, float]]:
        """When each mean begins to hold, and the mean; the last one is what is left at the end.

        A bin without a step is not listed of itself: the level from the end of the bin before it holds for all of them.
        """
        level, width_s = 0.0, self.grid.width_s
        for index in sorted(self.grid.cells):
            steps, weighted = self.grid.cells[index]
            yield index * width_s, level + steps - weighted / width_s
            level += steps
            if index + 1 not in self.grid.cells:
                yield (index + 1) * width_s, level


def _added(left: Row, right: Row, width_s: float) -> Row:
    return [one + other for one, other in zip(left, right, strict=True)]


def _joined(left: Row, right: Row, width_s: float) -> Row:
    return [left[0] + right[0], left[1] + right[1] + right[0] * width_s]
