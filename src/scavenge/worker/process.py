"""A worker process from its start to its end: threads, signals, the environment and the event loop that it asks for."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from scavenge.core.worker_messages import Load
from scavenge.environments.references import importable
from scavenge.worker.answers import Answers
from scavenge.worker.link import CANNOT_GO_ON, Link
from scavenge.worker.loading import broken, make_environment, ready
from scavenge.worker.stage import BROKEN, Stage, print_traceback

Serve = Callable[[Stage], int]


def run_process(socket_fd: int) -> int:
    """Host the environment that the run tells of, until the run says stop; the exit status."""
    faulthandler.enable(all_threads=False)  # so that what was printed before a crash is still in the log's last lines
    sys.argv[1:] = []  # foreign code may take the program's arguments for its own
    link = Link(socket.socket(fileno=socket_fd), os._exit)
    _mind_signals(link)
    link.start()
    try:
        status = host(link)
    except BaseException as exc:  # a bug of ours, or foreign code that took the event loop down
        print_traceback(exc)
        status = CANNOT_GO_ON
    link.close()
    return status


def _mind_signals(link: Link) -> None:
    """SIGTERM is a stop. SIGINT is the run's to hear: Ctrl-C reaches workers too when they share its terminal.

    Both are as usual again in what foreign code forks or starts.
    """

    def ignore(number: int, frame: FrameType | None) -> None:
        """Not SIG_IGN, which programs that are started here would inherit."""

    def stop(number: int, frame: FrameType | None) -> None:
        link.stop_soon()

    signal.signal(signal.SIGINT, ignore)
    signal.signal(signal.SIGTERM, stop)
    masks = threading.local()

    def before() -> None:  # what comes until the copy has its own handlers must wait, or the interpreter forgets it
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})

    def after() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def forked() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        link.forked()
        after()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=forked)


def host(link: Link) -> int:
    """Load the environment that the first message names, and play it; the exit status."""
    load = link.wait_first()
    if not isinstance(load, Load):
        raise RuntimeError(f"the run began with {type(load).__name__}")
    sys.path.extend(entry for entry in load.path if entry not in sys.path)
    with importable(Path(load.base_dir)):
        stage = _make(load, link)
        return BROKEN if stage is None else _backend(stage.facts.backend)(stage)


def _make(load: Load, link: Link) -> Stage | None:
    """The environment; ``None``: the run has been told why there is none."""
    called: object = load.env_id.partition(":")[0]
    what = "cannot be made"
    try:
        called = environment = make_environment(load)
        what = "cannot say what its results depend on"
        answers = Answers(load.env_id, environment, link)
        return Stage(environment, ready(environment), link, answers, load.where)
    except BaseException as exc:  # foreign code; a SystemExit of its own is told as what it is
        print_traceback(exc)
        link.send(broken(exc, called, what))
        return None


def _backend(name: str) -> Serve:
    """What plays environments of that backend. The others are not imported."""
    if name == "trio":
        from scavenge.worker.on_trio import serve
    elif name == "asyncio":
        from scavenge.worker.on_asyncio import serve
    else:
        from scavenge.worker.on_main_thread import serve
    return serve
