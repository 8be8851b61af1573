"""The plots of a run as a whole: rollouts, pools, attempts, durations. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from scavenge.core.figures import precise_duration
from scavenge.core.report.drawing import GREY, Plot, View, bars, broken, colour, layout, line
from scavenge.core.report.history import OTHER_OUTCOME, OUTCOMES, History
from scavenge.core.report.pools import ERROR, OK, PARTS, EvalStory
from scavenge.core.report.sums import Load
from scavenge.core.summary import Table
from scavenge.types import Ok

OUTCOME_COLOURS = ("#3a9a4f", "#e08214", "#d4b106", "#d1495b", "#8e6bbf", "#9c6b4e", "#3b82c4", GREY)
QUANTILES = (0.1, 0.5, 0.9, 0.99)


def rollouts(history: History, view: View) -> Iterator[Plot]:
    """How many rollouts had finished."""
    lines = []
    for place, story in enumerate(history.evals):
        for column, kind, dash in ((OK, "ok", "solid"), (ERROR, "error", "dot")):
            if not story.finished.totals()[column]:
                continue
            points = [(time, sums[column]) for time, sums in story.finished.cumulative()]
            begin = next(story.finished.grid.in_order())[0]
            name = f"{story.name}: {kind}"
            lines.append(line(name, broken([(begin, 0.0), *points], view), colour(place), line={"dash": dash}))
    if lines:
        caption = (
            "Rollouts that finished so far, by evaluation; one that was played again after an error counts each time."
        )
        yield Plot("rollouts", "Rollouts finished", caption, {"data": lines, "layout": layout(view, "rollouts")})


def pools(history: History, view: View) -> Iterator[Plot]:
    """What was in flight and what flowed, by pool."""
    flights = [(pool.name, pool.load) for pool in history.pools]
    caption = "Requests that a server had at once, the mean of each moment; those that were cancelled are not in it."
    yield from _loads("in-flight", "Requests in flight", caption, "requests", flights, view)
    flows = [(pool.name, pool.flow) for pool in history.pools]
    caption = "Tokens of replies a second; those of one reply are spread evenly over the time of its attempt."
    yield from _loads("tokens", "Tokens per second", caption, "tokens/s", flows, view)


def _loads(key: str, title: str, caption: str, unit: str, loads: list[tuple[str, Load]], view: View) -> Iterator[Plot]:
    found = [(name, load) for name, load in loads if load]
    lines = [line(name, load_points(load, view), colour(place)) for place, (name, load) in enumerate(found)]
    if lines:
        yield Plot(key, title, caption, {"data": lines, "layout": layout(view, unit)})


def load_points(load: Load, view: View) -> list[tuple[float, float | None]]:
    """The line of something that lasts."""
    return broken(((time, max(0.0, mean)) for time, mean in load.means()), view)


def attempts(history: History, view: View) -> Iterator[Plot]:
    """How attempts ended, those that were ok only where all were."""
    totals = history.outcomes.totals()
    ok = OUTCOMES.index(Ok.name)
    failed = sum(totals) > totals[ok]
    grid = history.outcomes.grid.coarsened(view.bar_s)
    shown = []
    for column in range(OTHER_OUTCOME + 1):
        heights = [(begin, cell[column]) for begin, cell in grid.in_order() if cell[column]]
        if heights and (column != ok or not failed):
            name = "other" if column == OTHER_OUTCOME else OUTCOMES[column]
            shown.append(bars(f"{name} ({totals[column]:.0f})", heights, grid.width_s, OUTCOME_COLOURS[column]))
    if not shown:
        return
    what = f"Attempts that were not ok, beside {totals[ok]:.0f} that were" if failed else "Attempts, all of them ok"
    caption = f"{what}; a bar stands for {precise_duration(grid.width_s)}."
    figure = {"data": shown, "layout": layout(view, "attempts", barmode="stack")}
    yield Plot("attempts", "Attempts by outcome", caption, figure)


def durations(history: History, view: View) -> Iterator[Plot]:
    """What rollouts took, and what that was made up of."""
    grid = history.made_of.grid.coarsened(view.bar_s)
    cells = [(begin, cell) for begin, cell in grid.in_order() if cell[0]]
    if not cells:
        return
    queued = [(begin, cell[1] / cell[0]) for begin, cell in cells]
    model = [(begin, cell[2] / cell[0]) for begin, cell in cells]
    rest = [(begin, max(0.0, cell[3] - cell[1] - cell[2]) / cell[0]) for begin, cell in cells]
    parts = (("waiting for slots", queued), ("with the model", model), ("in the environment", rest))
    traces = [bars(name, heights, grid.width_s, colour(place)) for place, (name, heights) in enumerate(parts)]
    caption = (
        "What the time of a rollout was made up of, in the mean over those that finished within"
        f" {precise_duration(grid.width_s)}; calls of one rollout that overlap count one by one."
    )
    figure = {"data": traces, "layout": layout(view, "seconds", barmode="stack")}
    yield Plot("durations", "How long rollouts took", caption, figure, _quantiles(list(history.evals)))


def _quantiles(stories: list[EvalStory]) -> Table:
    head = ("eval", "time", "mean", *(f"{share:.0%}" for share in QUANTILES), "longest")
    names = dict(zip(PARTS, ("waiting for slots", "with the model", "in all"), strict=True))
    rows = []
    for story in stories:
        for part, spread in story.spreads.items():
            figures = (
                spread.total_s / spread.count,
                *(spread.quantile(share) for share in QUANTILES),
                spread.longest_s,
            )
            rows.append((story.name, names[part], *(precise_duration(figure) for figure in figures)))
    return Table("durations: so many took no longer", head, tuple(rows))
