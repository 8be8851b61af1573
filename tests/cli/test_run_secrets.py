"""Servers that say a key aloud wherever they can: it is in nothing that a run writes, prints or keeps."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from run_kit import Folder, row, run_here
from told_server import Ask, Raw, Reply, Says, Server

KEY = "sk-opal+zebra/1234567890"
HEADER = "tok-jade-heron-4711"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def echo(ask: Ask) -> Reply:
    """Say the key in a different way each time."""
    key, header = ask.headers["authorization"], ask.headers["x-team-token"]
    said = f"{key} and {header}"
    ways: list[Reply] = [
        Says(500, json.dumps({"error": {"message": f"bad key {said}"}}).encode(), {"x-echo": said}),
        Says(500, f"<html>{said}</html>".encode(), {"content-type": "text/html"}),
        Says(400, json.dumps({"error": {"message": said, "code": said, "type": said}}).encode()),
        Says(200, json.dumps({"error": {"message": said, "code": 500}}).encode(), {"content-type": "application/json"}),
        Says(503, said.encode(), {"retry-after": "0"}),
        Says(200, b"data: " + json.dumps({"error": {"message": said}}).encode() + b"\n\n"),
        Says(200, b"data: {" + said.encode() + b"\n\n", {"content-type": "text/event-stream"}),
        Says(307, b"", {"location": f"http://elsewhere/?key={KEY}&{quote(KEY, safe='')}"}),
        Raw(f"HTTP/1.1 200 {said}\r\ncontent-length: nonsense {said}\r\n\r\n".encode()),
        Raw(f"{said}\r\n\r\n".encode()),
    ]
    return ways[ask.number % len(ways)]


def everything(folder: Folder, *told: str) -> dict[str, str]:
    """All that was told and kept, by place."""
    found = {str(path): data.decode(errors="replace") for path, data in folder.outputs()}
    return {**found, **{f"output {number}": text for number, text in enumerate(told)}}


def holds_no_secret(texts: dict[str, str]) -> None:
    for place, text in texts.items():
        for secret in (KEY, HEADER, quote(KEY, safe=""), json.dumps(KEY)[1:-1], KEY.replace("/", "\\/")):
            assert secret not in text, place


@pytest.mark.parametrize("answer", [echo, lambda ask: Says(401, f"no: {ask.headers['authorization']}".encode())])
def test_a_server_that_echoes_keys_puts_them_nowhere(folder, monkeypatch, answer):
    monkeypatch.setenv("POOL_KEY", KEY)
    folder.dataset(12)
    folder.evaluation("stall_timeout = 0.2\nmax_consecutive_failures = 0", ["max_retries = 1"])
    with Server(answer) as server:
        folder.list(row(server, key="POOL_KEY", headers={"x-team-token": HEADER}))
        done = run_here(folder, "run", "eval.toml", "--log-level", "debug")
        assert done.returncode in (1, 4)
        again = run_here(folder, "run", "--resume", str(folder.run_dir), "--json")
    assert server.asks
    texts = everything(folder, done.stdout, done.stderr, again.stdout, again.stderr)
    holds_no_secret(texts)
    assert "[secret]" in "".join(texts.values())


def test_a_model_that_repeats_the_key_in_its_replies_puts_it_into_no_result(folder, monkeypatch):
    monkeypatch.setenv("POOL_KEY", KEY)
    folder.dataset(6)
    folder.evaluation()
    with Server(lambda ask: f"you sent {ask.headers['authorization']} and {ask.headers['x-team-token']}") as server:
        folder.list(row(server, key="POOL_KEY", headers={"x-team-token": HEADER}))
        done = run_here(folder)
    assert done.returncode == 0, done.stderr
    texts = everything(folder, done.stdout, done.stderr)
    holds_no_secret(texts)
    assert all(line["completion"] == "you sent Bearer [secret] and [secret]" for line in folder.lines())


def test_the_key_of_a_fixed_server_stays_out_of_results_too(folder, monkeypatch):
    monkeypatch.setenv("POOL_KEY", KEY)
    folder.dataset(3)
    with Server(lambda ask: f"you sent {ask.headers['authorization']}") as server:
        folder.evaluation(pool=f'model = "m"\napi_base_url = "{server.url}"\napi_key_var = "POOL_KEY"')
        done = run_here(folder)
    assert done.returncode == 0, done.stderr
    holds_no_secret(everything(folder, done.stdout, done.stderr))
    assert all(line["completion"] == "you sent Bearer [secret]" for line in folder.lines())


def test_a_key_on_the_edge_of_what_is_cut_off_is_not_shown_in_part(folder, monkeypatch):
    monkeypatch.setenv("POOL_KEY", KEY)
    folder.dataset(400)
    folder.evaluation("max_consecutive_failures = 0")
    with Server(lambda ask: Says(400, b"x" * (ask.number * 3) + KEY.encode())) as server:
        folder.list(row(server, key="POOL_KEY", max_concurrent=4))
        done = run_here(folder)
    assert done.returncode == 1
    for place, text in everything(folder, done.stdout, done.stderr).items():
        assert KEY[:6] not in text, place


def test_a_plan_and_a_check_show_the_name_of_a_key_and_not_the_key(folder, monkeypatch):
    monkeypatch.setenv("POOL_KEY", KEY)
    folder.dataset(2)
    said = f"denied: {KEY} {HEADER}".encode()
    bare = Says(401, f"denied: {KEY}".encode())
    with Server(probe=Says(401, said, {"x-echo": KEY})) as server, Server(probe=bare) as fixed:
        one = f'model = "m"\napi_base_url = "{fixed.url}"\napi_key_var = "POOL_KEY"'
        folder.evaluation("", ['name = "a"', f'name = "b"\n#endpoint_id\n{one}'])
        folder.list(row(server, key="POOL_KEY", headers={"x-team-token": HEADER}))
        commands = (
            ("run", "eval.toml", "--dry-run"),
            ("check", "eval.toml"),
            ("check", "eval.toml", "--json"),
            ("check", "endpoints.toml", "--json"),
        )
        for arguments in commands:
            done = run_here(folder, *arguments)
            assert done.returncode in (0, 4), done.stderr
            holds_no_secret({"out": done.stdout, "err": done.stderr})
        assert "POOL_KEY" in run_here(folder, "run", "eval.toml", "--dry-run").stdout
    assert {probe["authorization"] for probe in (*server.probes, *fixed.probes)} == {f"Bearer {KEY}"}


def test_what_is_wrong_around_a_key_is_told_without_it(folder, monkeypatch):
    monkeypatch.setenv("POOL_KEY", KEY + "\n")
    folder.dataset(2)
    folder.evaluation("stall_timeout = 0.3")
    for bad in (
        row("http://127.0.0.1:9/v1", key="POOL_KEY"),
        row("http://127.0.0.1:9/v1", key=KEY),
        row(f"http://user:{HEADER}@127.0.0.1:9/v1"),
        row(f"http://127.0.0.1:9/v1?key={HEADER}"),
        row("http://127.0.0.1:9/v1", headers={"x-team-token": f"{HEADER}\nx: y"}),
        row("http://127.0.0.1:9/v1", headers={"x-team-token": [HEADER]}),
        row("http://127.0.0.1:9/v1", proxy=f"ftp://user:{HEADER}@127.0.0.1:9"),
    ):
        folder.list(bad)
        for arguments in (("run", "eval.toml"), ("check", "eval.toml", "--json"), ("check", "endpoints.toml")):
            done = run_here(folder, *arguments)
            assert done.returncode in (2, 4), (bad, done.stderr)
            holds_no_secret({f"out of {bad}": done.stdout, f"err of {bad}": done.stderr})
    if (folder.path / "runs").exists():
        holds_no_secret({str(path): data.decode() for path, data in folder.outputs()})
