"""The pages on workers say what the code does: keys, states, numbers; and the environments in them play in a run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import tomli
from pages import blocks, keyed, read, section, words
from test_reference import defaults, documented

from scavenge.config.schema import WorkerSettings
from scavenge.core.frames import MAX_FRAME_BYTES
from scavenge.core.supervision import settings as supervision
from scavenge.core.workers_view import WorkersView
from scavenge.edge.gateway.limits import GatewayLimits
from scavenge.edge.worker_log import log_name
from scavenge.runtime.workerhost import READING_DEATHS, STOP_GRACE_S
from scavenge.runtime.workerpool import BLOCKED_S
from scavenge.status import WorkersStatus
from scavenge.worker.link import BEAT_EVERY_S

HOW_TO = read("how-to/run-in-workers.md")
WRITE = read("how-to/write-an-environment.md")
WHY = " ".join(read("explanation/workers.md").split())
HOW = " ".join(HOW_TO.split())
CODE = {"guessing": blocks(WRITE, "python")[0]}
CODE["two_drafts"], CODE["retell"] = blocks(WRITE, "python")[2:]
WORDS_FOR = {2: "two", 3: "three", 6: "six"}


def test_the_keys_are_those_of_the_file_with_the_same_defaults():
    assert documented(keyed(section(HOW_TO, "The keys"))) == defaults(WorkerSettings)


def test_every_state_is_told_as_the_status_tells_it():
    text = WorkersStatus.__doc__ or ""
    states = set(re.findall(r"``(\w+)``:", text))
    assert len(states) >= 4
    assert keyed(section(HOW_TO, "Where to look")).keys() == states


def test_the_status_is_told_with_all_that_it_has():
    told = words(keyed(read("reference/events.md"))["WorkersChanged"][1])
    assert told[1:] == [field.name for field in attrs.fields(WorkersStatus)]


def test_the_line_of_the_progress_is_as_shown():
    view = WorkersView()
    view.changed(WorkersStatus("guessing", "starting", ready=0, starting=1, wanted=1, playing=0, parked=9), 0.0)
    (line,) = view.notes(12.0)
    assert f"\n      {line}\n" in HOW_TO
    view.changed(WorkersStatus("guessing", "ready", ready=3, starting=1, wanted=4, playing=50, parked=0), 0.0)
    assert f"**The progress** has `{view.figures()}`" in HOW


def test_the_log_of_a_worker_has_the_name_that_is_told():
    assert log_name("EVAL-worker-0") == "EVAL-worker-0.log"
    assert "`logs/EVAL-worker-N.log`" in HOW
    assert "`EVAL-worker-N.log`" in read("reference/run-folder.md")
    assert log_name("a/b").startswith("a_b-")


def test_the_numbers_are_those_of_the_code():
    grow = supervision.GROW_ABOVE[0] / supervision.GROW_ABOVE[1]
    assert f"more than {grow:.0%} of".replace("%", " %") in HOW
    assert f"idle for {supervision.IDLE_AFTER_S:g} seconds" in HOW
    assert f"nothing is heard of it for {supervision.HUNG_AFTER_S:g} seconds" in HOW
    assert f"silent for {supervision.HUNG_AFTER_S:g} seconds" in WHY
    assert f"(less than {supervision.BUSY_SHARE:.0%} of one processor)".replace("%", " %") in WHY
    assert f"within {supervision.ABORT_GRACE_S:g} seconds" in HOW
    assert f"within {supervision.ABORT_GRACE_S:g} seconds" in " ".join(WRITE.split())
    assert supervision.FIRST_BACKOFF_S == 0.25
    assert "after a quarter of a second" in HOW
    assert "a quarter of a second, doubled" in WHY
    assert f"After {WORDS_FOR[supervision.BUDGET]} failures in a row (some 16 seconds)" in WHY
    assert supervision.SUSPECT_DEATHS == 2
    assert f"{WORDS_FOR[STOP_GRACE_S]} seconds together" in HOW
    assert f"one grace of {WORDS_FOR[STOP_GRACE_S]} seconds" in WHY
    assert f"{WORDS_FOR[STOP_GRACE_S]} seconds together" in " ".join(read("explanation/architecture.md").split())
    assert f"when {WORDS_FOR[READING_DEATHS]} in a row die there" in HOW
    assert BLOCKED_S == 60.0
    assert "blocks its event loop for a minute" in HOW
    assert f"every {WORDS_FOR[BEAT_EVERY_S]} seconds" in WHY
    assert f"something comes every {GatewayLimits().comment_s:g} seconds" in " ".join(WRITE.split())
    assert f"bounded at {MAX_FRAME_BYTES // 2**20} MiB" in WHY


# --- the environments in the pages


def played(folder: Path, evaluation: str) -> tuple[list[dict[str, object]], str]:
    """The results of a run on simulated servers, and what stands in the logs of its workers."""
    for name, code in CODE.items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    source = '[[source]]\ntype = "simulated"\nservers = 2\ntoken_s = 0.001\n\n'
    text = evaluation.replace('endpoints_path = "endpoints.toml"\n', "").replace("my-model", "sim")
    (folder / "eval.toml").write_text(source + text, encoding="utf-8")
    command = [sys.executable, "-m", "scavenge", "run", "eval.toml", "--no-progress", "--set", "workers.max=2"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "runs").iterdir()
    results = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    return results, "".join(log.read_text() for log in (run / "logs").glob("*-worker-*.log"))


def file_of(page: str, env_id: str) -> str:
    """The evaluation file of a page that plays an environment; min is what it may be with the tests' max."""
    (text,) = [text for text in blocks(page, "toml") if f'"{env_id}"' in text and tomli.loads(text).get("workers")]
    return text


def test_an_environment_for_trio_plays_in_workers_where_the_file_says_so(tmp_path):
    results, logs = played(tmp_path, file_of(HOW_TO, "guessing:Guessing"))
    assert len(results) == 10
    assert {result["status"] for result in results} == {"ok"}
    assert logs


def test_plain_code_plays_and_scores(tmp_path):
    results, _ = played(tmp_path, file_of(WRITE, "retell:Retell"))
    assert len(results) == 10
    assert all(0.0 <= result["reward"] <= 1.0 for result in results)  # type: ignore[operator]  # each has one
    assert {len(result["attempts"]) for result in results} == {1}  # type: ignore[arg-type]  # a list


def test_a_client_of_openais_plays_under_asyncio_and_its_attempts_are_recorded(tmp_path):
    pytest.importorskip("openai")
    file = 'endpoints_path = "endpoints.toml"\n[[eval]]\nenv_id = "two_drafts:TwoDrafts"\nendpoint_id = "my-model"\n'
    results, _ = played(tmp_path, file)
    assert len(results) == 10
    assert {len(result["attempts"]) for result in results} == {2}  # type: ignore[arg-type]  # a list
    assert sum(result["reward"] for result in results) > 0  # type: ignore[misc]  # each has one
