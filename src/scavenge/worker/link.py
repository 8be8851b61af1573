"""The worker's end of the socket to the run: two threads beside whatever the environment does.

One reads messages and delivers them; the other writes what is to be sent, in order, and after some seconds with nothing
to send a :class:`Beat`, so that the run hears of a worker whose event loop is blocked. Knows no environment.

Invariants: what was sent before :meth:`Link.close` is written before that returns; a message is delivered once, in the
order of its coming; after :class:`Stop` nothing is delivered. When the run is gone, so is the process, at once.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

from scavenge.core.frames import BadFrame, encode, reader_to_worker
from scavenge.core.worker_messages import Beat, FromWorker, Stop, ToWorker

BEAT_EVERY_S = 2.0
SIGNALS_EVERY_S = 1.0
"""How long the main thread waits in one go: a signal that comes just before a wait is only handled after it."""
READ_BYTES = 64 * 1024
NO_RUN, CANNOT_GO_ON = 1, 70
"""Exit statuses: the run is gone; what it says is no message or cannot be delivered, or the event loop broke down."""


def note(line: str) -> None:
    """Put a line into the worker's log."""
    print(f"scavenge worker: {line}", file=sys.stderr, flush=True)  # noqa: T201  # its log file


class Link:
    """The messages between run and worker. ``leave`` ends the process at once; it is called from any thread."""

    def __init__(self, sock: socket.socket, leave: Callable[[int], None]) -> None:
        self._sock = sock
        self._leave = leave
        self._outgoing: queue.SimpleQueue[bytes | Stop | None] = queue.SimpleQueue()
        self._early: list[ToWorker] = []  # what came before somebody listens
        self._begun = threading.Event()  # something has come
        self._listener: Callable[[ToWorker], None] | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._closed = False
        self._copied = False
        self._turned_at: float | None = None
        self._reading = threading.Thread(target=self._guarded, args=(self._read,), name="scavenge read", daemon=True)
        self._writing = threading.Thread(target=self._guarded, args=(self._write,), name="scavenge write", daemon=True)

    def start(self) -> None:
        """Start both threads."""
        self._reading.start()
        self._writing.start()

    # --- what comes

    def wait_first(self) -> ToWorker:
        """The first message, before anybody listens."""
        while not self._begun.wait(SIGNALS_EVERY_S):
            pass
        with self._lock:
            return self._early.pop(0)

    def listen(self, listener: Callable[[ToWorker], None]) -> None:
        """Have messages delivered to *listener*, first those that have come; it is called from any thread."""
        with self._lock:
            self._listener = listener
            early, self._early = self._early, []
            for message in early:
                listener(message)

    def deliver(self, message: ToWorker) -> None:
        """Hand on a message, as if it had come from the run. Before anybody listens, :class:`Stop` ends the process."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = isinstance(message, Stop)
            if self._listener is not None:
                self._listener(message)
            elif self._stopped:
                self._leave(0)
            else:
                self._early.append(message)
                self._begun.set()

    def stop_soon(self) -> None:
        """Have :class:`Stop` delivered by the writing thread. A signal handler may call this: it takes no lock."""
        self._outgoing.put(Stop())

    # --- what goes

    def send(self, message: FromWorker) -> None:
        """Have a message written. Never waits. Raises :class:`scavenge.core.frames.FrameTooLong`."""
        self.end_copy()
        self._outgoing.put(encode(message))

    def turned(self) -> None:
        """The event loop turns; to be told every second by one that there is."""
        self.end_copy()
        self._turned_at = time.monotonic()

    def end(self, status: int) -> None:
        """Wait until everything is written, and end the process, whatever its other threads do. From any thread."""
        self._flush()
        self._leave(status)

    def close(self) -> None:
        """Wait until everything is written, and end the conversation."""
        self._flush()
        with suppress(OSError):  # foreign code has closed the socket, and its reader waits for ever
            self._sock.shutdown(socket.SHUT_RDWR)
            self._reading.join()
            self._sock.close()

    def _flush(self) -> None:
        self._closed = True
        self._outgoing.put(None)
        self._writing.join()

    def forked(self) -> None:
        """This is a copy of the process that foreign code forked: the conversation is not its own."""
        self._copied = True
        with suppress(OSError):
            self._sock.close()

    def end_copy(self) -> None:
        """End a copy of the process that has come back to code of ours, instead of ending by itself."""
        if self._copied:
            note(f"process {os.getpid()} was forked by the environment and did not end there; it ends now (os._exit)")
            self._leave(CANNOT_GO_ON)

    # --- the threads

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a thread; without it the worker would be deaf or mute."""
        try:
            step()
        except (OSError, BadFrame) as exc:
            if not self._closed:
                note(f"the conversation with the run has ended: {exc}")
                self._leave(CANNOT_GO_ON if isinstance(exc, BadFrame) else NO_RUN)
        except BaseException:
            traceback.print_exc()
            self._leave(CANNOT_GO_ON)

    def _read(self) -> None:
        frames = reader_to_worker()
        while data := self._sock.recv(READ_BYTES):
            for message in frames.feed(data):
                self.deliver(message)
            frames.feed(b"")  # raises at once for a bad frame behind good ones
        raise ConnectionResetError("the run is gone")

    def _write(self) -> None:
        while (due := self._next_due()) is not None:
            if isinstance(due, Stop):
                self.deliver(due)
            else:
                self._sock.sendall(due)

    def _next_due(self) -> bytes | Stop | None:
        try:
            return self._outgoing.get(timeout=BEAT_EVERY_S)
        except queue.Empty:
            late_s = 0.0 if self._turned_at is None else time.monotonic() - self._turned_at
            return encode(Beat(late_s))
