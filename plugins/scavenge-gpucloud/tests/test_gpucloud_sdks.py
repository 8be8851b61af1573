"""The double speaks as the clouds' own clients understand it.

Skipped where these are not installed (the extra ``clients``), unless ``SCAVENGE_REQUIRE_REAL=1`` wants them there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from gpucloud_double import TOKEN, Double, Machine

RUNPOD = """
import json, runpod
runpod.api_key = {token!r}
ports = lambda pod: [port["publicPort"] for port in (pod["runtime"] or {{"ports": []}})["ports"]]
print(json.dumps([[pod["id"], pod["desiredStatus"], ports(pod)] for pod in runpod.get_pods()]))
"""
PRIME = """
import json
from prime_cli.api.pods import PodsClient
from prime_cli.core import APIClient
ports = lambda pod: [port.external for port in pod.prime_port_mapping or []]
pods = PodsClient(APIClient(api_key={token!r})).list().data
print(json.dumps([[pod.id, pod.status, ports(pod), pod.ip] for pod in pods]))
"""


def is_missing(module: str) -> bool:
    """Whether a test cannot be run, and need not be."""
    required = os.environ.get("SCAVENGE_REQUIRE_REAL", "") not in ("", "0")
    return not required and find_spec(module) is None


def spoken(code: str, double: Double, home: Path) -> object:
    """What a program of a client's prints; clients keep files in the user's home."""
    environ = {
        **os.environ,
        "HOME": str(home),
        "RUNPOD_API_BASE_URL": double.url,
        "PRIME_BASE_URL": double.url,
        "NO_PROXY": "*",
    }
    code = code.format(token=TOKEN)
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(is_missing("runpod"), reason="runpod's client is not installed")
def test_runpods_own_client_reads_the_pods(double: Double, tmp_path: Path):
    double.machines = [Machine(1, 40001), Machine(2, state="stopped")]
    assert spoken(RUNPOD, double, tmp_path) == [["pod1", "RUNNING", [40001]], ["pod2", "EXITED", []]]


@pytest.mark.skipif(is_missing("prime_cli"), reason="Prime Intellect's client is not installed")
def test_primes_own_client_reads_the_pods(double: Double, tmp_path: Path):
    double.machines = [Machine(1, 40001), Machine(2, state="starting")]
    assert spoken(PRIME, double, tmp_path) == [
        ["prime-2", "ACTIVE", [], None],
        ["prime-1", "ACTIVE", ["40001"], "127.0.0.1"],
    ]
