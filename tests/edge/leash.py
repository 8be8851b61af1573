"""Runs a command that ends when its standard input does: ``python leash.py COMMAND ...``.

Whoever starts it holds the other end of that pipe, so the command does not outlive them, even when they are killed.
It tells the command's process id on standard output and ends with its exit status, as a shell tells it.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys

if __name__ == "__main__":
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    print(child.pid, flush=True)
    ended = os.pidfd_open(child.pid)
    select.select([ended, sys.stdin], [], [])
    child.kill()
    status = child.wait()
    sys.exit(128 - status if status < 0 else status)
