"""The tutorial on endpoint sources works, step by step: its package, its evaluation, what one sees, and its test."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import attrs
import pytest
import tomli
from pages import blocks, read

PAGE = read("tutorial/write-an-endpoint-source.md")
MODULE, TEST, MENDED = blocks(PAGE, "python")
PROJECT, EVALUATION = blocks(PAGE, "toml")
JOIN, LEAVE, LOSE, FIND = blocks(PAGE, "sh")
SERVE = next(line.split() for line in PAGE.splitlines() if line.startswith("    python -m scavenge.testing.serve"))
LAST_LINE = "        return Listing("
PORTS = ("8001", "8002", "8003")
PATIENCE_S = 90.0
"""After which a program is killed that does not end, or never says what is waited for; the test then fails."""


@attrs.define
class Reader:
    """Somebody who follows the page in a folder, where the package is on the path as an editable install has it."""

    folder: Path
    ports: dict[str, str] = attrs.Factory(dict)

    @property
    def package(self) -> Path:
        return self.folder / "scavenge-board"

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.package), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}

    def run(self, *command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        where, environment = folder or self.folder, self.environment()
        return subprocess.run(
            command, cwd=where, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )

    def scavenge(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "scavenge", *arguments)

    def here(self, text: str) -> str:
        """What the page writes, with the ports that are free on this machine."""
        return re.sub("|".join(PORTS), lambda found: self.ports[found[0]], text)

    def shell(self, script: str) -> None:
        done = self.run("sh", "-ec", self.here(script))
        assert (done.returncode, done.stderr) == (0, "")

    @contextmanager
    def running(self, *command: str) -> Iterator[Iterator[str]]:
        """The lines of a program, which is stopped at the end."""
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        patience = Timer(PATIENCE_S, process.kill)
        patience.start()
        try:
            yield process.stdout
        finally:
            patience.cancel()
            process.terminate()
            process.communicate()


def make_package(folder: Path) -> None:
    """Write the package, and beside it what installing leaves behind."""
    project = tomli.loads(PROJECT)
    name, version = project["project"]["name"], project["project"]["version"]
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "scavenge_board.py").write_text(MODULE)
    (folder / "test_board.py").write_text(TEST)
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = project["project"]["entry-points"]["scavenge"]
    (info / "entry_points.txt").write_text("[scavenge]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    reader = Reader(tmp_path)
    make_package(reader.package)
    return reader


@pytest.fixture
def served(reader: Reader) -> Iterator[Reader]:
    """The same, with the servers of the page and the files of its evaluation."""
    command = [sys.executable, *SERVE[1:]]
    del command[command.index("--port") :]
    with reader.running(*command) as lines:
        reader.ports = {port: next(lines).rpartition(":")[2].partition("/")[0] for port in PORTS}
        (board,), (questions,) = blocks(PAGE, "text"), blocks(PAGE, "json")
        (reader.folder / "board.txt").write_text(reader.here(board))
        (reader.folder / "questions.jsonl").write_text(questions)
        (reader.folder / "eval.toml").write_text(EVALUATION)
        yield reader


def mended() -> str:
    """The module after the page's last step."""
    head, last, rest = MODULE.partition(LAST_LINE)
    return head + MENDED + last + rest


def test_the_module_has_no_more_lines_than_the_title_says():
    lines = [line for line in mended().splitlines() if line.strip()]
    (most,) = re.findall(r"in (\d+) lines", PAGE.splitlines()[0])
    assert len(lines) <= int(most)


def test_the_plugin_is_found_as_the_page_shows(reader):
    (told,) = [line.split() for line in PAGE.splitlines() if line.startswith("    board  ")]
    assert told in [line.split() for line in reader.scavenge("plugins").stdout.splitlines()]


def test_the_run_answers_every_question_on_the_two_servers_of_the_board(served):
    done = served.scavenge("run", "eval.toml", "--json", "--no-progress")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert [(one["ok"], one["error"]) for one in summary["evals"]] == [(3, 0)]
    assert {one["url"] for one in summary["endpoints"]} == {url(served, port) for port in PORTS[:2]}


def url(reader: Reader, port: str) -> str:
    return f"http://127.0.0.1:{reader.ports[port]}/v1"


def states(document: dict[str, object]) -> dict[str, str]:
    return {one["url"]: one["state"] for pool in document["pools"] for one in pool["endpoints"]}  # type: ignore[attr-defined]


def until(lines: Iterator[str], is_so: Callable[[dict[str, object]], bool]) -> None:
    """Read on until the state is as said."""
    assert any(is_so(json.loads(line)) for line in lines), "the command ended before it was so"


def test_a_server_that_comes_and_one_that_goes_are_seen_and_a_lost_board_changes_nothing(served):
    first, second, third = (url(served, port) for port in PORTS)

    def live(*urls: str) -> Callable[[dict[str, object]], bool]:
        return lambda document: states(document) == dict.fromkeys(urls, "live")

    def lost(document: dict[str, object]) -> bool:
        (source,) = document["sources"]  # type: ignore[misc]
        return live(second, third)(document) and "the board cannot be read" in str(source["trouble"])

    with served.running(sys.executable, "-m", "scavenge", "endpoints", "eval.toml", "--json") as lines:
        until(lines, live(first, second))
        served.shell(JOIN)
        until(lines, live(first, second, third))
        served.shell(LEAVE)
        until(lines, live(second, third))
        served.shell(LOSE)
        until(lines, lost)
        served.shell(FIND)
        until(lines, lambda document: live(second, third)(document) and not lost(document))


def test_the_check_finds_the_mistake_that_the_page_tells_and_nothing_more_once_it_is_mended(reader):
    (told,) = [line.strip() for line in PAGE.splitlines() if line.startswith("    opened before the fault")]
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    failed = reader.run(*command, folder=reader.package)
    assert failed.returncode == 1
    assert told in failed.stdout
    (reader.package / "scavenge_board.py").write_text(mended())
    passed = reader.run(*command, folder=reader.package)
    assert passed.returncode == 0, passed.stdout
    assert "1 passed" in passed.stdout
