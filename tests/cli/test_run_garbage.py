"""Datasets and servers that hold and say what nobody expects: every sample ends with exactly one result."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from run_kit import Folder, row, run_here
from told_server import Ask, Raw, Reply, Says, Server, answered, streamed, whole

ODD = "a\u2028b\u2029c\u0085d\x1ce\x00f\ufeffg\U0001f600"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_separators_nul_surrogates_and_long_rows_of_a_dataset_are_asked_kept_and_read_back(folder):
    questions = {"odd": ODD, "lone": "half \ud83d of a pair", "long": "x" * 10_000_000, "plain": "What is 1 + 1 ?"}
    rows = [{"id": key, "question": text, "answer": "2"} for key, text in questions.items()]
    (folder.path / "data.jsonl").write_bytes(
        b"".join(json.dumps(row, ensure_ascii=row["id"] == "lone").encode() + b"\n" for row in rows)
    )
    folder.evaluation("max_consecutive_failures = 0")
    with Server() as server:
        folder.list(row(server))
        done = run_here(folder)
        assert done.returncode == 1, done.stderr
        assert {ask.text for ask in server.asks} == {ODD, questions["long"], questions["plain"]}
        latest = {key[1]: line for key, line in folder.latest().items()}
        assert set(latest) == {"odd", "line:2", "long", "plain"}
        assert [key for key, line in latest.items() if line["status"] == "error"] == ["line:2"]
        assert latest["odd"]["prompt"] == [{"role": "user", "content": ODD}]
        data = (folder.run_dir / "results.jsonl").read_bytes()
        assert len(data.decode().splitlines()) == data.count(b"\n") == 4
        assert run_here(folder, "run", "--resume", str(folder.run_dir)).returncode == 1
        assert len(server.asks) == 3


def test_broken_rows_are_results_that_name_their_line_and_the_others_are_played(folder):
    good = [json.dumps({"id": str(n), "question": f"What is {n} + 1 ?", "answer": str(n + 1)}).encode() for n in (1, 2)]
    broken = [b"{", b"[1]", b'"text"', b"\xff\xfe", b'{"id": "x"}', b'{"id": "1", "question": "again", "answer": "1"}']
    (folder.path / "data.jsonl").write_bytes(b"\n".join([good[0], *broken, good[1], b'{"id": "cut", "question": "Wh']))
    folder.evaluation("max_consecutive_failures = 2")
    with Server() as server:
        folder.list(row(server))
        done = run_here(folder)
    assert done.returncode == 1, done.stderr
    latest = {key[1]: line for key, line in folder.latest().items()}
    assert {key for key, line in latest.items() if line["status"] == "ok"} == {"1", "2"}
    assert set(latest) == {"1", "2", *(f"line:{number}" for number in (2, 3, 4, 5, 6, 7, 9))}
    assert len(folder.lines()) == len(latest)
    for key, line in latest.items():
        if key.startswith("line:"):
            assert "data.jsonl" in line["error"]["message"]


HTML = Says(200, b"<html><title>504 Gateway</title></html>", {"content-type": "text/html"})
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
ONE_EVENT = streamed("4", None)
BAD_REPLIES: dict[str, Reply] = {
    "html": HTML,
    "nothing": Says(200, b""),
    "broken json": Says(200, whole("4")[:-9], {"content-type": "application/json"}),
    "no choices": Says(200, b'{"choices": []}', {"content-type": "application/json"}),
    "an error": Says(200, b'{"error": {"message": "out of memory"}}', {"content-type": "application/json"}),
    "a stream that is cut": Raw(HEAD + b"content-length: 5000\r\n\r\n" + ONE_EVENT),
    "a stream without an end": Raw(HEAD + b"connection: close\r\n\r\n" + ONE_EVENT),
    "a stream that is reset": Raw(HEAD + b"connection: close\r\n\r\n" + ONE_EVENT, reset=True),
    "a stream that aborts": Says(200, streamed("4", "abort"), {"content-type": "text/event-stream"}),
    "a broken chunk": Raw(HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n"),
    "a reset": Raw(b"", reset=True),
    "an end": Raw(b""),
    "half a head": Raw(b"HTTP/1.1 200 OK\r\nconten"),
    "no http": Raw(b"\x16\x03\x01\x00\x00 hello\r\n\r\n"),
    "500": Says(500, b"oops"),
    "429": Says(429, b"slow down", {"retry-after": "0"}),
    "503": Says(503, b"loading", {"retry-after": "0"}),
    "nul": Says(200, b"\x00" * 100, {"content-type": "application/json"}),
}


@pytest.mark.parametrize("stream", ["true", "false"])
def test_a_fault_of_the_server_now_and_then_costs_no_sample(folder, stream):
    folder.dataset(len(BAD_REPLIES) * 2)
    folder.evaluation("", [f"stream = {stream}\nmax_retries = 9\nmax_concurrent = 4"])
    bad = list(BAD_REPLIES.values())

    def answer(ask: Ask) -> Reply:
        turn, nth = divmod(ask.number, 3)
        return bad[turn % len(bad)] if nth == 0 else answered(ask)

    with Server(answer) as shaky, Server() as steady:
        folder.list(row(shaky, max_concurrent=2), row(steady, max_concurrent=1))
        done = run_here(folder)
    assert done.returncode == 0, done.stderr
    assert len(folder.lines()) == len(folder.latest()) == len(BAD_REPLIES) * 2
    assert all(line["reward"] == 1.0 for line in folder.lines())


def test_a_reply_that_is_none_is_never_a_result(folder):
    folder.dataset(4)
    names = list(BAD_REPLIES)
    limits = "max_retries = 0\nmax_lost = 1"
    evals = [f'name = "{name}"\nendpoint_id = "{name}"\n{limits}' for name in names]
    folder.evaluation("stall_timeout = 0.2\nmax_consecutive_failures = 0", evals)
    with ExitStack() as servers:
        listed = [(name, servers.enter_context(Server(lambda ask, name=name: BAD_REPLIES[name]))) for name in names]
        folder.list(*(row(server, endpoint_id=name) for name, server in listed))
        done = run_here(folder)
        assert all(server.asks for _, server in listed)
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    lines = folder.lines()
    assert {line["status"] for line in lines} == {"error"}
    assert {line["eval"] for line in lines} >= {"html", "broken json", "no choices", "an error", "500"}
    assert len(lines) == len(folder.latest())


def test_a_server_that_resets_each_fifth_request_is_used_and_loses_nothing(folder):
    folder.dataset(60)
    folder.evaluation("", ["max_retries = 0\nmax_concurrent = 6"])
    reset = Raw(HEAD + b"content-length: 500\r\n\r\n" + ONE_EVENT, reset=True)
    with Server(lambda ask: reset if ask.number % 5 == 0 else answered(ask)) as one, Server() as two:
        folder.list(row(one, max_concurrent=3), row(two, max_concurrent=3))
        done = run_here(folder)
    assert done.returncode == 0, done.stderr
    assert len(folder.lines()) == len(folder.latest()) == 60
    assert all(line["reward"] == 1.0 for line in folder.lines())


def test_odd_and_huge_replies_are_results_as_they_are(folder):
    folder.dataset(4)
    said = [ODD, "y" * 10_000_000, "", "half \ud83d of a pair"]
    folder.evaluation("", ['env_args = { dataset = "data.jsonl", scorer = "none" }'])
    with Server(lambda ask: said[int(ask.text.split()[2])]) as server:
        folder.list(row(server))
        done = run_here(folder)
    assert done.returncode == 0, done.stderr
    latest = {key[1]: line for key, line in folder.latest().items()}
    assert [latest[str(number)]["completion"] for number in range(3)] == said[:3]
    assert latest["3"]["completion"].startswith("half ")
