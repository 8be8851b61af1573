"""The hosts that tests run servers on: they leave nothing behind, and excuse only a processor."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hosts import HostedServer, needs_hosts, open_network

pytestmark = needs_hosts

BOUND_S = 30.0
HERE = Path(__file__).parent
PROGRAM = """
import pathlib
import sys

from hosts import HostedServer, open_network

with open_network(1) as network:
    (host,) = network.hosts
    server = HostedServer(host, ["sleep", "1000"], pathlib.Path("server.log"))
    print(server.pid, network.client.pid, host.inside.pid, flush=True)
    sys.stdin.read()
    server.end()
"""


def running(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent to hear of its end does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("killed", [False, True], ids=["done", "killed"])
def test_neither_a_server_nor_a_namespace_outlives_the_test_that_made_it(tmp_path, killed):
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    test = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with test:
        assert test.stdout is not None
        pids = [int(word) for word in test.stdout.readline().split()]
        assert len(pids) == 3
        assert all(map(running, pids))
        if killed:
            test.kill()
        test.communicate()
    give_up_at = time.monotonic() + BOUND_S
    while any(map(running, pids)):
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def watch(server: HostedServer) -> None:
    """Look at a server until it is seen to have died."""
    give_up_at = time.monotonic() + BOUND_S
    while time.monotonic() < give_up_at:
        server.check("engine")
        time.sleep(0.02)


@pytest.mark.parametrize(("signal", "outcome"), [("ILL", pytest.skip.Exception), ("SEGV", AssertionError)])
def test_a_server_that_dies_fails_its_test_unless_it_is_for_the_processor(tmp_path, signal, outcome):
    with open_network(1) as network:
        server = HostedServer(network.hosts[0], ["sh", "-c", f"kill -{signal} $$"], tmp_path / "server.log")
        with pytest.raises(outcome):
            watch(server)
        server.end()
