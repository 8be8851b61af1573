"""The first process in the box of a real container engine: ``python engine_box.py STORE`` (see real_engine.py).

It makes the box out of fresh namespaces: a cgroup tree of its own, an empty ``/run`` and ``/var/tmp``, no name server,
and a file system at STORE that nobody outside sees. Then it does what it is told, a JSON array a line: ``["start", LOG,
COMMAND...]``, ``["kill"]``, ``["resize", BYTES]``, each answered by one line. When its standard input ends, it ends,
and every process in the box with it: so the box does not outlive whoever holds the other end of the pipe, even when
they are killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

REMOUNT = 32
"""``MS_REMOUNT`` of mount(2)."""


def mount(*arguments: str) -> None:
    """Mount something, or end."""
    subprocess.run(["mount", *arguments], check=True)


def furnish(store: str) -> None:
    """Replace what the engine would share with the machine."""
    if subprocess.run(["umount", "--recursive", "/sys/fs/cgroup"], capture_output=True, check=False).returncode:
        subprocess.run(["umount", "--lazy", "/sys/fs/cgroup"], check=True)
    mount("-t", "cgroup2", "none", "/sys/fs/cgroup")
    for folder in ("/run", "/var/tmp"):
        if not store.startswith(f"{folder}/"):
            mount("-t", "tmpfs", "-o", "mode=755", "none", folder)
    if os.path.isfile("/etc/resolv.conf"):
        mount("--bind", "/dev/null", "/etc/resolv.conf")
    mount("-t", "tmpfs", "-o", "mode=755", "none", store)


def bury(*_: object) -> None:
    """Reap whatever has ended here: orphans of the engine become children of the first process."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def start(log: str, *command: str) -> subprocess.Popen[bytes]:
    """Start the engine."""
    with open(log, "ab") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def resize(store: str, size_bytes: int) -> None:
    """Give the file system of the images another size."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", store.encode(), None, REMOUNT, f"size={size_bytes},mode=755".encode()):
        raise OSError(ctypes.get_errno(), "cannot resize")


def main(store: str) -> None:
    """Serve until the standard input ends."""
    furnish(store)
    signal.signal(signal.SIGCHLD, bury)
    engine: subprocess.Popen[bytes] | None = None
    print("ready", flush=True)
    for line in sys.stdin:
        match json.loads(line):
            case ["start", log, *command]:
                engine = start(log, *command)
            case ["kill"]:
                assert engine is not None
                engine.kill()
                engine.wait()
            case ["resize", size_bytes]:
                resize(store, size_bytes)
        print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
