"""The log file of a worker: what its process prints, one start after another. Knows nothing of processes.

Each start begins with a header line, and what counts as printed by it begins behind that line. The file is the foreign
code's to fill: whatever is read of it is bounded, and made fit to be shown.
"""

from __future__ import annotations

import os
import re
import zlib
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import attrs

TAIL_BYTES = 8192
"""How much of the end of a log is read."""

TAIL_LINES = 20
"""How many lines of it are shown."""

_NAME_CHARACTERS = 100
_UNSAFE = re.compile(r"[^A-Za-z0-9._@+=-]|^[.-]")
_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")  # ECMA-48: CSI and OSC


def log_name(name: str) -> str:
    """The name of the log file of the worker *name*: the same, where it is fit for that, else one that is its own."""
    safe = _UNSAFE.sub("_", name or "_")[:_NAME_CHARACTERS]
    if safe != name:
        safe = f"{safe}-{zlib.crc32(name.encode('utf-8', 'surrogatepass')):08x}"
    return f"{safe}.log"


@attrs.frozen
class WorkerLog:
    """The log of one start. Open while the block runs, for a process to inherit; what it says is read at any time.

    ``start`` is where what this start printed begins, in bytes.
    """

    path: Path
    start: int
    descriptor: int

    @classmethod
    def begin(cls, folder: Path, name: str) -> WorkerLog:
        """Make the folder and the file if need be, and write a header line at its end.

        Raises :class:`OSError` with the name of the file in it.
        """
        path = folder / log_name(name)
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            return cls(path, _write_header(descriptor, name), descriptor)
        except OSError as exc:
            os.close(descriptor)
            raise OSError(exc.errno, exc.strerror, str(path)) from exc

    def __enter__(self) -> WorkerLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self.descriptor)

    def tail(self) -> str:
        """The last lines that were printed, within :data:`TAIL_BYTES`; empty when they cannot be read."""
        with suppress(OSError), self.path.open("rb") as log:
            first = max(self.start, log.seek(0, os.SEEK_END) - TAIL_BYTES)
            log.seek(first)
            return _shown(log.read(TAIL_BYTES), cut=first > self.start)
        return ""


def _write_header(descriptor: int, name: str) -> int:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    blank = "\n" if os.fstat(descriptor).st_size else ""
    os.write(descriptor, f"{blank}--- {name!a} started {now}\n".encode())
    return os.fstat(descriptor).st_size


def _shown(printed: bytes, *, cut: bool) -> str:
    lines = printed.decode("utf-8", "replace").split("\n")
    if cut and len(lines) > 1:
        del lines[0]
    shown = [_plain(line) for line in lines]
    return "\n".join([line for line in shown if line][-TAIL_LINES:])


def _plain(line: str) -> str:
    """A line as a terminal would end up with it: of a line that was written over (a progress bar), what came last."""
    last = _ESCAPE_SEQUENCE.sub("", line).rstrip("\r").rpartition("\r")[2]
    return "".join(c for c in last.replace("\t", "    ") if c.isprintable()).rstrip()
