"""What the stories of ``scavenge run`` are made of: files, and runs as processes or in this one.

Every wait is for a condition and has a bound; how long something takes decides nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import resource
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
from told_server import BOUND_S, Server

from scavenge.cli.main import exit_status

# --- files


def row(server: Server | str, **more: object) -> str:
    """One table of ``endpoints.toml``."""
    keys = {"endpoint_id": "pool", "model": "m", "url": server if isinstance(server, str) else server.url, **more}
    return "[[endpoint]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in keys.items())


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


@attrs.frozen
class Folder:
    """Where a run's files are."""

    path: Path

    @property
    def endpoints(self) -> Path:
        return self.path / "endpoints.toml"

    def dataset(self, count: int, name: str = "data.jsonl") -> None:
        """Write questions ``What is N + 1``, with the ids ``0`` to ``count - 1``."""
        rows = ({"id": str(n), "question": f"What is {n} + 1 ?", "answer": str(n + 1)} for n in range(count))
        (self.path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def list(self, *rows: str) -> None:
        """Replace the endpoints file in one step."""
        beside = self.path / "endpoints.new"
        beside.write_text("\n".join(rows) or "endpoint = []\n")
        beside.replace(self.endpoints)

    def evaluation(self, keys: str = "", evals: Sequence[str] = ("",), pool: str = 'endpoint_id = "pool"') -> None:
        """Write ``eval.toml`` with one ``[[eval]]`` for each of *evals*, the keys that it has beside the usual ones."""
        text = 'endpoints_path = "endpoints.toml"\nelastic = true\nelastic_poll_interval = 0.1\n' + keys + "\n"
        for more in evals:
            text += f'[[eval]]\nenv_id = "chat"\n{pool if "endpoint_id" not in more else ""}\n{more}\n'
            if "env_args" not in more:
                text += 'env_args = { dataset = "data.jsonl" }\n'
        (self.path / "eval.toml").write_text(text)

    @property
    def run_dir(self) -> Path:
        """The only run's folder."""
        (found,) = (self.path / "runs").iterdir()
        return found

    def lines(self, *, torn: bool = False) -> list[dict[str, object]]:
        """The results in the order they were written; with *torn*, what is no record is passed over."""
        found = []
        for line in (self.run_dir / "results.jsonl").read_bytes().split(b"\n"):
            try:
                document = json.loads(line) if line else None
            except ValueError:
                assert torn, f"no JSON: {line[:200]!r}"
                continue
            if isinstance(document, dict) and "status" in document:
                found.append(document)
        return found

    def latest(self) -> dict[tuple[str, str, int], dict[str, object]]:
        """The line that counts for each key."""
        return {key_of(line): line for line in self.lines()}

    def summary(self) -> dict[str, object]:
        return json.loads((self.run_dir / "summary.json").read_text())

    def outputs(self) -> Iterator[tuple[Path, bytes]]:
        """Every file that runs left."""
        for path in (self.path / "runs").rglob("*"):
            if path.is_file():
                yield path, path.read_bytes()


def key_of(line: Mapping[str, object]) -> tuple[str, str, int]:
    return (line["eval"], line["example_id"], line["rollout"])  # type: ignore[return-value]


# --- runs


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "scavenge", *arguments]


def resume_arguments(told: str) -> list[str]:
    """The arguments of the resume command that a run told, which must be told once."""
    (line,) = [line for line in told.splitlines() if line.startswith("resume with: ")]
    program, *arguments = shlex.split(line.removeprefix("resume with: "))
    assert program == "scavenge"
    return arguments


def run(folder: Folder, *arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    """Run the program to its end; without arguments, ``run eval.toml``."""
    wanted = arguments or ("run", "eval.toml", "--no-progress")
    with started(folder, *wanted, **more) as running:  # type: ignore[arg-type]
        code = running.wait()
        return subprocess.CompletedProcess(wanted, code, running.out, running.told)


def run_here(folder: Folder, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which is quicker: for stories without signals, limits and kills."""
    wanted = arguments or ("run", "eval.toml", "--no-progress")
    out, err = io.StringIO(), io.StringIO()
    redirected = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with _logging_kept(), contextlib.chdir(folder.path), redirected[0], redirected[1]:
        code = exit_status(wanted)
    return subprocess.CompletedProcess(wanted, code, out.getvalue(), err.getvalue())


@contextmanager
def _logging_kept() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (None, "scavenge", "httpx", "httpcore")]
    levels, handlers = [logger.level for logger in loggers], loggers[0].handlers[:]
    try:
        yield
    finally:
        loggers[0].handlers[:] = handlers
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        logging.captureWarnings(capture=False)


@attrs.define(eq=False)
class Running:
    """A run under way. What it says on standard error is collected as it comes."""

    process: subprocess.Popen[str]
    lines: list[str] = attrs.field(factory=list)
    out: str = ""
    _changed: threading.Condition = attrs.field(factory=threading.Condition)
    _readers: list[threading.Thread] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        for read in (self._read_err, self._read_out):
            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            self._readers.append(reader)

    def _read_err(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.out += line
                self._changed.notify_all()

    @property
    def told(self) -> str:
        return "".join(self.lines)

    def count(self, text: str) -> int:
        """How many lines told so far have a text."""
        return sum(text in line for line in self.lines)

    def wait_told(self, text: str, times: int = 1) -> None:
        """Wait until a text was told so many times."""
        with self._changed:
            heard = self._changed.wait_for(lambda: self.count(text) >= times, BOUND_S)
        assert heard, f"waited in vain for {text!r} in:\n{self.told}"

    def wait_out(self, text: str) -> None:
        """Wait until standard output has a text."""
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.out, BOUND_S), f"no {text!r} in:\n{self.told}"

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end and for all that it said; the exit code."""
        code = self.process.wait(BOUND_S)
        for reader in self._readers:
            reader.join(BOUND_S)
        return code


@contextmanager
def started(
    folder: Folder,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    limits: Iterable[tuple[int, int]] = (),
    prelude: Sequence[str] = (),
) -> Iterator[Running]:
    """Start the program in *folder*; *limits* are resource limits, it is killed if it still runs at the end."""
    wanted = arguments or ("run", "eval.toml", "--no-progress")

    def limit() -> None:
        for kind, value in limits:
            resource.setrlimit(kind, (value, value))

    process = subprocess.Popen(
        [*prelude, *command(*wanted)],
        cwd=folder.path,
        env={**os.environ, **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="surrogateescape",
        preexec_fn=limit if limits else None,
    )
    with process:
        running = Running(process)
        try:
            yield running
        finally:
            process.kill()
            running.wait()
