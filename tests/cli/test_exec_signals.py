"""``scavenge exec`` and signals: what its command hears, and who ends whom."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gateway_story import gateway_file
from run_kit import Folder, command, started
from told_server import BOUND_S

HEARING = """
import os, signal, sys
def say(text):
    os.write(1, f"{text}\\n".encode())  # a signal may come while it writes
for name in sys.argv[1:]:
    signal.signal(signal.Signals[name], lambda number, frame: say(f"heard {signal.Signals(number).name}"))
signal.alarm(60)  # should nobody end it
say(f"ready {signal.getsignal(signal.SIGHUP) is signal.SIG_IGN}")
while True:
    signal.pause()
"""
ALL = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGINT", "SIGUSR1", "SIGUSR2")
PYTHON = (sys.executable, "-S", "-E", "-c", HEARING)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    gateway_file(folder)
    return folder


def test_signals_are_handed_on_and_what_becomes_of_them_is_the_commands_to_say(folder):
    caught = [name for name in ALL if name != "SIGUSR2"]
    with started(folder, "exec", "gateway.toml", "--", *PYTHON, *caught) as running:
        running.wait_told("no such file")  # a warning, and nothing to keep the command from starting
        running.wait_out("ready False\n")
        for times in (1, 2):
            for name in caught:
                running.signal(signal.Signals[name])
                running.wait_out(f"heard {name}\n" if times == 1 else running.out + f"heard {name}\n")
        running.signal(signal.SIGUSR2)
        assert running.wait() == 128 + signal.SIGUSR2
    assert len(running.lines) == 1


def test_what_it_was_started_to_ignore_the_command_ignores_too(folder):
    with started(folder, "exec", "gateway.toml", "--", *PYTHON, "SIGTERM", prelude=["nohup"]) as running:
        running.wait_out("ready True\n")
        running.signal(signal.SIGHUP)
        running.signal(signal.SIGTERM)
        running.wait_out("heard SIGTERM\n")
        running.signal(signal.SIGUSR1)
        assert running.wait() == 128 + signal.SIGUSR1


@contextmanager
def at_a_terminal(folder: Folder, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The program in the foreground of a terminal of its own, whose other end is given, too."""
    ours, theirs = os.openpty()
    name = os.ttyname(theirs)
    take_terminal = 'exec <"$0" >"$0" 2>&1; exec "$@"'  # a session's leader that opens one has it from then on
    process = subprocess.Popen(
        ["sh", "-c", take_terminal, name, *command(*arguments)], cwd=folder.path, start_new_session=True
    )
    try:
        with process:
            try:
                yield process, ours
            finally:
                process.kill()
    finally:
        os.close(ours)
        os.close(theirs)


def read_until(terminal: int, text: str, times: int = 1, shown: str = "") -> str:
    """All that the terminal shows, up to where it has a text so many times; *shown* came before."""
    ends_at = time.monotonic() + BOUND_S
    while shown.count(text) < times:
        ready, _, _ = select.select([terminal], [], [], ends_at - time.monotonic())
        assert ready, f"waited in vain for {text!r} in {shown!r}"
        shown += os.read(terminal, 4096).decode()
    return shown


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a process, and wait until it is."""
    process.send_signal(signal.SIGSTOP)
    ends_at = time.monotonic() + BOUND_S
    while Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b") ")[2][:1] != b"T":
        assert time.monotonic() < ends_at
        time.sleep(0.005)


def test_a_key_reaches_the_command_once_and_from_the_terminal(folder):
    arguments = ("exec", "gateway.toml", "--", *PYTHON, "SIGINT", "SIGTERM")
    with at_a_terminal(folder, *arguments) as (process, terminal):
        shown = read_until(terminal, "ready")
        stop(process)
        os.write(terminal, b"\x03")
        shown = read_until(terminal, "heard SIGINT", 1, shown)
        process.send_signal(signal.SIGCONT)  # now scavenge hears of the key, too
        process.send_signal(signal.SIGTERM)  # and hands this on after it
        shown = read_until(terminal, "heard SIGTERM", 1, shown)
        os.write(terminal, b"\x1c")
        assert process.wait(BOUND_S) == 128 + signal.SIGQUIT
    assert shown.count("heard SIGINT") == 1
    assert "Traceback" not in shown
