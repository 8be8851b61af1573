"""Every state that an endpoints file can be in while a run goes on: who stays, who goes, and what is said of it, once.

Two servers answer all the time. A server that stays gets more requests, whatever else happens; one that goes gets no
more once that has been told.
"""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from run_kit import Folder, Running, row, run_here, started
from told_server import Ask, Reply, Server, answered

ENOUGH = 100_000
"""More samples than a test plays."""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def slowly(ask: Ask) -> Reply:
    time.sleep(0.01)
    return answered(ask)


def stays(*servers: Server) -> None:
    """Wait until each has got more work."""
    for server in servers:
        server.wait_more(6)


def goes(gone: Server, other: Server) -> None:
    """Look that one gets no work any more while the other does. What was on its way to it may arrive first."""
    other.wait_more(4)
    had = len(gone.asks)
    other.wait_more(12)
    assert len(gone.asks) == had


def write_slowly(folder: Folder, *rows: str) -> None:
    """Write into the file itself, with a pause in the middle of a row."""
    text = "\n".join(rows)
    with folder.endpoints.open("w") as file:
        file.write(text[: len(text) * 2 // 3])
        file.flush()
        time.sleep(0.25)
        file.write(text[len(text) * 2 // 3 :])


def test_whatever_happens_to_the_file_the_run_keeps_its_servers_and_tells_each_change_once(folder):
    folder.dataset(ENOUGH)
    folder.evaluation()
    with Server(slowly) as one, Server(slowly) as two:
        good = (row(one, max_concurrent=2), row(two, max_concurrent=2))
        folder.list(*good)
        with started(folder) as running:
            stays(one, two)
            unreadable = 0

            def spoilt(says: str) -> None:
                running.wait_told(says)
                stays(one, two)
                nonlocal unreadable
                unreadable += 1
                if folder.endpoints.is_dir():
                    folder.endpoints.rmdir()
                folder.list(*good)
                running.wait_told("readable again", unreadable)

            folder.endpoints.unlink()
            spoilt("no such file")
            folder.endpoints.write_text("")
            spoilt("half-written")
            folder.endpoints.write_text("\n".join(good)[:-30])
            spoilt("endpoints.toml: line ")
            folder.endpoints.write_bytes(b'[[endpoint]]\nmodel = "\xff\xfe"\n')
            spoilt("UTF-8")
            folder.endpoints.unlink()
            folder.endpoints.mkdir()
            spoilt("this is a folder")
            folder.endpoints.write_text('endpoint = "none"\n')
            spoilt("table")
            stays(one, two)
            running.signal(signal.SIGINT)
            assert running.wait() == 130
        gone = running.count("no such file")
        assert 1 <= gone <= 3  # a folder takes the file's place, and gives it back, by way of none
        assert running.count("the last good listing, 2 endpoints, stands") - gone == unreadable - 1, running.told
        assert running.count("readable again") == unreadable
        assert running.count("takes no new work") == running.count(" left") == 0
        assert running.count(" joined") == 2


def test_a_wrong_row_costs_only_itself_and_is_told_once(folder):
    folder.dataset(ENOUGH)
    folder.evaluation()
    with Server(slowly) as one, Server(slowly) as two, Server(slowly) as new:
        good = [row(one, max_concurrent=2), row(two, max_concurrent=2)]
        folder.list(*good)
        with started(folder) as running:
            stays(one, two)
            wrong = {
                "another id's": row("ftp://x", endpoint_id="other"),
                "a duplicate": row(one, max_concurrent=9),
                "a duplicate with a slash": row(one.url + "/", max_concurrent=9),
                "a cap that is a boolean": row("http://127.0.0.1:9/v1", max_concurrent=True),
                "a cap of 0": row("http://127.0.0.1:9/v1", max_concurrent=0),
                "a cap below 0": row("http://127.0.0.1:9/v1", max_concurrent=-1),
                "a cap that is text": row("http://127.0.0.1:9/v1", max_concurrent="2"),
                "no cap": row("http://127.0.0.1:9/v1"),
                "another model": row("http://127.0.0.1:9/v1", model="n", max_concurrent=2),
                "a variable that is not set": row("http://127.0.0.1:9/v1", key="NO_SUCH_KEY", max_concurrent=2),
            }
            for count, bad in enumerate(wrong.values(), 1):
                folder.list(*good, bad)
                running.wait_told("this row is left out", count)
                stays(one, two)
                folder.list(*good)
                running.wait_told("every row is right again", count)
            of_one = (
                {"max_concurrent": "3"},
                {"max_concurrent": 2, "wait": 3},
                {"max_concurrent": 2, "key": "NO_SUCH_KEY"},
            )
            for known, keys in enumerate(of_one, 1):
                folder.list(row(one, **keys), good[1])
                running.wait_told("its last good settings stand", known)
                stays(one, two)
                folder.list(*good)
                running.wait_told("every row is right again", count + known)
            folder.list(row("ftp://x", endpoint_id="other"), *good, row(new, max_concurrent=2))
            running.wait_told("this row is left out", count + 1)
            stays(one, two, new)
            running.signal(signal.SIGINT)
            assert running.wait() == 130
        told = running.told
        assert running.count("this row is left out") == count + 1, told
        assert running.count("its last good settings stand") == len(of_one), told
        assert running.count("takes no new work") == running.count(" left\n") == 0, told
        assert running.count("new settings") == 0, told
        assert running.count(" joined") == 3
        assert max(one.peak, two.peak, new.peak) <= 2


def test_new_settings_of_a_known_url_hold_for_new_work(folder, monkeypatch):
    monkeypatch.setenv("FIRST_KEY", "opal-zebra-1")
    monkeypatch.setenv("SECOND_KEY", "jade-heron-2")
    folder.dataset(ENOUGH)
    folder.evaluation()
    with Server(slowly) as one, Server(slowly) as two:
        other = row(two, max_concurrent=2)
        folder.list(row(one, max_concurrent=1, key="FIRST_KEY"), other)
        with started(folder) as running:
            stays(one, two)
            folder.list(row(one.url + "/", max_concurrent=1, key="SECOND_KEY", headers={"x-team": "blue"}), other)
            running.wait_told("has new settings")
            one.wait_more(3)
            assert one.asks[-1].headers["authorization"] == "Bearer jade-heron-2"
            assert one.asks[-1].headers["x-team"] == "blue"
            assert one.peak == 1
            folder.list(row(one.url, max_concurrent=5, key="SECOND_KEY", headers={"x-team": "blue"}), other)
            running.wait_told("new settings: max_concurrent")
            wait_until(lambda: one.peak == 5)
            folder.list(row(one, draining=True, max_concurrent=5, key="SECOND_KEY", headers={"x-team": "blue"}), other)
            running.wait_told("takes no new work")
            goes(one, two)
            folder.list(row(one, max_concurrent=1, key="SECOND_KEY", headers={"x-team": "blue"}), other)
            stays(one, two)
            running.signal(signal.SIGINT)
            running.wait()
        assert running.count("has new settings") == 3, running.told
        assert running.count("takes no new work") == 1
        assert running.count(" left\n") == 0
        assert "opal-zebra" not in running.told
        assert "jade-heron" not in running.told


def wait_until(condition) -> None:
    bound = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < bound
        time.sleep(0.01)


def test_a_vanished_row_drains_then_goes_and_comes_back_and_an_empty_listing_drains_them_all(folder):
    folder.dataset(ENOUGH)
    folder.evaluation()
    with Server(slowly) as one, Server(slowly) as two:
        good = (row(one, max_concurrent=2), row(two, max_concurrent=2))
        folder.list(*good)
        with started(folder) as running:
            stays(one, two)
            folder.list(good[1])
            running.wait_told(f"{one.url} takes no new work")
            running.wait_told(f"{one.url} left")
            goes(one, two)
            folder.list(*good)
            running.wait_told(f"{one.url} joined", 2)
            stays(one, two)
            folder.list()
            running.wait_told(" left\n", 3)
            running.wait_told("waiting for an endpoint: no endpoint is listed")
            folder.list(*good)
            running.wait_told(f"{one.url} joined", 3)
            stays(one, two)
            running.signal(signal.SIGINT)
            running.wait()
        assert running.count(" left\n") == 3, running.told
        assert running.count(" joined\n") == 5
        assert running.count("waiting for an endpoint") == 1
        assert max(one.peak, two.peak) <= 2
    assert all(len(line["attempts"]) == 1 for line in folder.lines())


def test_writing_into_the_file_itself_removes_nobody(folder):
    folder.dataset(ENOUGH)
    folder.evaluation()
    with Server(slowly) as one, Server(slowly) as two:
        good = (row(one, max_concurrent=2), row(two, max_concurrent=2))
        folder.list(*good)
        with started(folder) as running:
            stays(one, two)
            for _ in range(4):
                write_slowly(folder, *good)
                stays(one, two)
            running.signal(signal.SIGINT)
            running.wait()
        assert running.count(" left\n") == 0, running.told
        assert max(one.peak, two.peak) <= 2


def test_an_endpoint_that_is_removed_and_listed_again_while_busy_never_has_more_than_its_cap(folder):
    folder.dataset(30)
    folder.evaluation()
    go = threading.Event()

    def answer(ask: Ask) -> Reply:
        go.wait()
        return answered(ask)

    with Server(answer) as one:
        folder.list(row(one, max_concurrent=3))
        with started(folder) as running:
            one.wait_asked(3)
            folder.list(row("http://127.0.0.1:9/v1", max_concurrent=1))
            running.wait_told(f"{one.url} left")
            folder.list(row(one, max_concurrent=3))
            running.wait_told(f"{one.url} joined", 2)
            running.wait_told(f"{one.url} is live", 2)
            go.set()
            assert running.wait() == 0
        assert one.peak == 3
    assert all(len(line["attempts"]) == 1 for line in folder.lines())


def test_an_endpoint_of_another_model_is_never_sent_work(folder):
    folder.dataset(20)
    folder.evaluation()
    with Server() as one, Server(model="n") as other:
        folder.list(row(one), row(other, model="n"))
        done = run_here(folder)
        assert done.returncode == 2
        assert "endpoint[1]" in done.stderr
        folder.list(row(one), row(other, model="n", endpoint_id="else"))
        assert run_here(folder).returncode == 0
        assert (len(one.asks), len(other.asks)) == (20, 0)


@pytest.mark.parametrize("state", ["missing", "empty list"])
def test_a_run_that_starts_without_any_endpoint_waits_for_the_first(folder, state):
    folder.dataset(5)
    folder.evaluation()
    if state == "empty list":
        folder.list()
    with Server() as one, started(folder) as running:
        said: Running = running
        said.wait_told("waiting for an endpoint")
        folder.list(row(one))
        assert said.wait() == 0
    assert len(folder.lines()) == 5
    assert running.count("waiting for an endpoint") == 1
