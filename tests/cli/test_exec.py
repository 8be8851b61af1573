"""``scavenge exec``: what its command is given, what it finds, and what is left of it."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from gateway_story import Client, gateway_file
from run_kit import Folder, row, run_here
from told_server import Ask, Raw, Reply, Server, answered

ASKING = """
import http.client, json, os, sys
from urllib.parse import urlsplit
url = urlsplit(os.environ["OPENAI_BASE_URL"])
for n in range(int(sys.argv[1])):
    connection = http.client.HTTPConnection(url.hostname, url.port)
    body = {"model": "m", "messages": [{"role": "user", "content": f"What is {n} + 1 ?"}]}
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    connection.request("POST", url.path + "/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    said = json.loads(response.read())
    print(response.status, said["choices"][0]["message"]["content"] if response.status == 200 else said)
"""
PYTHON = (sys.executable, "-S", "-E")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    gateway_file(folder)
    return folder


def execute(folder: Folder, *command: str, level: str = "error") -> tuple[int, str]:
    """The exit code, and what scavenge itself said; what the command says goes to the real streams."""
    done = run_here(folder, "exec", "gateway.toml", "--log-level", level, "--", *command)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_the_command_has_its_streams_to_itself_and_no_endpoint_need_be_there(folder, capfd):
    script = "cat; echo 'line\t1'; printf 'no end' >&2; exit 7"
    with open(os.devnull) as nothing:
        stdin = os.dup(0)
        os.dup2(nothing.fileno(), 0)
        try:
            assert execute(folder, "sh", "-c", script) == (7, "")
        finally:
            os.dup2(stdin, 0)
            os.close(stdin)
    assert capfd.readouterr() == ("line\t1\n", "no end")


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["sh", "-c", "kill -9 $$"], 137, ""),
        (["sh", "-c", "kill -PIPE $$"], 141, ""),
        (["no-such-command", "--x"], 127, "scavenge: no-such-command: not found\n"),
        (["./no/such"], 127, "scavenge: ./no/such: not found\n"),
        (["./plain"], 126, "scavenge: ./plain: cannot be started: Permission denied\n"),
        (["./"], 126, "scavenge: ./: cannot be started: Permission denied\n"),
        (["./lost"], 127,
         "scavenge: ./lost: cannot be started: the interpreter that its first line names is not there\n"),
        (["./odd"], 126, "scavenge: ./odd: cannot be started: Exec format error\n"),
    ],
)  # fmt: skip
def test_the_exit_code_is_the_commands_or_tells_why_it_has_none(folder, command, code, says):
    (folder.path / "plain").write_text("exit 0\n")
    for name, text in {"lost": "#!/no/such/interpreter\n", "odd": "\x7fELF"}.items():
        (folder.path / name).write_text(text)
        (folder.path / name).chmod(0o755)
    assert execute(folder, *command) == (code, says)


def test_the_command_is_given_the_gateway_and_all_else_as_it_was(folder, capfdbinary, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user-0123456789")
    monkeypatch.setenv("NO_PROXY", "10.0.0.1")
    monkeypatch.setenv("ODD", "\udcff")
    monkeypatch.delenv("no_proxy", raising=False)
    assert execute(folder, "env", "-0") == (0, "")
    told = capfdbinary.readouterr().out.split(b"\0")[:-1]
    given = dict(os.fsdecode(line).split("=", 1) for line in told)
    base_url, token = given["OPENAI_BASE_URL"], given["OPENAI_API_KEY"]
    assert base_url.startswith("http://127.0.0.1:")
    assert base_url.endswith("/v1")
    assert len(token) >= 32
    new = {
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "OPENAI_API_KEY": token,
        "NO_PROXY": "10.0.0.1,127.0.0.1,localhost",
        "no_proxy": "10.0.0.1,127.0.0.1,localhost",
    }
    assert given == {**os.environ, **new}


def test_what_it_asks_is_answered_although_servers_die(folder, capfd):
    def dying(ask: Ask) -> Reply:
        return answered(ask) if ask.number == 1 else Raw(b"HTTP/1.1 200 OK\r\n", reset=True)

    with Server(dying) as first, Server() as second:
        folder.list(row(first, max_concurrent=1), row(second, max_concurrent=1))
        assert execute(folder, *PYTHON, "-c", ASKING, "6") == (0, "")
    assert capfd.readouterr().out.splitlines() == [f"200 {n + 1}" for n in range(6)]


def test_scavenge_says_nothing_while_all_is_well(folder, capfd):
    with Server() as server:
        folder.list(row(server))
        done = run_here(folder, "exec", "gateway.toml", *PYTHON, "-c", ASKING, "1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert capfd.readouterr() == ("200 1\n", "")


def test_when_it_has_ended_nobody_answers_any_more(folder, capfd):
    with Server() as server:
        folder.list(row(server))
        left = "sleep 1000 & echo $!; echo $OPENAI_BASE_URL; echo $OPENAI_API_KEY"
        assert execute(folder, "sh", "-c", left) == (0, "")
        number, base_url, token = capfd.readouterr().out.split()
        os.kill(int(number), 9)  # it was there still
        with pytest.raises(ConnectionRefusedError):
            Client(base_url, token).ask()


def test_the_files_address_and_token_have_no_effect(folder, capfd):
    (folder.path / "gateway.toml").write_text(
        'endpoints_path = "endpoints.toml"\nelastic = true\n'
        '[gateway]\nhost = "0.0.0.0"\nport = 1\ntoken_var = "NOT_SET"\n'
    )
    assert execute(folder, "sh", "-c", "echo $OPENAI_BASE_URL") == (0, "")
    url = urlsplit(capfd.readouterr().out.strip())
    assert url.hostname == "127.0.0.1"
    assert url.port != 1


def test_nobody_else_gets_in(folder, capfd):
    script = """
import http.client, os
from urllib.parse import urlsplit
url = urlsplit(os.environ["OPENAI_BASE_URL"])
connection = http.client.HTTPConnection(url.hostname, url.port)
connection.request("GET", "/v1/models")
print(connection.getresponse().status)
"""
    assert execute(folder, *PYTHON, "-c", script) == (0, "")
    assert capfd.readouterr().out == "401\n"


def test_the_token_is_taken_out_of_what_scavenge_says(folder, monkeypatch):
    monkeypatch.setattr("secrets.token_urlsafe", lambda _: "opal-zebra")
    assert execute(folder, "./opal-zebra") == (127, "scavenge: ./[secret]: not found\n")


def test_a_wrong_file_is_told_and_the_command_is_not_started(folder, capfd):
    (folder.path / "gateway.toml").write_text("elastick = true\n")
    code, told = execute(folder, "touch", "started")
    assert code == 2
    assert "elastick" in told
    assert not (folder.path / "started").exists()
    assert capfd.readouterr() == ("", "")


def test_it_has_the_limits_that_it_would_have_without(folder, capfd):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = before[0] // 2 if before[0] > 0 else 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, (lower, before[1]))
    try:
        assert execute(folder, "sh", "-c", "ulimit -Sn") == (0, "")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert int(capfd.readouterr().out) == lower


def test_its_exit_code_is_known_where_the_system_was_told_to_bury_children_by_itself(folder):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert execute(folder, "sh", "-c", "exit 7") == (7, "")
    finally:
        signal.signal(signal.SIGCHLD, before)
