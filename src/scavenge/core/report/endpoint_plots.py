"""The plots of endpoints and of what bounds them: limits, sessions, states. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from scavenge.core.figures import precise_duration
from scavenge.core.report.drawing import (
    GREY,
    HIGH_PX,
    LOW_PX,
    Figure,
    Plot,
    View,
    colour,
    layout,
    line,
    ms,
    plain,
    second_axis,
)
from scavenge.core.report.endpoints import GONE, STATES, EndpointStory
from scavenge.core.report.history import History
from scavenge.core.report.plots import load_points
from scavenge.core.report.pools import PoolStory
from scavenge.core.report.steps import Step, Steps

ENDPOINTS_SHOWN = 12
"""Of one pool, in the plot of limits."""
POOLS_SHOWN = 12
BANDS_SHOWN = 40
STATE_COLOURS = (
    "#3a9a4f", "#9ccc65", "#e6c229", "#5f9ed1", "#90a4ae", "#8e6bbf", "#d1495b", "rgba(0,0,0,0)", "#9c6b4e",
)  # fmt: skip
ROW_PX = 20
_THIN = {"width": 1, "dash": "dot"}


def limits(history: History, view: View) -> Iterator[Plot]:
    """A plot a pool: what the gates allowed, and what was in flight."""
    with_limits = [pool for pool in history.pools if pool.limits]
    for place, pool in enumerate(with_limits[:POOLS_SHOWN]):
        several = f" of {pool.name}" if len(with_limits) > 1 else ""
        shown = [one for one in history.endpoints.of_pool(pool.name) if one.limits]
        others = len(shown) - ENDPOINTS_SHOWN + history.endpoints.forgotten[pool.name]
        caption = (
            "What the gate of each endpoint allowed (bold), and the requests that it had in flight (dotted);"
            " a line ends where its endpoint is no longer listed."
        )
        if others > 0:
            caption += f" Endpoints with fewer tokens that are left out: {others}."
        if place == POOLS_SHOWN - 1 and len(with_limits) > POOLS_SHOWN:
            caption += f" Pools that are left out: {len(with_limits) - POOLS_SHOWN}."
        yield Plot(f"limits-{place}", f"Limits{several}", caption, _limits(pool, shown, view))


def _limits(pool: PoolStory, stories: list[EndpointStory], view: View) -> Figure:
    lines = []
    for place, story in enumerate(stories[:ENDPOINTS_SHOWN]):
        group = {"legendgroup": str(place)}
        lines.append(_steps(story.url, story.limits, view, colour(place), **group))
        flight = load_points(story.load, view)
        if flight:
            more = {**group, "showlegend": False, "line": _THIN}
            lines.append(line(f"in flight at {story.url}", flight, colour(place), **more))
    axes: dict[str, object] = {}
    if len(stories) > 1:
        group = {"legendgroup": "sum", "yaxis": "y2"}
        lines.append(_steps("sum of all limits (right)", pool.limits, view, GREY, **group))
        more = {**group, "showlegend": False, "line": _THIN}
        lines.append(line("in flight in all (right)", load_points(pool.load, view), GREY, **more))
        axes["yaxis2"] = second_axis("requests, all endpoints")
    return {"data": lines, "layout": layout(view, "requests", HIGH_PX, **axes)}


def _steps(name: str, steps: Steps, view: View, hue: str, **more: object) -> Figure:
    """A line of what holds until it changes; hovering shows why it did. It goes on to the end of what is shown."""
    points = list(steps)
    if points[-1].time < view.end and points[-1].value is not None:
        points.append(Step(view.end, points[-1].value, points[-1].why))
    trace = line(name, [(point.time, point.value) for point in points], hue, **more)
    reasons = [plain(point.why) for point in points]
    return trace | {"customdata": reasons, "hovertemplate": "%{x}: %{y} %{customdata}"}


def sessions(history: History, view: View) -> Iterator[Plot]:
    """How many sessions were live, and what bounded them."""
    found = [pool for pool in history.pools if pool.most_live]
    lines: list[Figure] = []
    axes: dict[str, object] = {}
    for place, pool in enumerate(found):
        lines.append(_steps(f"{pool.name}: live", pool.live, view, colour(place)))
        if pool.session_limits:
            dashed = {"line": {"dash": "dash"}}
            lines.append(_steps(f"{pool.name}: limit", pool.session_limits, view, colour(place), **dashed))
        if pool.budgets:
            dotted = {"line": {"dash": "dot"}, "yaxis": "y2"}
            axes["yaxis2"] = second_axis("tokens of context")
            lines.append(_steps(f"{pool.name}: budget (right)", pool.budgets, view, colour(place), **dotted))
    if not lines:
        return
    figure = {"data": lines, "layout": layout(view, "sessions", LOW_PX, **axes)}
    caption = (
        "Sessions that had a place, as of each move of their gate, and what it allowed: so many of them, or contexts of"
        " so many tokens together."
    )
    yield Plot("sessions", "Sessions", caption, figure)


def states(history: History, view: View) -> Iterator[Plot]:
    """A band an endpoint, in the colour of its state."""
    known = [story for story in history.endpoints if story.states]
    stories = sorted(known, key=lambda story: (-story.changes, story.place))
    shown = sorted(stories[:BANDS_SHOWN], key=lambda story: (story.pool, story.place))
    if not shown:
        return
    several = len({story.pool for story in shown}) > 1
    names = [f"{story.pool}: {story.url}" if several else story.url for story in shown]
    others = len(stories) - len(shown) + history.endpoints.forgotten.total()
    caption = "The state of each endpoint; where nothing is drawn it was not listed."
    if others:
        caption = f"{caption} These are the {len(shown)} whose state changed most; left out: {others}."
    figure = {"data": _bands(shown, view), "layout": _band_layout(names, view)}
    yield Plot("states", "Endpoints", caption, figure)


def _band_layout(names: list[str], view: View) -> Figure:
    rows = {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": [plain(name, 44) for name in names],
        "range": [len(names) - 0.5, -0.5],
        "automargin": True,
        "zeroline": False,
        "showgrid": False,
    }
    height = 110 + ROW_PX * len(names)
    legend = {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0}
    return layout(view, "", height, barmode="overlay", yaxis=rows, legend=legend)


def _bands(stories: list[EndpointStory], view: View) -> list[Figure]:
    """The bars of each state that there was, those of one state together, as the legend has them."""
    pieces: dict[int, list[tuple[int, Step, float]]] = {}
    for row, story in enumerate(stories):
        steps = list(story.states)
        for place, step in enumerate(steps):
            end = steps[place + 1].time if place + 1 < len(steps) else max(view.end, step.time)
            if end > step.time and step.value is not None:
                pieces.setdefault(int(step.value), []).append((row, step, end))
    return [_band(STATES[state], pieces[state]) for state in sorted(pieces) if STATES[state] != GONE]


def _band(state: str, pieces: list[tuple[int, Step, float]]) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "width": 0.75,  # else it depends on how many rows have the state
        "name": state,
        "y": [row for row, _, _ in pieces],
        "base": [ms(step.time) for _, step, _ in pieces],
        "x": [ms(end - step.time) for _, step, end in pieces],
        "marker": {"color": STATE_COLOURS[STATES.index(state)], "line": {"width": 0}},
        "customdata": [f"{precise_duration(end - step.time)}: {plain(step.why, 120)}" for _, step, end in pieces],
        "hovertemplate": "%{base|%H:%M:%S}, for %{customdata}",
    }
