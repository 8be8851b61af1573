"""The report's way in and out: reading an event log that is hostile or unfinished, and the page."""

from __future__ import annotations

import os
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import scavenge.events
from report_kit import A, attempt, began, event, finished, health, joined, limit, report, sessions
from scavenge.core.report.contents import Read, Report
from scavenge.core.report.history import TAKES
from scavenge.edge import event_lines
from scavenge.edge.event_lines import read_events
from scavenge.edge.event_log import UNWRITTEN
from scavenge.edge.report_page import POLICY, need_plotly, render
from scavenge.errors import ResultsError, UsageError

HOSTILE = "</script><script>alert(1)</script><img src=http://evil.example/x>'\"&lt;\ud800"


def log(folder: Path, content: bytes) -> Path:
    path = folder / "events.jsonl"
    path.write_bytes(content)
    return path


def read(path: Path) -> tuple[Read, list[object]]:
    found: list[object] = []
    return read_events(path, found.append), found


def test_each_line_is_handed_on_and_what_is_no_object_is_counted(tmp_path):
    path = log(tmp_path, b'{"a":1}\n\n[1]\nnonsense\n\x00\x00\n{"a":2}\n' + b'{"a":' * 5000 + b"\n")
    assert read(path) == (Read(unreadable=4), [{"a": 1}, {"a": 2}])


@pytest.mark.parametrize(
    ("tail", "torn", "more"), [(b'{"a":3', True, []), (b'{"a":3}', False, [{"a": 3}]), (b'"\xe2\x80', True, [])]
)
def test_a_last_line_that_is_not_whole_is_tolerated(tmp_path, tail, torn, more):
    assert read(log(tmp_path, b'{"a":1}\n' + tail)) == (Read(torn=torn), [{"a": 1}, *more])


def test_a_line_that_is_too_long_is_passed_over_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(event_lines, "LONGEST_BYTES", 16)
    path = log(tmp_path, b'{"a":1}\n{"b":"' + b"x" * 100 + b'"}\n{"a":2}\n{"c":"' + b"y" * 100)
    assert read(path) == (Read(unreadable=2), [{"a": 1}, {"a": 2}])


def test_what_is_written_while_it_is_read_is_left_to_the_next_report(tmp_path):
    path = log(tmp_path, b'{"a":1}\n')

    def take(line: object) -> None:
        with path.open("ab") as file:
            file.write(b'{"a":2}\n')

    assert read_events(path, take) == Read()
    assert path.read_bytes().count(b"\n") == 2


def test_what_is_no_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, says in (("pipe", "not a file"), ("absent", "No such file"), (".", "directory")):
        with pytest.raises(ResultsError, match=says):
            read_events(tmp_path / name, pytest.fail)


class Outline(HTMLParser):
    """The tags of a page, and what its elements would load."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.scripts: list[str] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [str(value) for name, value in attrs if name in ("src", "href", "onerror", "onload")]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.scripts:
            self.scripts[-1] += data


def full(name: str, title: str = "run") -> Report:
    """A report in which everything that has a name or a text has this one."""
    lines = [began(), joined(0, name), health(1, "live", name, name), limit(1, 8, name, name, name), limit(1, 9)]
    lines += [sessions(2, 3, 4, 1e5, name), attempt(3, name, pool=name), attempt(4, A, "lost"), finished(6, name)]
    lines += [event("ImageReady", 5, image=name, source=name, seconds=2.0, size_bytes=5)]
    lines += [
        event("ImageTrouble", 5, image=name, source=name, outcome=name),
        event("ImageFailed", 5, image=name, why=name),
    ]
    made = report(*lines, event("Warned", 5, message=name))
    return Report(title, (*made.facts, name), made.tables, made.plots, made.moments)


def test_every_figure_is_one_that_plotly_takes_and_the_page_loads_nothing():
    made = full("http://a/v1")
    outline = Outline(render(made))
    assert outline.loads == []
    assert POLICY.startswith("default-src 'none'")
    assert outline.tags.count("section") == len(made.plots) > 5
    assert len(outline.scripts) == 1 + len(made.plots)
    assert all("Plotly.newPlot" in script for script in outline.scripts[1:])


def test_no_button_of_a_figure_sends_it_anywhere():
    first, *figures = Outline(render(report(began(), finished(1)))).scripts
    assert "sendChartToCloud" in first or "sendDataToCloud" in first
    for script in figures:
        assert '"modeBarButtons": [["toImage", "zoom2d"' in script
        assert "Cloud" not in script


def test_names_and_texts_of_others_are_only_text():
    page, harmless = render(full(HOSTILE, HOSTILE)), render(full("x" * 40))
    assert Outline(page).tags == Outline(harmless).tags
    assert Outline(page).loads == []
    own = b"".join(part for part in page.split(b"</script>") if len(part) < 1_000_000)
    assert b"<img" not in own
    assert b"alert(1)" in own


def test_equal_reports_are_equal_pages():
    assert render(full("a")) == render(full("a"))


def test_without_plotly_the_way_to_get_it_is_told(monkeypatch):
    need_plotly()
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(UsageError, match=r"pip install 'scavenge\[report\]'"):
        need_plotly()


def test_every_event_of_the_log_is_told_or_left_out_on_purpose():
    names = set(scavenge.events.Event.split(" | ")) - {kind.__name__ for kind in UNWRITTEN}
    workers, images = (
        {"WorkerStarting", "WorkerReady", "WorkersChanged"},
        {"ImageFetching", "ImageReleased", "ImagesChanged"},
    )
    assert names - TAKES.keys() == {"EvalSized", "LeasesRevoked", "CallEnded", *workers, *images}
    assert TAKES.keys() - names == {"EventsDropped"}


def test_a_page_has_the_tables_escaped():
    summary = {"evals": [], "endpoints": [], "retries": 1, "revocations": 0}
    made = report(began(), event("Warned", 1, message="<i>odd</i>"), summary=summary)
    page = render(made).decode()
    assert "endpoints (1 retries, 0 leases revoked)" in page
    assert "<td>&lt;i&gt;odd&lt;/i&gt;</td>" in page
