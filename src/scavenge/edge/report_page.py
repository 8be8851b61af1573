"""A report as one HTML page that needs nothing else: plotly draws the figures, its script is in the page.

plotly is the ``report`` extra, imported when first used. All text that is not in a figure is escaped here; figures come
with their names escaped, and plotly writes them as JSON without ``<``. The page forbids itself to load anything.

Invariant: equal reports make equal pages, with the same plotly.
"""

from __future__ import annotations

import html
import importlib
import importlib.util
from collections.abc import Iterable, Iterator

from scavenge.core.naming import one_line
from scavenge.core.report.contents import Report
from scavenge.core.report.drawing import Plot
from scavenge.core.summary import Table
from scavenge.errors import UsageError

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d"]],
}
"""How plotly shows figures. Its own choice of buttons has one that sends the figure to a service of its makers."""
STYLE = """
:root { color-scheme: light dark; --soft: color-mix(in srgb, currentColor 60%, transparent); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2.5rem 0 0; }
p { margin: 0.3rem 0; } .caption { color: var(--soft); max-width: 50rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0.3rem 0; }
th, td { text-align: left; padding: 0.15rem 1.2rem 0.15rem 0; vertical-align: top; }
th { color: var(--soft); font-weight: 400; } tr { border-bottom: 1px solid rgba(128, 128, 128, 0.25); }
td { white-space: nowrap; } td:last-child { white-space: normal; }
@media print { section { break-inside: avoid; } .modebar { display: none; } }
"""


def need_plotly() -> None:
    """Raise :class:`UsageError` that says how to get plotly, where it is missing."""
    if importlib.util.find_spec("plotly") is None:
        raise UsageError("a report needs the package plotly: pip install 'scavenge[report]'")


def render(report: Report) -> bytes:
    """The page. Takes a second or two: plotly checks every figure."""
    script = importlib.import_module("plotly.offline").get_plotlyjs()
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(report.name)}</title><style>{STYLE}</style>",
        f"<script>{script}</script></head><body>",
        f"<h1>{_text(report.name)}</h1>",
        *(f"<p>{_text(fact)}</p>" for fact in report.facts),
        *(_table(table) for table in report.tables),
        *(part for plot in report.plots for part in _plot(plot)),
        *([f"<h2>Moments</h2>{_table(report.moments)}"] if report.moments.rows else []),
        "</body></html>\n",
    ]
    return "\n".join(parts).encode()


def _plot(plot: Plot) -> Iterator[str]:
    io = importlib.import_module("plotly.io")
    yield f'<section id="{plot.key}"><h2>{_text(plot.title)}</h2><p class="caption">{_text(plot.caption)}</p>'
    options = {"include_plotlyjs": False, "full_html": False, "validate": True, "div_id": f"plot-{plot.key}"}
    yield io.to_html(plot.figure, CONFIG, **options)
    if plot.table is not None:
        yield _table(plot.table)
    yield "</section>"


def _table(table: Table) -> str:
    head = _row("th", table.head)
    rows = "\n".join(_row("td", row) for row in table.rows)
    caption = f"<caption>{_text(table.title)}</caption>"
    return f'<div class="scroll"><table>{caption}<thead>{head}</thead><tbody>\n{rows}\n</tbody></table></div>'


def _row(kind: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{kind}>{_text(cell)}</{kind}>' for cell in cells)}</tr>"


def _text(text: str) -> str:
    return html.escape(one_line(text, 1000))
