"""The folder of one run: made whole, owned by one process, opened again for resume. Knows no configuration.

Ownership is an ``flock`` on the file ``lock``: the system takes it back when its owner dies, whatever way, so a lock
that a dead process left is no obstacle. The file's text names the owner for the message, and means nothing else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import attrs
import orjson

from scavenge.edge.results import sync_folder
from scavenge.errors import ResultsError, UsageError

NAME_LONGEST = 80
CONFIG, IDENTITY, RESULTS, EVENTS, SUMMARY, LOGS, LOCK = (
    "config.toml", "identity.json", "results.jsonl", "events.jsonl", "summary.json", "logs", "lock",
)  # fmt: skip


def safe_name(name: str) -> str:
    """A run's name as the start of a folder's: letters, digits, ``.``, ``_`` and ``-``; never empty or hidden."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:NAME_LONGEST].strip("-.") or "run"


@attrs.define(eq=False)
class RunFolder:
    """A run folder that this process owns until :meth:`close`."""

    path: Path
    _lock: int = attrs.field(repr=False)

    @property
    def results(self) -> Path:
        """One line a finished rollout."""
        return self.path / RESULTS

    @property
    def events(self) -> Path:
        """One line an event."""
        return self.path / EVENTS

    @property
    def logs(self) -> Path:
        """The folder for what child processes say."""
        return self.path / LOGS

    def write_config(self, config: str) -> None:
        """Replace the configuration, for a later part that changes it. Raises :class:`ResultsError`."""
        write_whole(self.path / CONFIG, config.encode())

    def read_summary(self) -> Mapping[str, object]:
        """The last summary that was written; empty when there is none that can be read."""
        return self._read_table(SUMMARY)

    def _read_table(self, name: str) -> Mapping[str, object]:
        try:
            found = orjson.loads((self.path / name).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def read_identity(self) -> Mapping[str, object]:
        """What its results depend on, as :meth:`write_identity` left it; empty when there is none that can be read."""
        return self._read_table(IDENTITY)

    def write_identity(self, identity: Mapping[str, object]) -> None:
        """Say what the results depend on, for a later part to compare. Raises :class:`ResultsError`."""
        write_whole(self.path / IDENTITY, _pretty(identity))

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Replace the summary in one step. Raises :class:`ResultsError`."""
        write_whole(self.path / SUMMARY, _pretty(summary))

    def discard(self) -> None:
        """Remove the folder of a run that never began, and give it up. One that has results stays as it is."""
        if not (self.results.exists() and self.results.stat().st_size):
            shutil.rmtree(self.path, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Give the folder up. Once is enough; more does no harm."""
        fd, self._lock = self._lock, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def create_run_folder(output_dir: Path, name: str, config: str, now: datetime) -> RunFolder:
    """Make ``OUTPUT_DIR/NAME-YYYYMMDDTHHMMSSZ-xxxx`` with its configuration and own it. *now* is aware.

    Raises :class:`ResultsError`.
    """
    stamp = f"{safe_name(name)}-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    path = output_dir
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        path = _make_unique(output_dir, stamp)
        (path / LOGS).mkdir()
    except OSError as exc:
        raise ResultsError(path, f"cannot be made: {exc.strerror}; choose another output_dir") from exc
    folder = RunFolder(path, _lock(path))
    try:
        write_whole(path / CONFIG, config.encode())
        sync_folder(output_dir)
    except ResultsError:
        folder.discard()
        raise
    return folder


def _make_unique(output_dir: Path, stamp: str) -> Path:
    while True:
        path = output_dir / f"{stamp}-{os.urandom(2).hex()}"
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path


def open_run_folder(path: Path) -> RunFolder:
    """Own an earlier run's folder, to go on with it.

    Raises :class:`UsageError` when it is no run folder or another process owns it, :class:`ResultsError` when it cannot
    be locked.
    """
    if not path.is_dir():
        raise UsageError(
            f"{path}: {'not a folder' if path.exists() else 'no such folder'}; --resume takes a run folder"
        )
    if not (path / CONFIG).is_file():
        hint = "the run was killed before it began; start it anew" if (path / LOCK).exists() else "not a run folder"
        raise UsageError(f"{path}: has no {CONFIG}: {hint}")
    return RunFolder(path, _lock(path))


def _lock(path: Path) -> int:
    """A descriptor that holds the folder's lock."""
    try:
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as exc:
        raise ResultsError(path / LOCK, f"cannot be opened: {exc.strerror}") from exc
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except OSError as exc:
        owner = os.pread(fd, 300, 0).decode(errors="replace").strip()
        os.close(fd)
        if exc.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise UsageError(f"{path}: another process owns this run ({owner or 'it is just starting'})") from exc
        raise ResultsError(path / LOCK, f"cannot be locked: {exc.strerror}; choose another output_dir") from exc
    return fd


def _pretty(document: Mapping[str, object]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part.

    Raises :class:`ResultsError`.
    """
    draft = path.with_name(f".{path.name}.new")
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as exc:
        with suppress(OSError):
            draft.unlink()
        raise ResultsError(path, f"cannot be written: {exc.strerror}") from exc
    sync_folder(path.parent)
