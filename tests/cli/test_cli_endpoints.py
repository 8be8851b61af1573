"""``scavenge endpoints`` over real servers, as a process."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from run_kit import Folder, command, row, run_here, started
from told_server import BOUND_S, Raw, Says, Server

DEAD = "http://127.0.0.1:1/v1"
"""Nobody listens on this port."""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


# --- once


def test_once_shows_every_endpoint_and_exits_with_0_when_every_pool_has_one(folder, server):
    with Server(probe=Says(404, b"")) as unlisting:
        folder.list(row(server), row(DEAD), row(unlisting, endpoint_id="other"))
        done = run_here(folder, "endpoints", "endpoints.toml", "--once")
    assert (done.returncode, done.stderr) == (0, "")
    head, live, dead, probation, *notes = done.stdout.splitlines()
    assert head.split() == ["pool", "endpoint", "state", "heard", "source", "why"]
    assert live.split()[:3] == ["pool", server.url, "live"]
    assert dead.split()[:3] == ["pool", DEAD, "probing"]
    assert "refused" in dead
    assert probation.split()[:3] == ["other", unlisting.url, "probation"]
    assert notes[:2] == ["pool pool: 1 of 2 take work", "pool other: 1 of 1 take work"]
    assert notes[2].startswith(f"source {folder.endpoints}: 3 listed 0:0")
    assert server.asks == []


def test_a_pool_without_an_endpoint_that_takes_work_exits_with_4(folder, server):
    folder.list(row(server), row(DEAD, endpoint_id="other"))
    assert run_here(folder, "endpoints", "endpoints.toml", "--once").returncode == 4


@pytest.mark.parametrize(
    ("probe", "state"),
    [
        (Says(401, b"who are you"), "misconfigured"),
        (Says(200, b'{"data": [{"id": "another"}]}'), "misconfigured"),
        (Says(503, b"loading"), "probing"),
        (Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{", reset=True), "probing"),
        (Raw(b"\x00\xff rubbish"), "probing"),
    ],
    ids=["refused", "another model", "loading", "reset", "garbage"],
)
def test_an_endpoint_that_is_not_well_says_why_and_exits_with_4(folder, probe, state):
    with Server(probe=probe) as server:
        folder.list(row(server))
        done = run_here(folder, "endpoints", "endpoints.toml", "--once", "--json")
    assert (done.returncode, done.stderr) == (4, "")
    (endpoint,) = json.loads(done.stdout)["pools"][0]["endpoints"]
    assert endpoint["state"] == state
    assert endpoint["why"]


def test_a_draining_endpoint_takes_no_work(folder, server):
    folder.list(row(server, draining=True))
    done = run_here(folder, "endpoints", "endpoints.toml", "--once")
    assert done.returncode == 4
    assert " draining 0:0" in done.stdout


def test_an_evaluation_file_leads_to_the_pools_of_its_evals_fixed_servers_included(folder, server):
    folder.list(row(server), row(DEAD, endpoint_id="unused"))
    folder.dataset(1)
    fixed = f'name = "fixed"\nmodel = "m"\napi_base_url = "{server.url}"'
    folder.evaluation(evals=('name = "one"\nendpoint_id = "pool"', f"{fixed}\n# endpoint_id"))
    done = run_here(folder, "endpoints", "eval.toml", "--once", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    pools = json.loads(done.stdout)["pools"]
    assert [pool["endpoint_id"] for pool in pools] == ["pool", f"m@{server.url}"]
    assert [[one["url"] for one in pool["endpoints"]] for pool in pools] == [[server.url]] * 2
    assert not (folder.path / "runs").exists()
    assert server.asks == []


def test_a_pool_that_nothing_is_listed_for_is_shown_and_missing(folder, server):
    folder.list(row(server, endpoint_id="misspelt"))
    folder.dataset(1)
    folder.evaluation()
    done = run_here(folder, "endpoints", "eval.toml", "--once")
    assert done.returncode == 4
    assert "pool pool: no endpoint has this id\n" in done.stdout


def test_a_source_that_cannot_say_is_told_below_the_table(folder):
    folder.dataset(1)
    folder.evaluation()
    done = run_here(folder, "endpoints", "eval.toml", "--once")
    assert done.returncode == 4
    assert done.stdout.startswith("pool pool: no endpoint is listed\n")
    assert f"source {folder.endpoints}: no listing yet; now: no such file" in done.stdout


def test_json_is_one_document_with_the_fields_of_the_status(folder, server):
    folder.list(row(server, max_concurrent=3))
    done = run_here(folder, "endpoints", "endpoints.toml", "--once", "--json")
    document = json.loads(done.stdout)
    assert document.keys() == {"pools", "sources", "network_down_s"}
    (endpoint,) = document["pools"][0]["endpoints"]
    assert (endpoint["state"], endpoint["max_concurrent"], endpoint["in_flight"]) == ("live", 3, 0)
    assert endpoint["state_s"] == round(endpoint["state_s"], 3)
    assert [(one["name"], one["endpoints"]) for one in document["sources"]] == [(str(folder.endpoints), 1)]


def test_pool_restricts_to_the_pools_that_are_named(folder, server):
    folder.list(*(row(server if name == "a" else DEAD, endpoint_id=name) for name in "abc"))

    def shown(*options: str) -> tuple[int, list[str]]:
        done = run_here(folder, "endpoints", "endpoints.toml", "--once", "--json", *options)
        return done.returncode, [pool["endpoint_id"] for pool in json.loads(done.stdout)["pools"]]

    assert shown("--pool", "a") == (0, ["a"])
    assert shown("--pool", "c", "--pool", "a", "--pool", "c") == (4, ["a", "c"])


def test_a_pool_that_is_not_there_is_an_error_with_the_nearest(folder, server):
    folder.list(row(server, endpoint_id="glm"))
    done = run_here(folder, "endpoints", "endpoints.toml", "--pool", "glmm")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'scavenge: --pool: unknown pool "glmm"; did you mean "glm"?\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file"),
        ("[[endpoint]\n", "endpoints.toml"),
        ("[[endpoint]]\nendpoint_id = 3\nmodel = 'm'\nurl = 'http://a/v1'\n", "endpoint[0].endpoint_id"),
        ("[[endpoint]]\nmodle = 'm'\n\n[[eval]]\n", "put the endpoints into a file of their own"),
        ("", "endpoints.toml: empty, so it looks half-written"),
    ],
)
def test_a_wrong_file_exits_with_2_and_says_where(folder, text, said):
    if text is not None:
        (folder.path / "endpoints.toml").write_text(text)
    for options in ((), ("--once",), ("--json",)):
        done = run_here(folder, "endpoints", "endpoints.toml", *options)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_a_file_without_an_endpoint_is_nothing_to_watch(folder):
    folder.list()
    done = run_here(folder, "endpoints", "endpoints.toml")
    assert (done.returncode, done.stdout) == (4, "")
    assert "no endpoint is listed" in done.stderr
    done = run_here(folder, "endpoints", "endpoints.toml", "--once", "--json")
    assert (done.returncode, json.loads(done.stdout)["pools"]) == (4, [])


def test_no_key_is_shown_in_any_form(folder, monkeypatch):
    key, header, other = "opal-zebra-17-quartz", "amber-lynx-23-basalt", "jade-otter-31-cobalt"
    monkeypatch.setenv("GLM_ACCESS", key)
    monkeypatch.setenv("HUB_TOKEN", other)
    told = Says(401, f"you sent {key} and {header}, not {other}".encode())
    with Server(probe=told) as server:
        folder.list(row(server, key="GLM_ACCESS", headers={"x-api-key": header}))
        for options in ((), ("--json",)):
            done = run_here(folder, "endpoints", "endpoints.toml", "--once", *options)
            assert done.returncode == 4
            assert done.stdout.count("[secret]") == 3
            for part in ("opal", "zebra", "amber", "lynx", "jade", "otter"):
                assert part not in done.stdout + done.stderr


def test_what_a_server_says_is_valid_json_whatever_it_is(folder):
    with Server(probe=Says(401, "a \x1b[2J \x85 \U000e0001 \u202e 'x' \"y\"".encode())) as server:
        folder.list(row(server))
        done = run_here(folder, "endpoints", "endpoints.toml", "--once", "--json")
    why = json.loads(done.stdout)["pools"][0]["endpoints"][0]["why"]
    assert "\x1b" not in why
    assert "\u202e" not in why


# --- going on


def test_a_table_is_shown_anew_when_a_state_changes(folder, server):
    folder.list(row(server))
    folder.dataset(1)
    folder.evaluation("[health]\ninterval = 0.1")
    with started(folder, "endpoints", "eval.toml") as watching:
        watching.wait_out(" live ")
        server.probe_reply = Says(401, b"no longer")
        watching.wait_out("misconfigured")
        watching.signal(signal.SIGINT)
        assert watching.wait() == 130
    assert watching.told == ""
    assert "\x1b" not in watching.out


def test_a_line_of_json_is_written_for_each_change_and_each_is_whole(folder, server):
    folder.list(row(server))
    folder.dataset(1)
    folder.evaluation()
    with started(folder, "endpoints", "eval.toml", "--json") as watching:
        watching.wait_out('"live"')
        folder.list(row(server), row(DEAD))
        watching.wait_out(DEAD)
        watching.signal(signal.SIGTERM)
        assert watching.wait() == 143
    documents = [json.loads(line) for line in watching.out.splitlines()]
    assert [len(one["pools"][0]["endpoints"]) for one in documents][-1] == 2
    assert watching.told == ""


def test_a_source_that_breaks_is_shown_and_the_endpoints_stay(folder, server):
    folder.list(row(server))
    folder.dataset(1)
    folder.evaluation()
    with started(folder, "endpoints", "eval.toml", "--json") as watching:
        watching.wait_out('"live"')
        folder.endpoints.write_text("[[endpoint")
        watching.wait_out('"trouble":"')
        watching.signal(signal.SIGINT)
        assert watching.wait() == 130
    last = json.loads(watching.out.splitlines()[-1])
    assert len(last["pools"][0]["endpoints"]) == 1
    assert "Traceback" not in watching.told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_quietly_while_a_probe_gets_no_answer(folder, number):
    with Server() as server:
        folder.list(row(server))
        release = hold_probes(server)
        with started(folder, "endpoints", "endpoints.toml", "--once") as watching:
            server.wait_probed()
            watching.signal(number)
            assert watching.wait() == 128 + number
        release()
    assert (watching.out, watching.told) == ("", "")


def hold_probes(server: Server) -> Callable[[], None]:
    """Let no probe be answered from now on, until what is returned is called."""
    answered, told = threading.Event(), server.probed

    def hold(headers):
        reply = told(headers)
        answered.wait(BOUND_S)
        return reply

    server.probed = hold  # type: ignore[method-assign]
    return answered.set


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_it_ends_quietly_when_its_reader_goes_away_even_if_nothing_happens(folder, server, options):
    folder.list(row(server))
    with subprocess.Popen(
        command("endpoints", "endpoints.toml", *options), cwd=folder.path, stdout=-1, stderr=-1
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline()
            process.stdout.close()
            assert process.wait(BOUND_S) == 0
        finally:
            process.kill()
        assert process.stderr.read() == b""


def test_without_standard_output_there_is_nobody_to_show_anything_to(folder, server):
    folder.list(row(server))
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *command("endpoints", "endpoints.toml")]
    done = subprocess.run(shell, cwd=folder.path, stderr=-1, timeout=BOUND_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_under_standard_output_is_told_without_a_traceback(folder, server):
    folder.list(row(server))
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("endpoints", "endpoints.toml", "--json"),
            cwd=folder.path,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=BOUND_S,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == b"scavenge: standard output: cannot be written: No space left on device\n"


# --- on a terminal


def test_on_a_terminal_it_is_drawn_in_place_until_ctrl_c_and_wiped(folder, server):
    folder.list(*(row(server if number == 0 else f"http://127.0.0.1:1/{number}/v1") for number in range(40)))
    with Terminal(folder, "endpoints", "endpoints.toml") as terminal:
        terminal.wait_shown("1 of 40 take work")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
    assert "… 21 more, of which 1 take work" in terminal.shown
    assert terminal.shown.endswith("\x1b[2K")
    assert "Traceback" not in terminal.shown


def test_a_terminal_that_hangs_up_ends_it_although_the_signal_is_ignored(folder, server):
    folder.list(row(server))
    with Terminal(folder, "endpoints", "endpoints.toml", ignored=signal.SIGHUP) as terminal:
        terminal.wait_shown("1 of 1 take work")
        terminal.hang_up()
        assert terminal.end() == 0


class Terminal:
    """A terminal of 24 lines with the program on it."""

    def __init__(self, folder: Folder, *arguments: str, ignored: signal.Signals | None = None) -> None:
        self.end_of_it, inner = pty.openpty()
        environ = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "24"}

        def ignore() -> None:
            if ignored is not None:
                signal.signal(ignored, signal.SIG_IGN)

        self.process = subprocess.Popen(
            command(*arguments),
            cwd=folder.path,
            env=environ,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=ignore,
        )
        os.close(inner)
        self.shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.end_of_it >= 0:
            self.hang_up()

    def wait_shown(self, text: str) -> None:
        """Read until a text was shown."""
        while text not in self.shown:
            assert self._read(), f"waited in vain for {text!r} in {self.shown!r}"

    def hang_up(self) -> None:
        os.close(self.end_of_it)
        self.end_of_it = -1

    def end(self) -> int:
        """Read what is left; the exit status."""
        while self.end_of_it >= 0 and self._read():
            pass
        return self.process.wait(BOUND_S)

    def _read(self) -> bool:
        try:
            data = os.read(self.end_of_it, 65536)
        except OSError:  # the last process that had the terminal is gone
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)
