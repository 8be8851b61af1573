"""Runs over servers that a page or a program lists, as that changes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from run_kit import Folder, resume_arguments, row, run, run_here, started
from told_server import Ask, Reply, Server, answered

EVAL = """\
elastic = true
elastic_poll_interval = 0.1
{source}
[[eval]]
env_id = "chat"
endpoint_id = "pool"
env_args = {{ dataset = "data.jsonl" }}
"""
COMMAND = '[[source]]\ntype = "command"\ncommand = ["cat", "endpoints.toml"]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.dataset(20_000)
    return folder


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def site(folder: Folder) -> Iterator[str]:
    """Serve the folder's files as Python's own server does, and say where."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder.path))) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@contextmanager
def source(kind: str, folder: Folder) -> Iterator[str]:
    """The table of a source that leads to the folder's ``endpoints.toml``."""
    if kind == "command":
        yield COMMAND
    else:
        with site(folder) as url:
            yield f'[[source]]\ntype = "http"\nurl = "{url}/endpoints.toml?v=1"\n'


def slowly(ask: Ask) -> Reply:
    time.sleep(0.01)
    return answered(ask)


@pytest.mark.parametrize(
    ("kind", "trouble"), [("http", "HTTP 404: there is nothing; see `url`"), ("command", "exit code 1; run it by hand")]
)
def test_a_run_follows_what_is_listed_and_keeps_its_servers_while_nothing_is(folder, kind, trouble):
    with Server(slowly) as one, Server(slowly) as two, source(kind, folder) as table:
        (folder.path / "eval.toml").write_text(EVAL.format(source=table))
        folder.list(row(one))
        with started(folder) as running:
            one.wait_more(3)
            folder.list(row(one), row(two))
            running.wait_told(f"{two.url} joined")
            two.wait_more(3)
            folder.list(row(two, drain_deadline="2100-01-01T00:00:00Z"), row(one))
            running.wait_told(f"{two.url} takes no new work")
            folder.list(row(one), row(two))
            running.wait_told(f"{two.url} has new settings: drain_deadline", 2)
            two.wait_more(6)
            folder.endpoints.unlink()
            running.wait_told(trouble)
            one.wait_more(3)
            two.wait_more(3)
            folder.list(row(two))
            running.wait_told("readable again")
            running.wait_told(f"{one.url} left")
            running.signal(signal.SIGINT)
            assert running.wait() == 130
    assert running.count("the last good listing, 2 endpoints, stands") == 1, running.told
    assert running.count("eval.toml: source[0]: ") == 2, running.told


def test_a_resumed_run_runs_the_program_where_it_ran_before(folder):
    folder.dataset(40)
    (folder.path / "eval.toml").write_text(EVAL.format(source=COMMAND))
    with Server(slowly) as one:
        folder.list(row(one, max_concurrent=1))
        with started(folder) as running:
            one.wait_asked(5)
            running.signal(signal.SIGINT)
            assert running.wait() == 130
        elsewhere = Folder(folder.path / "elsewhere")
        elsewhere.path.mkdir()
        done = run(elsewhere, *resume_arguments(running.told), "--no-progress")
        assert done.returncode == 0, done.stderr
    assert len(folder.latest()) == 40


def test_the_other_commands_ask_the_program_too(folder):
    (folder.path / "eval.toml").write_text(EVAL.format(source=COMMAND))
    with Server() as one:
        folder.list(row(one))
        shown = run_here(folder, "endpoints", "eval.toml", "--once")
        assert shown.returncode == 0, shown.stderr
        assert one.url in shown.stdout
        assert run_here(folder, "check", "eval.toml").returncode == 0
    folder.list("url = 3")
    checked = run_here(folder, "check", "eval.toml")
    assert checked.returncode != 0
    assert "cat: what it prints is no listing: unknown key url" in checked.stdout + checked.stderr


def test_a_token_that_is_not_there_ends_a_run_before_it_starts(folder, monkeypatch):
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    table = '[[source]]\ntype = "http"\nurl = "http://127.0.0.1:9/"\ntoken_var = "NO_SUCH_TOKEN"\n'
    (folder.path / "eval.toml").write_text(EVAL.format(source=table))
    done = run_here(folder)
    assert done.returncode == 2
    assert "source[0] cannot be opened: the environment variable NO_SUCH_TOKEN is not set" in done.stderr


def test_wrong_keys_are_told_before_anything_starts(folder):
    table = '[[source]]\ntype = "http"\nurl = "h"\ntoken = "x"\n[[source]]\ntype = "command"\ncommand = "ls"\n'
    (folder.path / "eval.toml").write_text(EVAL.format(source=table))
    done = run_here(folder, "run", "eval.toml", "--dry-run")
    assert done.returncode == 2
    for problem in (
        "source[0].url: expected an absolute",
        "source[0].token: unknown key",
        "source[1].command: expected",
    ):
        assert problem in done.stderr
