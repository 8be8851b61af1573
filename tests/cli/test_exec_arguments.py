"""Where the options of ``scavenge exec`` end, and the command that it runs begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from scavenge.cli.exec import exec_
from scavenge.cli.main import exit_status


def parsed(*arguments: str) -> dict[str, object]:
    return exec_.make_context("exec", list(arguments)).params


@pytest.mark.parametrize(
    ("arguments", "command", "level", "overrides"),
    [
        (["e.toml", "--", "tool", "a"], ["tool", "a"], None, []),
        (["e.toml", "tool", "a"], ["tool", "a"], None, []),
        (["e.toml", "tool", "--log-level", "debug"], ["tool", "--log-level", "debug"], None, []),
        (["e.toml", "--log-level", "debug", "tool", "--set", "x"], ["tool", "--set", "x"], "debug", []),
        (["--log-level", "info", "e.toml", "--set", "a=1", "--set=b=2", "--", "tool", "--set", "c"],
         ["tool", "--set", "c"], "info", ["a=1", "b=2"]),
        (["e.toml", "--", "tool", "--", "--help"], ["tool", "--", "--help"], None, []),
        (["e.toml", "tool", "--", "x"], ["tool", "--", "x"], None, []),
        (["e.toml", "--", "--", "x"], ["--", "x"], None, []),
        (["e.toml", "--", "-tool"], ["-tool"], None, []),
        (["e.toml", "-"], ["-"], None, []),
        (["e.toml", "--", "tool", ""], ["tool", ""], None, []),
        (["e.toml", "--set", "--", "tool"], ["tool"], None, ["--"]),
    ],
)  # fmt: skip
def test_all_that_follows_is_the_commands(arguments, command, level, overrides):
    assert parsed(*arguments) == {
        "file": Path("e.toml"),
        "command": tuple(command),
        "log_level": level,
        "overrides": tuple(overrides),
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["e.toml"], "name a command to run, as in: scavenge exec FILE -- CMD ..."),
        (["e.toml", "--"], "name a command to run"),
        (["e.toml", "--", "", "x"], "name a command to run"),
        (["e.toml", "--log-level", "info"], "name a command to run"),
        ([], "Missing argument 'FILE'"),
        (["--"], "name FILE before --"),
        (["--", "tool", "x"], "name FILE before --"),
        (["e.toml", "--model", "m", "tool"], "No such option"),
        (["e.toml", "--log-level"], "--log-level"),
        (["e.toml", "--log-level", "loud", "--", "tool"], "--log-level"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_starts_nothing(arguments, says, capsys):
    assert exit_status(["exec", *arguments]) == 2
    told = capsys.readouterr()
    assert says in told.err
    assert told.out == ""


def test_help_after_the_file_is_ours_and_after_the_command_is_not(capsys):
    assert exit_status(["exec", "e.toml", "--help"]) == 0
    assert "Usage: scavenge exec [OPTIONS] FILE -- CMD ..." in capsys.readouterr().out
    assert parsed("e.toml", "tool", "--help")["command"] == ("tool", "--help")
