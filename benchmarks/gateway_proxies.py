"""The proxies that the gateway's benchmark compares, as processes of their own: how they are started and what they use.

Each gets the settings that cost it least: one worker process, no database, no callbacks, a quiet log, and no more
checks of its servers than it makes by default.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway_fleet import KEY, MODEL

STARTUP_S = 120.0
KEY_VAR = "BENCHMARK_KEY"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")

SCAVENGE_SETTINGS = """
elastic = true
endpoints_path = "{endpoints}"
[admission]
policy = "fixed"
limit = 1024
[gateway]
stream = {stream}
"""
SCAVENGE_SERVER = """
[[endpoint]]
endpoint_id = "{model}"
model = "{model}"
url = "http://127.0.0.1:{port}/v1"
"""
LITELLM_SETTINGS = """
litellm_settings: {{set_verbose: false, drop_params: false, num_retries: 3, request_timeout: 600, callbacks: [],
  disable_streaming_logging: true, disable_token_counter: true, turn_off_message_logging: true,
  disable_end_user_cost_tracking: true, disable_add_user_agent_to_request_tags: true, suppress_debug_info: true}}
router_settings: {{routing_strategy: simple-shuffle, num_retries: 3, enable_pre_call_checks: false}}
general_settings: {{disable_spend_logs: true, background_health_checks: false}}
model_list:
"""
LITELLM_SERVER = """
- model_name: {model}
  litellm_params: {{model: {provider}/{model}, api_base: "http://127.0.0.1:{port}/v1", api_key: none,
    input_cost_per_token: 1.0e-6, output_cost_per_token: 2.0e-6}}
"""
LITELLM_OPTIONS = ["--num_workers", "1", "--keepalive_timeout", "600"]
LITELLM_ENVIRONMENT = {
    "LITELLM_MASTER_KEY": KEY,  # it does not start without
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # nothing is fetched at its start
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_TELEMETRY": "False",
    "NO_DOCS": "True",
}


@dataclass
class Proxy:
    """A running proxy."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    def pids(self) -> list[int]:
        """Its processes, from the first on."""
        found = [self.process.pid]
        for pid in found:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in children.read_text().split()]
        return found

    def cpu_s(self) -> float:
        """User and system time of its processes."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.pids()]
        return sum(int(told[11]) + int(told[12]) for told in fields) * _TICK_S

    def forget_peak(self) -> None:
        """Have :meth:`peak_mb` begin anew."""
        for pid in self.pids():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peak_mb(self) -> float:
        """The most memory that its processes had resident, since the peak was forgotten."""
        lines = [line for pid in self.pids() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def fleet(servers: int) -> Iterator[list[int]]:
    """The canned servers' ports while the block runs."""
    command = [sys.executable, str(Path(__file__).with_name("gateway_fleet.py")), str(servers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield [int(port) for port in process.stdout.readline().split()[1:]]
        finally:
            process.kill()


@contextmanager
def litellm(command: Path, folder: Path, ports: list[int], options: list[str], provider: str) -> Iterator[Proxy]:
    """LiteLLM's proxy in front of the servers."""
    file = folder / "litellm.yaml"
    servers = [LITELLM_SERVER.format(model=MODEL, provider=provider, port=port) for port in ports]
    file.write_text(LITELLM_SETTINGS.format() + "".join(servers))
    port = free_port()
    given = ["--config", str(file), "--host", "127.0.0.1", "--port", str(port), *LITELLM_OPTIONS, *options]
    environ = {**os.environ, **LITELLM_ENVIRONMENT}
    with running("litellm", [str(command), *given], port, "/health/liveliness", folder, environ) as proxy:
        yield proxy


@contextmanager
def scavenge(name: str, folder: Path, ports: list[int], *, stream: bool) -> Iterator[Proxy]:
    """``scavenge serve`` in front of the servers, which it asks for streams or not when its client wants none."""
    endpoints = folder / "endpoints.toml"
    endpoints.write_text("".join(SCAVENGE_SERVER.format(model=MODEL, port=port) for port in ports))
    file = folder / f"{name}.toml"
    file.write_text(SCAVENGE_SETTINGS.format(endpoints=endpoints, stream=str(stream).lower()))
    port = free_port()
    command = [sys.executable, "-m", "scavenge", "serve", str(file), "--port", str(port), "--token-var", KEY_VAR]
    with running(name, command, port, "/health", folder, {**os.environ, KEY_VAR: KEY}) as proxy:
        yield proxy


@contextmanager
def running(
    name: str, command: list[str], port: int, health: str, folder: Path, environ: dict[str, str]
) -> Iterator[Proxy]:
    """A proxy from when it is healthy until the block ends; what it prints goes to a file."""
    log = folder / f"{name}.log"
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environ) as process:
        try:
            wait_for(f"http://127.0.0.1:{port}{health}", process, log)
            yield Proxy(name, port, process)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until *url* is answered with 200. Raises :class:`SystemExit` when it never is."""
    until = time.monotonic() + STARTUP_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"{url} does not answer:\n{log.read_text()[-2000:]}")
