"""Whole runs whose samples need images, on real engines: killed while an image is on its way, and what is left then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import httpx
import pytest
from llama_server import free_port
from real_client import new_path, push
from real_engine import RealEngine, only_on
from real_images import make_archive, make_image, needs_shell
from real_registry import LEASH, Faults, needs_registry, open_proxy

pytestmark = [needs_registry, needs_shell]

LARGE_BYTES = 400_000
BOUND_S = 60.0
TESTS = Path(__file__).parent
ENVIRONMENT = """
import scavenge

class Boxes(scavenge.Environment):
    multi_turn = False

    def __init__(self, images):
        self.named = images

    def examples(self):
        for image in self.named:
            yield scavenge.Example(id=image, data={})

    def images(self, example):
        return [example.id]

    async def play(self, example, model):
        reply = await model.chat([{"role": "user", "content": "hello"}])
        return scavenge.Rollout(completion=reply.text, reward=1.0)
"""
EVALUATION = """
endpoints_path = "endpoints.toml"
elastic = true
[images]
engine = "{engine}"
mirrors = ["{mirror}"]
[[eval]]
env_id = "boxes:Boxes"
endpoint_id = "pool"
env_args = {{ images = {images} }}
sampling_args = {{ max_tokens = 2 }}
"""
ENDPOINT = """
[[endpoint]]
endpoint_id = "pool"
model = "sim"
url = "{url}"
"""


@attrs.frozen
class Runs:
    """Where runs are, on an engine, with a mirror."""

    folder: Path
    engine: RealEngine

    def has(self, image: str) -> bool:
        """Whether the engine has an image."""
        return self.engine.request("GET", f"/images/{image}/json").status_code == httpx.codes.OK

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start scavenge; nothing of the user's is read or written."""
        home = {name: str(self.folder / name) for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "DOCKER_CONFIG")}
        return subprocess.Popen(
            [sys.executable, "-m", "scavenge", *arguments],
            cwd=self.folder,
            env={**os.environ, **home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        """Run scavenge to its end, which is to be a good one; what it says."""
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=BOUND_S)
        assert process.returncode == 0, said
        return said


def wait_while_it_runs(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    """Block until something is so; it kills a process with which it does not come to that, and says what that said."""
    give_up_at = time.monotonic() + BOUND_S
    while not condition():
        if process.poll() is not None or time.monotonic() > give_up_at:
            process.kill()
            raise AssertionError(process.communicate()[0])
        time.sleep(0.02)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The API root of a server whose model answers at once."""
    port = free_port()
    command = [sys.executable, str(TESTS / "sim_host.py"), "127.0.0.1", str(port), "8", "0.001"]
    leash = subprocess.Popen([sys.executable, "-IS", str(LEASH), *command], stdin=subprocess.PIPE)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        leash.communicate()


@pytest.fixture
def killed(real_engine, real_registry, server, tmp_path):
    """A run that was killed when it had one image and was fetching another, beside one that had been there."""
    there = f"docker.io/{new_path()}:latest"
    real_engine.request("POST", "/images/load", content=make_archive(make_image(there), [there]))
    pushed = [push(real_registry, own_bytes=LARGE_BYTES) for _ in range(2)]
    first, second = (f"docker.io/{one.name}" for one in pushed)
    faults = Faults(f"/blobs/{pushed[1].image.own_digest}", hold_after=LARGE_BYTES // 2)
    runs = Runs(tmp_path, real_engine)
    with open_proxy(real_registry, faults) as mirror:
        images = json.dumps([there, first, second])
        (tmp_path / "boxes.py").write_text(ENVIRONMENT)
        (tmp_path / "endpoints.toml").write_text(ENDPOINT.format(url=server))
        (tmp_path / "eval.toml").write_text(EVALUATION.format(engine=real_engine.address, mirror=mirror, images=images))
        process = runs.start("run", "eval.toml", "--no-progress")
        wait_while_it_runs(process, lambda: faults.holds and runs.has(first))
        process.kill()
        said, _ = process.communicate()
        assert (runs.has(there), runs.has(first), runs.has(second)) == (True, True, False), said
        faults.let_go()
        yield runs, (there, first, second), mirror


@only_on("docker")
def test_what_a_killed_run_brought_is_removed_by_hand(killed):
    runs, (there, *images), mirror = killed
    runs.run("images", "gc", "--engine", runs.engine.address)
    assert runs.has(there)
    assert not [image for image in images if runs.has(image)]
    assert not [name for name in runs.engine.names() if name.startswith(mirror)]


@only_on("podman")
def test_the_next_run_goes_on_and_removes_what_the_killed_one_brought_too(killed):
    runs, (there, *images), mirror = killed
    runs.run("run", "eval.toml", "--no-progress")
    assert runs.has(there)
    assert not [image for image in images if runs.has(image)]
    assert not [name for name in runs.engine.names() if name.startswith(mirror)]
