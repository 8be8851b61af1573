"""``python -m scavenge.worker --socket FD --life FD``: how the run starts a worker. Nobody else has a use for it.

The guard comes before all else, so that nothing of the environment, however it goes wrong, outlives the run; whatever
is heavy is imported after it.
"""

from __future__ import annotations

import os
import sys

from scavenge.worker.guard import start_guard


def main(arguments: list[str]) -> int:
    """Play the environment that the run tells of at the socket; the exit status."""
    match arguments:
        case ["--socket", socket_fd, "--life", life_fd] if socket_fd.isdecimal() and life_fd.isdecimal():
            descriptors = int(socket_fd), int(life_fd)
        case _:
            print("a worker is started by a run, not by hand; see `scavenge run --help`", file=sys.stderr)  # noqa: T201 - to whoever typed it
            return 2
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # foreign code's own processes must not keep them open
    start_guard(descriptors[1])
    from scavenge.worker.process import run_process

    return run_process(descriptors[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
