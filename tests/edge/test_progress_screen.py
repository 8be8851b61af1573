from __future__ import annotations

import io

import pytest
from screen_streams import Broken, Terminal

from scavenge.edge.console import Drawing, Screen
from scavenge.edge.console_table import table_text

ANSI = "\x1b["


@pytest.mark.parametrize(
    ("stream", "environ", "interactive"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, False),
        (io.StringIO(), {"TERM": "xterm", "FORCE_COLOR": "1"}, False),
    ],
)
def test_only_a_terminal_that_can_move_its_cursor_is_drawn_on(stream, environ, interactive):
    assert Screen.on(stream, environ).interactive is interactive


def test_what_is_said_is_redacted_and_cannot_control_the_terminal():
    stream = io.StringIO()
    Screen.on(stream, {"GLM_KEY": "opal-zebra"}).say("wrong key opal-zebra\x1b[2J")
    assert stream.getvalue() == "wrong key [secret]\\x1b[2J\n"


def test_lines_said_while_drawing_stand_whole_above_the_drawing(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    screen = Screen.on(stream, {"TERM": "xterm"})
    long = "a log line that is longer than the terminal is wide, [bold]:smile:[/bold]"
    with screen.drawing() as draw:
        draw(Drawing(["3/10 done"], 0.3))
        screen.say(long)
    assert long in stream.getvalue()
    assert "3/10 done" in stream.getvalue()


def test_the_same_drawing_is_written_once():
    stream = Terminal()
    with Screen.on(stream, {"TERM": "xterm"}).drawing() as draw:
        draw(Drawing(["3/10 done"]))
        before = stream.getvalue()
        draw(Drawing(["3/10 done"]))
        assert stream.getvalue() == before
        draw(Drawing(["4/10 done"]))
        assert "4/10 done" in stream.getvalue()


def test_a_drawing_is_cut_to_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    with Screen.on(stream, {"TERM": "xterm"}).drawing() as draw:
        draw(Drawing(["x" * 100]))
    assert "x" * 21 not in stream.getvalue()
    assert "x" * 20 in stream.getvalue()


def test_no_color_means_no_color(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    with Screen.on(stream, {"TERM": "xterm-256color"}).drawing() as draw:
        draw(Drawing(["x"], 0.5))
    assert ANSI + "38" not in stream.getvalue()
    assert ANSI + "3" not in stream.getvalue()


def test_the_cursor_is_there_while_something_is_drawn():
    stream = Terminal()
    with Screen.on(stream, {"TERM": "xterm"}).drawing() as draw:
        draw(Drawing(["x"]))
        assert stream.getvalue().rfind(ANSI + "?25h") > stream.getvalue().rfind(ANSI + "?25l")


def test_a_secret_is_not_drawn():
    stream = Terminal()
    with Screen.on(stream, {"TERM": "xterm", "GLM_KEY": "opal-zebra"}).drawing() as draw:
        draw(Drawing(["glm waits: opal-zebra"]))
    assert "opal-zebra" not in stream.getvalue()


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(5, "hung up"), ValueError("closed file")])
def test_a_stream_that_went_away_is_left_alone(error):
    stream = Broken(error)
    screen = Screen.on(stream, {})
    screen.say("one")
    screen.say("two")
    assert stream.tries == 1


def test_a_terminal_that_went_away_does_not_stop_the_drawing_task():
    stream = Broken(OSError(5, "hung up"))
    screen = Screen(stream, Screen.on(io.StringIO(), {}).redact, interactive=True)
    with screen.drawing() as draw:
        draw(Drawing(["x"]))
        screen.say("one")
        draw(Drawing(["y"]))


def test_a_full_pipe_costs_only_what_did_not_fit():
    stream = Broken(BlockingIOError())
    screen = Screen.on(stream, {})
    screen.say("one")
    screen.say("two")
    assert stream.tries == 2


def test_a_table_is_aligned_and_numbers_stand_to_the_right():
    text = table_text(("name", "count", "said"), [("a", "5", "x\ny"), ("größer", "–", "–"), ("高い", "120", "z")])
    assert text.split("\n") == [
        "name    count  said",
        "a           5  x y",
        "größer      –  –",
        "高い      120  z",
    ]


def test_a_table_without_rows_is_its_head():
    assert table_text(("a", "b"), []) == "a  b"
