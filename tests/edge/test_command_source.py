"""The command source, with real programs."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from scavenge.config.plugin_keys import structure_plugin
from scavenge.edge.program import GRACE_S, run_program
from scavenge.edge.sources.command import CommandSource, CommandSourceConfig, open_command
from scavenge.errors import ConfigError, SourceError

ROW = {"endpoint_id": "a", "model": "m", "url": "http://h/v1"}
LISTED = json.dumps([ROW])


def shell(script: str, folder: Path, **keys: object) -> CommandSource:
    """A source whose program is a script of the shell."""
    return CommandSource(CommandSourceConfig(["/bin/sh", "-c", script], cwd=folder, **keys))  # type: ignore[arg-type]


async def error_of(source: CommandSource) -> str:
    with pytest.raises(SourceError) as caught:
        await source.list_endpoints()
    assert str(caught.value).isprintable()
    return str(caught.value).removeprefix("/bin/sh: ")


async def until(condition: Callable[[], bool]) -> None:
    """Wait in real time, whatever clock the test has."""
    bound = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < bound
        await trio.to_thread.run_sync(time.sleep, 0.01)


def is_alive(file: Path) -> bool:
    """Whether the process that wrote its number into a file runs."""
    try:
        number = int(file.read_text() or "0")
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- listings


@pytest.mark.parametrize(
    "text",
    [LISTED, json.dumps({"endpoint": [ROW]}), '[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\nurl = "http://h/v1"'],
)
async def test_what_a_program_prints_is_a_listing(tmp_path, text):
    (tmp_path / "list").write_text(text)
    listing = await shell("cat list; echo warning >&2", tmp_path).list_endpoints()
    assert (list(listing.endpoints), listing.where) == ([ROW], "/bin/sh")


async def test_a_program_is_run_afresh_each_time_in_its_folder_with_an_empty_input(tmp_path, monkeypatch):
    monkeypatch.setenv("POOL", "blue")
    script = tmp_path / "list"
    script.write_text(f"""#!{sys.executable}
import json, os, sys
assert sys.stdin.read() == ""
print(json.dumps([{{"url": os.getcwd(), "model": os.environ["POOL"]}}] * len(open("turns").read())))
""")
    script.chmod(0o755)
    async with open_command(CommandSourceConfig(["./list"], cwd=tmp_path)) as source:
        for turns in ("1", "11"):
            (tmp_path / "turns").write_text(turns)
            listing = await source.list_endpoints()
            assert list(listing.endpoints) == [{"url": str(tmp_path), "model": "blue"}] * len(turns)


# --- what is no listing


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "echo no servers today >&2; exit 3",
            "exit code 3; run it by hand to see why; on standard error: no servers today",
        ),
        (f"echo '{LISTED}'; exit 1", "exit code 1; run it by hand to see why"),
        (f"echo '{LISTED}'; kill -SEGV $$", "killed by SIGSEGV; run it by hand to see why"),
        (f"echo '{LISTED}'; kill -40 $$", "killed by signal 40; run it by hand to see why"),
        ("true", "what it prints is no listing: empty; "),
        ("echo cannot connect >&2", "in TOML; on standard error: cannot connect"),
        ("echo usage: list", "what it prints is no listing: line 1, column "),
        ("printf '\\377'", "what it prints is no listing: line 1: byte 0xff is not UTF-8"),
        ("exec >&-", "what it prints is no listing: empty"),
    ],
)
async def test_a_program_that_fails_or_prints_something_else_says_so(tmp_path, script, says):
    assert says in await error_of(shell(script, tmp_path))


async def test_the_end_of_a_long_complaint_is_told_on_one_line(tmp_path):
    told = await error_of(shell("seq 100000 >&2; printf '\\033[31mlast\\377\\n' >&2; exit 1", tmp_path))
    assert "on standard error: …" in told
    assert told.endswith("99999 100000 [31mlast�")
    assert len(told) < 300


async def test_a_program_that_prints_without_end_is_killed_at_once(tmp_path, monkeypatch, mock_clock):
    monkeypatch.setattr("scavenge.edge.program.MOST_BYTES", 2**20)
    told = await error_of(shell("echo $$ > pid; exec yes", tmp_path))
    assert told == "it prints more than 16 MiB; it is to print a listing only"
    assert not is_alive(tmp_path / "pid")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["no-such-program"], "no-such-program: no such program, or the interpreter in its first line is missing"),
        (["./none"], "./none: no such program"),
        (["./plain"], "./plain: not executable for this user; make it so"),
        (["./orphan"], "./orphan: no such program, or the interpreter in its first line is missing"),
        (["./odd"], "./odd: cannot be started: Exec format error; see `command`"),
        (["."], ".: not executable for this user"),
        (["/bin/sh", "x" * 300_000], "/bin/sh: cannot be started: Argument list too long"),
    ],
)
async def test_a_program_that_cannot_be_started_says_why(tmp_path, command, says):
    for name, text, mode in (("plain", LISTED, 0o644), ("orphan", "#!/no/such\n", 0o755), ("odd", "\x7fELF?", 0o755)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    with pytest.raises(SourceError) as caught:
        await CommandSource(CommandSourceConfig(command, cwd=tmp_path)).list_endpoints()
    assert str(caught.value).startswith(says)


async def test_a_folder_that_is_not_there_is_told_of(tmp_path):
    told = await error_of(shell("true", tmp_path / "none"))
    assert told == f"the folder to run it in, {tmp_path / 'none'}, is not there; see `cwd`"


# --- what is left behind


STUBBORN = """\
trap 'echo asked > asked' TERM
sh -c 'trap "" TERM; echo $$ > child; exec sleep 600' &
echo $$ > pid
while :; do wait; done
"""


async def test_a_program_that_hangs_is_asked_to_end_and_then_killed_with_all_that_it_started(tmp_path, mock_clock):
    errors: list[str] = []

    async def ask() -> None:
        errors.append(await error_of(shell(STUBBORN, tmp_path, timeout=5.0)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await until(lambda: is_alive(tmp_path / "pid") and is_alive(tmp_path / "child"))
        mock_clock.jump(5.0)
        await until((tmp_path / "asked").exists)
        assert is_alive(tmp_path / "pid")
        mock_clock.jump(GRACE_S)
    assert errors == ["not done within 5 s, so it was killed; see `timeout`"]
    assert not is_alive(tmp_path / "pid")
    await until(lambda: not is_alive(tmp_path / "child"))


async def test_a_program_that_ends_when_it_is_asked_is_not_waited_for(tmp_path, mock_clock):
    source = shell("trap 'exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done", tmp_path, timeout=5.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(error_of, source)
        await until(lambda: is_alive(tmp_path / "pid"))
        mock_clock.jump(5.0)
    assert not is_alive(tmp_path / "pid")


async def test_children_that_hold_the_pipes_are_killed_when_their_parent_has_ended(tmp_path):
    source = shell(
        f"sh -c 'echo $$ > child; exec sleep 600' & until test -s child; do :; done; echo '{LISTED}'", tmp_path
    )
    with trio.fail_after(10):
        assert list((await source.list_endpoints()).endpoints) == [ROW]
    await until(lambda: not is_alive(tmp_path / "child"))


@pytest.mark.parametrize("held", ["output", "complaints"])
async def test_a_process_that_left_the_group_and_holds_the_output_is_told_of(tmp_path, held):
    away = "exec setsid sh -c 'echo $$ > child; exec sleep 600' " + (
        "2>/dev/null" if held == "output" else ">/dev/null"
    )
    source = shell(f"({away}) & until test -s child; do :; done; echo '{LISTED}'", tmp_path)
    try:
        if held == "output":
            assert "a process that it left still holds its standard output" in await error_of(source)
        else:
            assert list((await source.list_endpoints()).endpoints) == [ROW]
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


async def test_cancelling_kills_the_program_and_its_children_at_once(tmp_path):
    script = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > child; exec sleep 600' & echo $$ > pid; wait"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shell(script, tmp_path).list_endpoints)
        await until(lambda: is_alive(tmp_path / "pid") and is_alive(tmp_path / "child"))
        nursery.cancel_scope.cancel()
    assert not is_alive(tmp_path / "pid")
    await until(lambda: not is_alive(tmp_path / "child"))


async def test_a_cancelled_run_leaves_no_descriptor_behind(tmp_path):
    async def use() -> None:
        await run_program(["/bin/sh", "-c", "exec sleep 600"], tmp_path, 30)

    await trio.to_thread.run_sync(int)
    before = len(os.listdir("/proc/self/fd"))
    for wait_s in (0, 0.001, 0.01, 0.05):
        with trio.move_on_after(wait_s):
            await use()
    assert len(os.listdir("/proc/self/fd")) == before


# --- the configuration


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({}, "command: this key is required"),
        ({"command": "list"}, 'command: expected a list, got "list"'),
        ({"command": []}, "command: expected a program and its arguments"),
        ({"command": ["", "x"]}, "command: expected a program and its arguments"),
        ({"command": ["x", 3]}, "command[1]: expected a string, got 3"),
        ({"command": ["x", "a\0"]}, "command: no argument of a program can have a NUL character in it"),
        ({"command": ["x"], "timeout": 90.0}, "timeout: expected seconds > 0 and ≤ 55, got 90"),
        ({"command": ["x"], "shell": True}, "shell: unknown key"),
    ],
)
def test_a_wrong_key_is_named_with_what_it_should_be(keys, says):
    with pytest.raises(ConfigError) as caught:
        structure_plugin(CommandSourceConfig, keys, "eval.toml: source[0]", Path("/folder"))
    assert says in str(caught.value)


def test_the_folder_of_the_evaluation_file_is_where_a_program_runs():
    made = structure_plugin(CommandSourceConfig, {"command": ["x"]}, "x", Path("/folder"))
    assert (made.cwd, made.timeout) == (Path("/folder"), 30.0)
    assert structure_plugin(CommandSourceConfig, {"command": ["x"], "cwd": "a"}, "x", Path("/folder")).cwd == Path(
        "/folder/a"
    )
