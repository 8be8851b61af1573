"""What all plots have in common: axes, lines, bars, the colours, and text that is only text. Pure.

A figure is plain data as plotly.js wants it; nothing here needs plotly. Its labels know a little HTML, so every name
and text from outside goes through :func:`plain`. Times are in milliseconds since 1970, which plotly shows in UTC.
Colours are ones that can be told from a white and from a black page.

Invariant: equal input makes equal figures.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import attrs

from scavenge.core.naming import one_line
from scavenge.core.summary import Table

Figure: TypeAlias = "dict[str, Any]"
Points: TypeAlias = "list[tuple[float, float | None]]"

COLOURS = (
    "#3b82c4", "#e08214", "#3a9a4f", "#d1495b", "#8e6bbf", "#9c6b4e",
    "#d878b8", "#7f8c2a", "#17a2b8", "#b8860b", "#5f7fbf", "#c0562f",
)  # fmt: skip
GREY = "#808080"
_GRID = "rgba(128,128,128,0.25)"
NAME_SHOWN = 60
LOW_PX, HIGH_PX = 340, 420
"""How high plots are, those with few lines and those with many."""
BARS, NARROWEST_S = 120, 0.5
"""Bars side by side, in the whole of a plot."""


@attrs.frozen
class Plot:
    """A plot: ``key`` is unique in a report, the caption says what is seen, the table (if any) belongs to it."""

    key: str
    title: str
    caption: str
    figure: Figure
    table: Table | None = None


@attrs.frozen
class View:
    """The stretch of time that is shown at first, and the times when there was no run."""

    begin: float
    end: float
    gaps: tuple[tuple[float, float], ...] = ()

    @property
    def bar_s(self) -> float:
        """How wide a bar is at least."""
        return max(NARROWEST_S, (self.end - self.begin) / BARS)


def plain(text: str, most: int = NAME_SHOWN) -> str:
    """A text from outside as a label: on one line, cut in the middle, with no markup, fit for UTF-8."""
    line = one_line(text)
    if len(line) > most:
        line = f"{line[: most // 2 - 1]}…{line[-(most // 2) :]}"
    return html.escape(line, quote=False)


def colour(place: int) -> str:
    """The colour of the n-th thing."""
    return COLOURS[place % len(COLOURS)]


def ms(time: float) -> int:
    """A moment as plotly takes it."""
    return round(time * 1000)


def utc(time: float) -> str:
    """A moment to be read."""
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S}"


def broken(points: Iterable[tuple[float, float | None]], view: View) -> Points:
    """The points of a line, with an end before every stretch in which there was no run, and a hole in it."""
    found: Points = []
    gaps = sorted(view.gaps, reverse=True)
    for time, value in points:
        while gaps and time > sum(gaps[-1]) / 2:
            begin, _ = gaps.pop()
            if found and found[-1][1] is not None:
                last = max(begin, found[-1][0])
                found += [(last, found[-1][1]), (last, None)]
        found.append((time, value))
    return found


def line(name: str, points: Points, hue: str, **more: object) -> Figure:
    """A line that keeps each value until the next one. ``more`` goes into the trace as it is."""
    style = {"color": hue, "width": 2, "shape": "hv", **more.pop("line", {})}  # type: ignore[dict-item]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(name),
        "x": [ms(time) for time, _ in points],
        "y": [None if value is None else rounded(value) for _, value in points],
        "line": style,
        **more,
    }


def bars(name: str, heights: Sequence[tuple[float, float]], width_s: float, hue: str) -> Figure:
    """Bars over the bins that begin at these times."""
    return {
        "type": "bar",
        "name": plain(name),
        "x": [ms(begin + width_s / 2) for begin, _ in heights],
        "y": [rounded(height) for _, height in heights],
        "width": ms(width_s),
        "marker": {"color": hue, "line": {"width": 0}},
    }


def rounded(value: float) -> float:
    """A value as it is written: what adding and taking away leaves below a thousandth is nothing."""
    return round(value, 3) + 0.0


def second_axis(unit: str) -> Figure:
    """An axis at the right, for lines of another size or unit: the layout's ``yaxis2``."""
    place = {"overlaying": "y", "side": "right", "tickmode": "auto"}
    return {**place, "rangemode": "tozero", "showgrid": False, "zeroline": False, "title": {"text": unit}}


def layout(view: View, unit: str, height: int = LOW_PX, **more: object) -> Figure:
    """Axes over the run's time, with a unit at the side."""
    pad = 0.02 * (view.end - view.begin)
    axis = {"gridcolor": _GRID, "linecolor": _GRID, "zeroline": False}
    return {
        "template": "none",
        "height": height,
        "margin": {"l": 64, "r": 64 if "yaxis2" in more else 24, "t": 30, "b": 40},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": GREY, "family": "system-ui, sans-serif", "size": 12},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": COLOURS[0]},
        "hovermode": "closest",
        "showlegend": True,
        "legend": {"orientation": "h", "y": -0.14, "yanchor": "top", "x": 0},
        "xaxis": {**axis, "type": "date", "range": [ms(max(0.0, view.begin - pad)), ms(view.end + pad)]},
        "yaxis": {**axis, "title": {"text": unit}, "rangemode": "tozero"},
        **more,
    }
