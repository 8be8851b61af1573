from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from scavenge.cli.failures import tell_failure
from scavenge.cli.main import exit_status, scavenge
from scavenge.errors import CircuitBroken, ConfigError, NoEndpointsError, Problem, UsageError

HEAVY = ("trio", "httpx", "rich", "cattrs", "orjson", "pluggy", "tomli", "logging")


def start(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the program as a user does."""
    environ = {**os.environ, **changes}
    command = [sys.executable, "-m", "scavenge", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environ, check=False)


def test_help_lists_the_commands_on_standard_output():
    done = start("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("run", "check", "plugins"):
        assert f"  {command} " in done.stdout


def test_help_imports_nothing_heavy():
    ask = f"import sys, scavenge.cli.main; print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_run_imports_no_test_tools():
    names = ("pytest", "hypothesis", "trio.testing", "scavenge.testing.host", "scavenge.testing.source_kit")
    ask = f"import sys, scavenge.app.evaluation; print([name for name in {names} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("command", sorted(scavenge.commands))
def test_the_help_of_every_command_has_examples(command, capsys):
    assert exit_status([command, "--help"]) == 0
    assert f"Examples:\n    scavenge {command}" in capsys.readouterr().out


def test_the_version_is_told(capsys):
    assert exit_status(["--version"]) == 0
    assert capsys.readouterr().out.startswith("scavenge ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rum"], "No such command 'rum'"),
        (["run"], "name an evaluation FILE, or a run to go on with by --resume RUN_DIR"),
        (["run", "a.toml", "--resume", "runs/a"], "--resume takes the place of FILE"),
        (["run", "--resume", "runs/a", "--name", "b"], "--resume goes on in its own"),
        (["run", "--resume", "runs/a", "--output-dir", "b"], "--resume goes on in its own"),
        (["run", "a.toml", "--limit", "0"], "--limit"),
        (["run", "a.toml", "--log-level", "loud"], "--log-level"),
        (["check"], "FILE"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_told_on_standard_error(arguments, says, capsys):
    assert exit_status(arguments) == 2
    told = capsys.readouterr()
    assert says in told.err
    assert told.out == ""


def test_a_wrong_file_takes_a_line_a_problem_and_no_traceback(tmp_path):
    (tmp_path / "eval.toml").write_text('elastick = true\n[[eval]]\nenv_id = 3\nendpoint_id = "a"\n')
    done = start("run", str(tmp_path / "eval.toml"), "--output-dir", str(tmp_path / "runs"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "elastick" in done.stderr
    assert "eval[0].env_id" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_run_folder_that_is_none_cannot_be_resumed(tmp_path, capsys):
    assert exit_status(["run", "--resume", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_ctrl_c_before_the_run_has_begun_is_exit_code_130_without_a_traceback(tmp_path, capsys):
    (tmp_path / "ctrl_c.py").write_text("raise KeyboardInterrupt\n")
    text = '[[eval]]\nenv_id = "ctrl_c:Env"\nmodel = "m"\napi_base_url = "http://127.0.0.1:9/v1"\n'
    (tmp_path / "eval.toml").write_text(f'{text}[admission]\npolicy = "fixed"\n')
    assert exit_status(["run", str(tmp_path / "eval.toml"), "--dry-run"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_plugins_are_listed_with_what_they_add(capsys):
    assert exit_status(["plugins"]) == 0
    table = capsys.readouterr().out
    assert table.startswith("plugin ")
    assert "environment: chat" in table


def test_plugins_are_listed_as_json(capsys):
    assert exit_status(["plugins", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["plugins"]
    own = next(plugin for plugin in listed if plugin["name"] == "scavenge")
    assert {"kind": "environment", "name": "chat"} in own["adds"]
    assert own["error"] is None


def test_a_plugin_that_fails_is_listed_with_the_reason(tmp_path):
    metadata = tmp_path / "broken-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text("[scavenge]\nwreck = wreck_plugin\n")
    (tmp_path / "wreck_plugin.py").write_text("raise RuntimeError('key=opal-zebra-1')\n")
    done = start("plugins", PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]), WRECK_KEY="opal-zebra-1")
    assert done.returncode == 0
    row = next(line for line in done.stdout.splitlines() if line.startswith("wreck"))
    assert "1.2" in row
    assert "failed: " in row
    assert "RuntimeError" in row
    assert "opal-zebra-1" not in row


@pytest.fixture
def clashing(tmp_path, monkeypatch) -> None:
    """Two installed plugins that add a scorer of the same name; a third is turned off, and one that is not there."""
    for name, scorers in {"one": "bad", "other": "bad good"}.items():
        info = tmp_path / f"{name}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[scavenge]\n{name} = clash_{name}\n")
        (tmp_path / f"clash_{name}.py").write_text(
            "from scavenge.plugin import Scorer, hookimpl\n@hookimpl\ndef scavenge_scorers():\n"
            f"    return [Scorer(name, lambda reply, answer, row: 1.0) for name in {scorers.split()}]\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SCAVENGE_DISABLE_PLUGINS", "othr")


def test_a_name_that_two_plugins_add_is_marked_at_both(clashing, capsys):
    assert exit_status(["plugins"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "one one 1.2 scorer: bad (added by other, too: stands for nothing)" in lines
    assert "other other 1.2 scorer: bad (added by one, too: stands for nothing), good" in lines


def test_a_name_that_is_turned_off_and_not_there_is_told(clashing, capsys):
    assert exit_status(["plugins"]) == 0
    told = 'SCAVENGE_DISABLE_PLUGINS: no installed plugin "othr"; did you mean "other"?'
    assert capsys.readouterr().out.splitlines()[-1] == told


def test_what_is_wrong_with_the_plugins_together_is_listed_as_json_too(clashing, capsys):
    assert exit_status(["plugins", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["clashes"] == [{"kind": "scorer", "name": "bad", "plugins": ["one", "other"]}]
    assert listed["unknown_disabled"] == ["othr"]


def test_a_reader_that_went_away_is_no_error():
    process = subprocess.Popen([sys.executable, "-m", "scavenge", "plugins"], stdout=-1, stderr=-1)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 0
    process.stderr.close()


def test_a_full_disk_under_standard_output_is_told_without_a_traceback():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "scavenge", "plugins"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "scavenge: standard output: cannot be written: No space left on device\n"


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_process_without_standard_streams_does_its_work(closed):
    command = ["sh", "-c", f"exec {shlex.quote(sys.executable)} -m scavenge check none.toml {closed}>&-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_what_a_stream_cannot_encode_is_no_error():
    done = start("plugins", PYTHONIOENCODING="ascii:strict", SCAVENGE_DISABLE_PLUGINS="1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("error", "status", "lines"),
    [
        (ConfigError([Problem("a", "one"), Problem("b", "two")]), 2, ["a: one", "b: two"]),
        (UsageError("not so"), 2, ["scavenge: not so"]),
        (NoEndpointsError("none"), 4, ["scavenge: none"]),
        (BaseExceptionGroup("", [KeyboardInterrupt()]), 130, ["interrupted"]),
        (ExceptionGroup("", [CircuitBroken("12 in a row"), NoEndpointsError("none")]), 4,
         ["scavenge: 12 in a row", "scavenge: none"]),
    ],
)  # fmt: skip
def test_an_error_on_purpose_is_told_in_lines(error, status, lines, capsys):
    error.add_note("resume with: scavenge run --resume runs/x")
    assert tell_failure(error) == status
    told = capsys.readouterr()
    assert told.err.splitlines() == [*lines, "resume with: scavenge run --resume runs/x"]
    assert told.out == ""


def test_a_bug_shows_the_traceback_without_secrets_and_where_to_report(capsys, monkeypatch):
    monkeypatch.setenv("GLM_KEY", "opal-zebra")
    error = ExceptionGroup("", [ValueError("Bearer opal-zebra"), UsageError("x")])
    error.add_note("run folder: runs/x")
    assert tell_failure(error) == 70
    told = capsys.readouterr().err
    assert "ValueError" in told
    assert "opal-zebra" not in told
    assert "run folder: runs/x" in told
    assert "report it" in told.splitlines()[-1]


def test_every_option_is_in_the_reference():
    text = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
    for name, command in scavenge.commands.items():
        section = text.split(f"## scavenge {name}", 1)[1].split("\n## ", 1)[0]
        for parameter in command.params:
            names = (
                parameter.opts
                if isinstance(parameter, click.Option)
                else [parameter.make_metavar(click.Context(command)).strip("[]")]
            )
            assert all(f"`{option}" in section for option in names), f"{name}: {names}"


def test_every_exit_code_is_in_the_reference():
    text = (Path(__file__).parents[2] / "docs/reference/exit-codes.md").read_text()
    for code in (0, 1, 2, 3, 4, 70, 130, 143):
        assert f"| {code} |" in text
