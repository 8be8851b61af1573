from __future__ import annotations

import json
import logging
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli

from scavenge.cli.main import exit_status

ENVIRONMENT = """
from pathlib import Path

import scavenge.plugin
import trio

FOLDER = Path(__file__).parent


class Env(scavenge.plugin.Environment):
    def examples(self):
        for number in range({count}):
            yield scavenge.plugin.Example(str(number), {{}})

    async def open(self):
        if (FOLDER / "fatal").exists():
            raise {fatal}

    async def play(self, example, model):
        if (FOLDER / "slow").exists():
            await trio.sleep_forever()
        if not (FOLDER / "cured").exists() and int(example.id) >= {fails_from}:
            raise ValueError("cannot play " + example.id)
        return scavenge.plugin.Rollout(completion="x", reward=1.0)
"""

EVALUATION = """
max_consecutive_failures = 3
admission.policy = "fixed"
health.probe = false
{keys}

[[eval]]
env_id = "{module}:Env"
model = "m"
api_base_url = "http://127.0.0.1:9/v1"
"""


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, names = logging.getLogger(), (None, "scavenge", "httpx", "httpcore")
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in names}
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.fixture
def evaluation(tmp_path, request, monkeypatch):
    """Writes an evaluation of an environment of our own, which never asks its model."""
    monkeypatch.chdir(tmp_path)
    module = "env_" + re.sub(r"\W", "_", request.node.name)

    def write(count: int = 4, fails_from: int = 1000, keys: str = "", fatal: str = "") -> str:
        text = ENVIRONMENT.format(count=count, fails_from=fails_from, fatal=fatal)
        (tmp_path / f"{module}.py").write_text(text)
        (tmp_path / "my eval.toml").write_text(EVALUATION.format(module=module, keys=keys))
        return "my eval.toml"

    return write


def resume_command(told: str) -> list[str]:
    (line,) = [line for line in told.splitlines() if line.startswith("resume with: ")]
    program, *arguments = shlex.split(line.removeprefix("resume with: "))
    assert program == "scavenge"
    return arguments


def test_a_run_that_ends_well_writes_its_table_to_standard_output(evaluation, capsys):
    assert exit_status(["run", evaluation()]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("evaluations\neval")
    assert "results go to" in told.err
    assert "resume with" not in told.err
    assert "\x1b" not in told.out + told.err


def test_with_json_the_summary_alone_is_on_standard_output(evaluation, capsys):
    assert exit_status(["run", evaluation(), "--json", "--no-progress", "--name", "first"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["evals"][0]["ok"] == 4
    assert "evaluations\neval" in told.err
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("first-")


def test_failed_samples_are_exit_code_1_and_the_printed_command_plays_them_again(evaluation, capsys, tmp_path):
    assert exit_status(["run", evaluation(fails_from=2), "--output-dir", "my runs"]) == 1
    told = capsys.readouterr().err
    assert told.count("cannot play") == 1
    assert "first failure" in told
    assert "2 of 4 samples failed" in told
    command = resume_command(told)
    (tmp_path / "cured").touch()
    assert exit_status([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["evals"][0]["ok"] == 4


def test_too_many_failures_in_a_row_are_exit_code_3(evaluation, capsys):
    assert exit_status(["run", evaluation(count=50, fails_from=0)]) == 3
    assert resume_command(capsys.readouterr().err)[:2] == ["run", "--resume"]


def test_no_endpoint_in_time_is_exit_code_4(evaluation, capsys):
    keys = 'elastic = true\nstall_timeout = 0.5\n[[source]]\ntype = "file"\npath = "endpoints.toml"\n'
    text = Path(evaluation(keys=keys)).read_text()
    Path("endpoints.toml").write_text("endpoint = []\n")
    Path("pool.toml").write_text(text.replace('model = "m"\n', 'endpoint_id = "glm"\n').replace("api_base_url", "#"))
    assert exit_status(["run", "pool.toml"]) == 4
    told = capsys.readouterr().err
    assert "stall_timeout" in told
    assert resume_command(told)


def test_no_sample_at_all_is_exit_code_2_unless_it_is_allowed(evaluation, capsys):
    file = evaluation(count=0)
    assert exit_status(["run", file]) == 2
    told = capsys.readouterr().err
    assert "--allow-empty" in told
    assert "resume with" not in told
    assert exit_status(["run", file, "--allow-empty"]) == 0


def test_a_limit_and_a_set_key_change_the_run(evaluation, capsys):
    assert exit_status(["run", evaluation(), "--limit", "3", "--set", "eval.rollouts_per_example=2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["evals"][0]["ok"] == 6


def test_a_dry_run_prints_the_plan_and_creates_nothing(evaluation, capsys, tmp_path):
    file = evaluation()
    before = sorted(path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts)
    assert exit_status(["run", file, "--dry-run", "--limit", "2", "--name", "n", "--output-dir", "elsewhere"]) == 0
    told = capsys.readouterr()
    plan = tomli.loads(told.out)
    assert (plan["name"], plan["output_dir"], plan["eval"][0]["num_examples"]) == ("n", str(tmp_path / "elsewhere"), 2)
    assert told.err == ""
    assert sorted(path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts) == before


SECRET = "sk-abcdefghijklmnop1234"
OPENINGS = """
[[source]]
type = "file"
path = "endpoints.toml"

[[eval]]
env_id = "chat"
model = "m"
api_base_url = "http://127.0.0.1:9/v1"
name = "odd"
[eval.env_args]
dataset = "rows.jsonl"
system = "a\\u00a0b \\u200b \\" c"
[eval.sampling_args]
judge_key = "{secret}"
urls = ["http://me:{secret}@host/v1", {{ deep = "Bearer opal-zebra-heron" }}]
api_key = "opal \\" zebra"
cookie = 5
authorization = ["one", "two"]
own_word = "say opalzebraheron aloud"
"""


def test_a_dry_run_shows_no_secret_and_stays_the_plan_it_is(evaluation, capsys, monkeypatch):
    monkeypatch.setenv("TEAM_TOKEN", "opalzebraheron")
    file = Path(evaluation())
    file.write_text(file.read_text() + OPENINGS.format(secret=SECRET))
    Path("endpoints.toml").write_text("endpoint = []\n")
    Path("rows.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    assert exit_status(["run", str(file), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert SECRET not in told
    odd = tomli.loads(told)["eval"][1]
    assert odd["env_args"] == {"dataset": "rows.jsonl", "system": 'a\u00a0b \u200b " c'}
    assert odd["sampling_args"] == {
        "judge_key": "[secret]",
        "urls": ["http://[secret]@host/v1", {"deep": "Bearer [secret]"}],
        "api_key": "[secret]",
        "cookie": 5,
        "authorization": ["[secret]", "[secret]"],
        "own_word": "say [secret] aloud",
    }


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_with_the_way_to_resume_and_no_traceback(evaluation, tmp_path, number, code):
    (tmp_path / "slow").touch()
    command = [sys.executable, "-m", "scavenge", "run", evaluation()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "results go to" in line:
                break
        process.send_signal(number)
        told = process.stderr.read()
        assert process.wait() == code
    assert "Traceback" not in told
    assert "stopping" in told
    assert resume_command(told)


def test_ctrl_c_that_strikes_into_the_run_is_exit_code_130_with_the_way_to_resume(evaluation, capsys, tmp_path):
    (tmp_path / "fatal").touch()
    assert exit_status(["run", evaluation(fatal="KeyboardInterrupt")]) == 130
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert resume_command(told)


def test_a_run_that_is_refused_before_it_began_tells_of_no_folder_as_there_is_none(evaluation, capsys):
    text = Path(evaluation(keys='elastic = false\n[[source]]\ntype = "file"\npath = "endpoints.toml"\n')).read_text()
    Path("endpoints.toml").write_text('[[endpoint]]\nendpoint_id = "glm"\nmodel = "m"\nurl = "http://127.0.0.1:9/v1"\n')
    Path("pool.toml").write_text(text.replace('model = "m"\n', 'endpoint_id = "gln"\n').replace("api_base_url", "#"))
    assert exit_status(["run", "pool.toml"]) == 2
    told = capsys.readouterr().err
    assert "did you mean 'glm'" in told
    assert "run folder: " not in told
    assert "resume with" not in told
    assert not any(Path("runs").iterdir())


def test_a_bug_during_a_run_is_exit_code_70_with_the_traceback_and_the_run_folder(
    evaluation, capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr("scavenge.app.evaluation.make_jobs", lambda *_: 1 / 0)
    assert exit_status(["run", evaluation()]) == 70
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert f"run folder: {tmp_path / 'runs'}" in told
    assert "resume with" not in told


def test_on_a_terminal_the_progress_is_drawn_and_log_lines_stay_whole(evaluation):
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "60"}
    command = [sys.executable, "-m", "scavenge", "run", evaluation(fails_from=3)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environ) as process:
        os.close(theirs)
        told = b"".join(iter(lambda: _read(ours), b"")).decode()
        assert process.wait() == 1
    os.close(ours)
    assert "\x1b[2K" in told
    assert "example '3', rollout 0: ValueError: cannot play 3" in told
    assert told.rstrip().splitlines()[-1].startswith("resume with: ")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the last writer has closed a terminal
        return b""
