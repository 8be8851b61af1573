"""``scavenge serve`` as a process: what it prints, whom it answers, and how it ends."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from gateway_story import GATEWAY, Client, Holding, gateway_file, last_line, serving
from run_kit import Folder, row, run_here
from told_server import BOUND_S, Says, Server

TOKEN = "opal-zebra-token-1"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    gateway_file(folder)
    return folder


def wait_refused(client: Client) -> None:
    """Wait until it takes no more connections."""
    url = urlsplit(client.base_url)
    ends_at = time.monotonic() + BOUND_S
    with contextlib.suppress(ConnectionRefusedError):
        while time.monotonic() < ends_at:
            socket.create_connection((url.hostname, url.port)).close()
            time.sleep(0.01)
        pytest.fail("it still takes connections")


def test_it_tells_its_address_has_requests_wait_answers_and_ends_with_0(folder):
    with Server() as server, serving(folder, "gateway.toml") as (running, client):
        with client.asking() as pending:
            running.wait_told("no such file")
            folder.list(row("http://127.0.0.1:9/v1"), row(server))
        assert pending.said is not None
        assert pending.said.text == "2"
        assert client.ask(stream=True).body.endswith("data: [DONE]\n\n")
        assert client.ask(model="m").status == 200
        assert "pool" in {card["id"] for card in json.loads(client.get("/models").body)["data"]}
        assert client.ask(model="other").status == 404
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    assert running.out == f"{client.base_url}\n"
    assert last_line(running.told).partition(";")[0] == "3 calls: 3 answered"
    assert "Traceback" not in running.told


def test_an_endpoints_file_is_served_to_those_who_know_the_token(folder):
    options = ("--port", "0", "--token-var", "DOOR", "--log-level", "debug")
    served = serving(folder, "endpoints.toml", *options, token=TOKEN, environ={"DOOR": TOKEN}, prelude=["nohup"])
    strange = Says(401, f'{{"error": {{"message": "not {TOKEN}"}}}}'.encode())
    with Server() as server, Server(probe=strange) as other:
        folder.list(row(server), row(other, endpoint_id="other"))
        with served as (running, client):
            running.signal(signal.SIGHUP)  # which nohup has it ignore
            running.wait_told("not [secret]")
            assert client.ask().text == "2"
            assert Client(client.base_url).ask().status == 401
            assert Client(client.base_url, TOKEN + "x").ask().status == 401
            running.signal(signal.SIGINT)
            assert running.wait() == 0
        assert TOKEN not in running.told + running.out
        assert len(server.asks) == 1


def test_what_is_under_way_at_the_first_signal_ends_in_good_order(folder):
    holding = Holding()
    with Server(holding) as server:
        folder.list(row(server))
        with serving(folder, "gateway.toml") as (running, client):
            with client.asking() as whole, client.asking(stream=True) as streamed:
                server.wait_asked(2)
                running.signal(signal.SIGHUP)
                running.wait_told("SIGHUP: no more requests are taken; those under way have 30 seconds")
                wait_refused(client)
                holding.go.set()
            assert running.wait() == 0
    assert whole.said is not None
    assert whole.said.text == "2"
    assert streamed.said is not None
    assert streamed.said.body.endswith("data: [DONE]\n\n")
    assert last_line(running.told) == "2 calls: 2 answered"


@pytest.mark.parametrize(
    ("options", "signals", "code"), [((), ["SIGTERM", "SIGINT"], 143), (("--grace", "0.05"), ["SIGINT"], 130)]
)
def test_what_is_under_way_at_the_second_signal_or_after_the_grace_is_cut(folder, options, signals, code):
    holding = Holding()
    with Server(holding) as server:
        folder.list(row(server))
        with serving(folder, "gateway.toml", *options) as (running, client):
            with client.asking() as whole, client.asking(stream=True) as streamed:
                server.wait_asked(2)
                for name in signals:
                    running.signal(signal.Signals[name])
                    running.wait_told("no more requests are taken")
                assert running.wait() == code
            holding.go.set()
    for pending in (whole, streamed):
        assert pending.said is None or (pending.said.status, "[DONE]" in pending.said.body) == (503, False)
    assert last_line(running.told) == "2 calls: 2 cut"
    assert "Traceback" not in running.told


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--port", "TAKEN"], "TAKEN"),
        (["--token-var", "NOT_SET"], "NOT_SET is not set"),
        (["--token-var", "EMPTY"], "EMPTY is empty"),
        (["--token-var", "ODD"], "ODD has blanks"),
        (["--host", "0.0.0.0"], "--token-var"),
        (["--grace", "-1"], "grace"),
        (["--grace", "nan"], "grace"),
        (["--port", "65536"], "--port"),
        (["--set", "gateway.prot=1"], "prot"),
        (["--set", "gateway.token_var=NOT_SET"], "NOT_SET is not set"),
    ],
)
def test_what_it_cannot_do_is_told_in_one_line_and_exit_code_2(folder, options, says, monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("ODD", "a b")
    folder.list(row("http://127.0.0.1:9/v1"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_here(folder, "serve", "gateway.toml", *(option.replace("TAKEN", port) for option in options))
    assert done.returncode == 2
    assert done.stdout == ""
    assert says.replace("TAKEN", port) in last_line(done.stderr)
    assert "Traceback" not in done.stderr


def test_a_file_that_is_wrong_is_told_and_nothing_is_served(folder):
    (folder.path / "gateway.toml").write_text(GATEWAY + "prot = 1\n")
    done = run_here(folder, "serve", "gateway.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "gateway.prot" in done.stderr
