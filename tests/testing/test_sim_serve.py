"""``python -m scavenge.testing.serve`` as a program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import httpx
import pytest
import tomli

from scavenge.testing.faults import Fault

COMMAND = [sys.executable, "-m", "scavenge.testing.serve"]
QUICK = {"trust_env": False, "verify": False, "timeout": 10}


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60, check=False)


class Served:
    """The program while it runs."""

    def __init__(self, options: Sequence[str], **environment: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment}
        )

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def urls(self, count: int) -> dict[str, str]:
        lines = [self.process.stdout.readline().decode().split() for _ in range(count)]
        return {name: url for name, url, *_ in lines}


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_keeps_the_listing_and_ends_cleanly(end, tmp_path):
    path = tmp_path / "endpoints.toml"
    options = ["--servers", "2", "--token-s", "0.001", "--endpoints-file", str(path), "--token-var", "SIM_TOKEN"]
    with Served([*options, "--script", "t=0.05 leave ep1"], SIM_TOKEN="s3cret") as served:
        urls = served.urls(2)
        reply = httpx.post(
            f"{urls['ep2']}/completions",
            json={"model": "sim", "prompt": "What is 2 + 3?"},
            headers={"Authorization": "Bearer s3cret"},
            **QUICK,
        )
        assert reply.json()["choices"][0]["text"].endswith("The answer is 5.")
        assert httpx.get(f"{urls['ep2']}/models", **QUICK).status_code == 401
        assert served.process.stderr.readline() == b"t=0.05 leave ep1\n"
        wanted = [{"endpoint_id": "sim", "model": "sim", "url": urls["ep2"], "key": "SIM_TOKEN"}]
        assert tomli.loads(path.read_text())["endpoint"] == wanted
        served.process.send_signal(end)
        assert served.process.wait(timeout=20) == 0
        assert served.process.stderr.read() == b""
    assert tomli.loads(path.read_text()) == {"endpoint": []}
    assert os.listdir(tmp_path) == ["endpoints.toml"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--servers", "0"], "'servers' must be >= 1"),
        (["--script", "t=1 kil ep1"], 'unknown word "kil", did you mean "kill"?'),
        (["--token-var", "NO_SUCH_VARIABLE"], "the environment variable NO_SUCH_VARIABLE is not set"),
        (["--port", "70000"], "port 70000 does not exist"),
        (["--endpoints-file", "/no/such/folder/endpoints.toml"], "No such file or directory"),
        (["--sluts", "3"], "Did you mean"),
    ],
)
def test_wrong_options_end_with_2_and_the_reason(options, says):
    done = run(*options)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_has_every_word_of_the_script_language():
    done = run("--help")
    assert done.returncode == 0
    for fault in Fault.__args__:
        assert f"\n      {fault.__name__.lower()} " in done.stdout
