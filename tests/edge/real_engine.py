"""Real container engines for tests: dockerd and Podman's service, each in a box of its own that ends with the tests.

A box is a set of private namespaces (mounts, processes, cgroups): the machine's own engine, its cgroups, its network
and its ``/run`` are not touched, and no container network is made. Images are kept in memory. An engine reaches
registries on the loopback interface and nothing else: it knows no name server and no proxy. Neither does it see
anyone's credentials. When the test process ends, however it does, the box and all that runs in it is gone.

Of a killed test run a few empty cgroups are left, and removed by the next.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import httpx
import pytest
from engine_boxes import Box, cgroup_root, may_make_a_box, open_box

from real_parts import real

PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
PROGRAMS = {"docker": ("dockerd", "containerd", "runc"), "podman": ("podman", "conmon", "crun")}
NAMES = {"docker": "dockerd", "podman": "Podman's service"}
INSTALL = "apt-get install --no-install-recommends docker.io podman crun iptables, as requirements/README.md says"
READY_S = 30.0
ROOM_BYTES = 512 * 2**20
"""For the images of one engine, in memory."""

CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
cgroups = "disabled"
netns = "host"
[network]
network_backend = "cni"
cni_plugin_dirs = ["{folder}/none"]
network_config_dir = "{folder}/none"
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{store}/images"
runroot = "/run/images"
"""
REGISTRIES_CONF = """\
unqualified-search-registries = []
[[registry]]
prefix = "127.0.0.1"
location = "127.0.0.1"
insecure = true
"""


def available(product: str) -> str:
    """What is missing for a *product*, ``docker`` or ``podman``; empty: nothing."""
    missing = [name for name in PROGRAMS[product] if shutil.which(name, path=PATH) is None]
    if missing:
        return f"no {', '.join(missing)} ({INSTALL})"
    if os.geteuid() != 0:
        return "needs root"
    if cgroup_root() is None:
        return "needs a file system of cgroups, version 2, that can be written"
    return "" if may_make_a_box() else "needs the right to make namespaces, and util-linux"


def needs_engine(product: str) -> pytest.MarkDecorator:
    """The mark of tests that need the *product*."""
    missing = available(product)
    return real(NAMES[product], not missing, missing)


PRODUCTS = [pytest.param(product, marks=needs_engine(product)) for product in PROGRAMS]
"""For fixtures: each test runs with either engine."""


def only_on(product: str) -> pytest.MarkDecorator:
    """The mark of tests of ``real_engine`` that say the same, or nothing, of the other product."""
    return pytest.mark.parametrize("real_engine", [pytest.param(product, marks=needs_engine(product))], indirect=True)


def listens(address: str) -> bool:
    """Whether somebody takes connections at an address, as ``DOCKER_HOST`` has it."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(address.removeprefix("unix://")) == 0


@attrs.define(eq=False)
class RealEngine:
    """One engine, shared by the tests of a process: each uses names of its own."""

    product: str
    folder: Path
    store: Path
    _box: Box

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.folder / "sock"

    @property
    def address(self) -> str:
        """The same, as ``DOCKER_HOST`` has it."""
        return f"unix://{self.socket}"

    @property
    def group(self) -> Path:
        """The cgroup that it and its containers are in."""
        return self._box.group

    @property
    def log(self) -> str:
        """What it has printed."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def request(self, method: str, path: str, **options: object) -> httpx.Response:
        """Ask its API, to see what is so, or to make it so."""
        transport = httpx.HTTPTransport(uds=str(self.socket))
        with httpx.Client(transport=transport, base_url="http://engine", timeout=READY_S) as client:
            return client.request(method, path, **options)  # type: ignore[arg-type]

    def names(self) -> set[str]:
        """The names of all its images, as it writes them itself."""
        images = self.request("GET", "/images/json").json()
        return {name for image in images for name in image["RepoTags"] or ()}

    def calls(self, method: str, path: str) -> int:
        """How often its API was called so, by the end of the path."""
        found = re.findall(rf'\b{method} /(?:v[\d.]+/)?{re.escape(path)}(?=[\s"?])', self.log)
        return len(found)

    def start(self) -> None:
        """Start it (again, after :meth:`kill`) and wait until it answers."""
        self.socket.unlink(missing_ok=True)
        (self.folder / "pid").unlink(missing_ok=True)
        self._box.tell("start", str(self.folder / "log"), *self._command())
        give_up_at = time.monotonic() + READY_S
        while time.monotonic() < give_up_at:
            if listens(self.address) and self.request("GET", "/_ping").status_code == httpx.codes.OK:
                return
            time.sleep(0.02)
        raise AssertionError(f"no answer within {READY_S} s: {self.log[-4000:]}")

    def kill(self) -> None:
        """Kill its process, and let it leave everything as it is."""
        self._box.tell("kill")

    @contextmanager
    def nearly_full(self, room_bytes: int) -> Iterator[None]:
        """While the block runs, there is only so much room for more images."""
        used_bytes = self._used_bytes()
        self._box.tell("resize", used_bytes + room_bytes)
        try:
            yield
        finally:
            self._box.tell("resize", ROOM_BYTES)

    def _used_bytes(self) -> int:
        seen = os.statvfs(f"/proc/{self._box.inside}/root{self.store}")
        return (seen.f_blocks - seen.f_bfree) * seen.f_frsize

    def _command(self) -> list[str]:
        if self.product == "podman":
            return ["podman", "--log-level=info", "system", "service", "--time", "0", self.address]
        places = ["--data-root", f"{self.store}/images", "--exec-root", "/run/d", "--pidfile", f"{self.folder}/pid"]
        network = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
        files = ["--config-file", f"{self.folder}/daemon.json", "--storage-driver=overlay2", "--cgroup-parent=/c"]
        registries = ["--insecure-registry=127.0.0.0/8"]
        return [
            "dockerd",
            "--debug",
            "--host",
            self.address,
            *places,
            *network,
            *files,
            *registries,
            "--userland-proxy=false",
        ]


def _furnish(folder: Path, store: Path) -> dict[str, str]:
    """Write the engine's settings; the environment that has it find them."""
    (folder / "none").mkdir()
    (folder / "daemon.json").write_text("{}", encoding="utf-8")
    files = {"containers.conf": CONTAINERS_CONF, "storage.conf": STORAGE_CONF, "registries.conf": REGISTRIES_CONF}
    for name, text in files.items():
        (folder / name).write_text(text.format(folder=folder, store=store), encoding="utf-8")
    return {
        "PATH": PATH,
        "HOME": str(folder),
        "TMPDIR": str(store),
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
    }


@contextmanager
def open_engine(product: str, folder: Path) -> Iterator[RealEngine]:
    """An engine that answers, until the block is left. *folder* is empty, and its path short."""
    store = folder / "store"
    store.mkdir()
    box = open_box(store, _furnish(folder, store))
    try:
        engine = RealEngine(product, folder, store, box)
        engine.start()
        yield engine
    finally:
        box.close()
