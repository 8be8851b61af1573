"""Boxes for real container engines: private namespaces, and a cgroup of their own that is removed with them.

A box is gone when it is closed, and when the process that opened it is, however that ends. Of a killed one an empty
cgroup is left, which the next to open a box removes. What goes on inside is :mod:`engine_box`'s.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import attrs

BOX = Path(__file__).with_name("engine_box.py")
GROUP_PREFIX = "scavenge-test-"
ENTER = """\
echo $$ >"$0/cgroup.procs"
exec unshare --cgroup sh -c '
    echo $$ >"$0/engine/cgroup.procs"  # a group with processes may have no children with controllers
    exec unshare --mount --pid --fork --kill-child --mount-proc --propagation private "$@"
' "$0" "$@"
"""
_numbers = itertools.count()


def cgroup_root() -> Path | None:
    """Where cgroups of version 2 are, in either layout."""
    with suppress(OSError):
        for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
            _, place, kind, *_ = line.split(" ")
            if kind == "cgroup2" and os.access(place, os.W_OK):
                return Path(place)
    return None


def may_make_a_box() -> bool:
    """Whether this process may make such namespaces."""
    command = ["unshare", "--mount", "--cgroup", "--pid", "--fork", "--mount-proc", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _remove_group(group: Path) -> None:
    """Remove a cgroup and those in it, whose processes are gone or about to be."""
    for _ in range(100):
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
        if not group.exists():
            return
        time.sleep(0.01)


def _sweep(root: Path) -> None:
    """Remove the cgroups of test processes that are gone."""
    for group in root.glob(f"{GROUP_PREFIX}*"):
        owner = group.name.removeprefix(GROUP_PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            _remove_group(group)


@attrs.define(eq=False)
class Box:
    """The namespaces of an engine, and whoever does what it is told in there."""

    group: Path
    process: subprocess.Popen[str]

    def tell(self, *order: object) -> None:
        """Have an order carried out in the box."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        self.wait_answer("done")

    def wait_answer(self, answer: str) -> None:
        """Wait until it says that something is so."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{answer}\n", "the box is broken: see what it printed"

    @property
    def inside(self) -> int:
        """A process in it: the first, which ``unshare`` has started."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0])

    def close(self) -> None:
        """End all that is in it."""
        self.process.communicate()
        _remove_group(self.group)


def open_box(store: Path, environ: Mapping[str, str]) -> Box:
    """A new box, in which there is a file system at *store*; whoever opens it closes it."""
    root = cgroup_root()
    assert root is not None
    _sweep(root)
    group = root / f"{GROUP_PREFIX}{os.getpid()}-{next(_numbers)}"
    (group / "engine").mkdir(parents=True)
    process = subprocess.Popen(
        ["sh", "-euc", ENTER, str(group), sys.executable, "-IS", str(BOX), str(store)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(environ),
    )
    box = Box(group, process)
    try:
        box.wait_answer("ready")
    except BaseException:
        box.close()
        raise
    return box
