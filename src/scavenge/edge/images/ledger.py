"""What processes of this machine brought into a container engine and what they need, on disk, so that nothing is left.

A process has a file for each engine, ``FOLDER/ENGINE/PID-STARTED-RANDOM.jsonl``, and its lock for as long as it lives
(:mod:`scavenge.edge.images.ledger_files`). A file whose lock can be had is a dead one's; of several who try one has it.
A line is ``{"bring": NAME}``, ``{"let_go": NAME}`` or ``{"need": [NAME, …]}``, or ``{"dead": true}`` by whoever took
the file over: claims (``need``) end with their process. A last line without its end was torn, and counts for nothing.

Invariant: what a process brings is on disk before the engine is asked for it. Where that cannot be (no room, no right
to write, a file system without locks), it is told once, and the process removes at its end what it knows of; what it
brought stays if it is killed. Knows nothing of engines but an identity, and decides nothing about removals.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import attrs
import orjson

from scavenge.core.images.reference import safe_file_name
from scavenge.edge.images.ledger_files import append, is_owned, leave, ledger_files, make_owned, take_over, whole_lines

_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})


def default_folder(environ: Mapping[str, str]) -> Path:
    """Where the ledgers are: ``$XDG_STATE_HOME/scavenge/images``, or in ``~/.local/state``."""
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        home = environ.get("HOME") or os.path.expanduser("~")
        state = Path("/", home, ".local", "state")
    return state / "scavenge" / "images"


@attrs.define
class _Account:
    """What a ledger's lines say."""

    brought: dict[str, None] = attrs.field(factory=dict)
    needed: set[str] = attrs.field(factory=set)

    def read(self, lines: bytes) -> None:
        """Take whole lines in; one that says nothing that is known counts for nothing."""
        for line in lines.splitlines():
            with suppress(orjson.JSONDecodeError):
                said = orjson.loads(line)
                if isinstance(said, dict):
                    self._hear(said)

    def _hear(self, said: Mapping[str, object]) -> None:
        if isinstance(image := said.get("bring"), str):
            self.brought[image] = None
        if isinstance(image := said.get("let_go"), str):
            self.brought.pop(image, None)
        if isinstance(images := said.get("need"), list):
            self.needed.update(image for image in images if isinstance(image, str))
        if said.get("dead"):
            self.needed.clear()


@attrs.define
class _Neighbour:
    """Another process's ledger: what its first ``read_bytes`` say."""

    account: _Account = attrs.field(factory=_Account)
    read_bytes: int = 0

    def read_on(self, path: Path) -> None:
        """Read what is new."""
        with suppress(OSError), path.open("rb") as file:
            lines = whole_lines(file.fileno(), self.read_bytes)
            self.account.read(lines)
            self.read_bytes += len(lines)


@attrs.define(eq=False)
class FileLedger:
    """This process's ledger for one engine. Implements :class:`scavenge.runtime.ports.ImageLedger`.

    Without a file (``_fd`` is -1) it remembers only in memory.
    """

    _folder: Path
    _path: Path
    _fd: int
    _warn: Callable[[str], None] = attrs.field(repr=False)
    _own: _Account = attrs.field(factory=_Account, init=False)
    _neighbours: dict[Path, _Neighbour] = attrs.field(factory=dict, init=False, repr=False)
    _owed: bytes = attrs.field(default=b"", init=False, repr=False)
    """Lines that could not be written."""
    _is_warned: bool = attrs.field(default=False, init=False)

    def need(self, images: Sequence[str]) -> None:
        """Claim images for as long as this process lives."""
        new = [image for image in dict.fromkeys(images) if image not in self._own.needed]
        if new:
            self._own.needed.update(new)
            self.write({"need": new})

    def bring(self, image: str) -> None:
        """Note that an image will be brought. On disk before it returns, where that can be."""
        if image not in self._own.brought:
            self._own.brought[image] = None
            self.write({"bring": image}, lasting=True)

    def let_go(self, image: str) -> None:
        """Note that an image that was brought is gone or is not ours any more."""
        if image in self._own.brought:
            del self._own.brought[image]
            self.write({"let_go": image})

    def is_needed_elsewhere(self, image: str) -> bool:
        """Whether another process that lives claims an image. Where that cannot be seen, none does."""
        living = [path for path in ledger_files(self._folder) if path != self._path and is_owned(path)]
        self._neighbours = {path: self._neighbours.get(path) or _Neighbour() for path in living}
        for path, neighbour in self._neighbours.items():
            neighbour.read_on(path)
        return any(image in neighbour.account.needed for neighbour in self._neighbours.values())

    def close(self) -> None:
        """Give the file up. It stays, for whoever comes, if there is something in it to be removed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            leave(fd, self._path, delete=not self._own.brought)

    def write(self, said: Mapping[str, object], *, lasting: bool = False) -> None:
        """Write a line down; *lasting*: on disk. What could not be written goes with the next one."""
        if self._fd < 0:
            return
        self._owed += _line(said)
        try:
            append(self._fd, self._owed)
            self._owed = b""
            if lasting:
                os.fsync(self._fd)
        except OSError as exc:
            if not self._is_warned:
                self._is_warned = True
                self._warn(_unwritten(self._folder, exc))


@attrs.define(eq=False)
class DeadLedger:
    """What a process left that is dead. It is ours until :meth:`close`; nobody else has it meanwhile."""

    _path: Path
    _fd: int
    _account: _Account = attrs.field(factory=_Account, init=False)

    def read(self, lines: bytes) -> None:
        """Take in what it left, and let everybody see that it is dead."""
        self._account.read(lines)
        with suppress(OSError):
            os.ftruncate(self._fd, len(lines))  # else the next line would be one with a torn one
            append(self._fd, _line({"dead": True}))

    @property
    def images(self) -> tuple[str, ...]:
        """What it brought and did not let go, the oldest first."""
        return tuple(self._account.brought)

    def let_go(self, image: str) -> None:
        """Note that an image is gone, or is somebody else's to remove."""
        if image in self._account.brought:
            del self._account.brought[image]
            with suppress(OSError):  # then whoever comes next looks for an image that is gone, and lets go of it
                append(self._fd, _line({"let_go": image}))

    def close(self) -> None:
        """Give it up, and delete the file when nothing is left. Once is enough; more does no harm."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            leave(fd, self._path, delete=not self._account.brought)

    def __enter__(self) -> DeadLedger:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _nothing(text: str) -> None:
    """Who is told nothing."""


@contextmanager
def open_ledger(
    folder: Path, engine_id: str, run_name: str, *, warn: Callable[[str], None] = _nothing
) -> Iterator[FileLedger]:
    """This process's ledger for an engine while the block runs. Blocks a little; raises nothing.

    *run_name* stands in the file, for whoever looks. What hinders the file from being kept is told to *warn*, once.
    """
    own = folder / safe_file_name(engine_id)
    ledger = FileLedger(own, own, -1, warn)
    try:
        path, fd = make_owned(own)
    except OSError as exc:
        warn(_unwritten(own, exc))
    else:
        ledger = FileLedger(own, path, fd, warn)
        ledger.write({"run": run_name, "engine": engine_id, "pid": os.getpid()})
    try:
        yield ledger
    finally:
        ledger.close()


def dead_ledgers(folder: Path, engine_id: str) -> Iterator[DeadLedger]:
    """The ledgers that dead processes left for an engine, one after the other, each ours until the next.

    Blocks a little; raises nothing. What cannot be had or read is passed over; one with nothing in it is deleted.
    """
    for path in ledger_files(folder / safe_file_name(engine_id)):
        if (fd := take_over(path)) is None:
            continue
        try:
            lines = whole_lines(fd)
        except OSError:
            leave(fd, path, delete=False)
            continue
        dead = DeadLedger(path, fd)
        dead.read(lines)
        try:
            if dead.images:
                yield dead
        finally:
            dead.close()


def brought(folder: Path, engine_id: str) -> list[str]:
    """What all processes brought to an engine and did not let go, the living and the dead. Blocks a little."""
    found: dict[str, None] = {}
    for path in ledger_files(folder / safe_file_name(engine_id)):
        one = _Neighbour()
        one.read_on(path)
        found.update(one.account.brought)
    return list(found)


def _line(said: Mapping[str, object]) -> bytes:
    return json.dumps(said).encode() + b"\n"


def _unwritten(folder: Path, exc: OSError) -> str:
    """That a ledger cannot be kept, why, what follows from it, and the remedy."""
    why = "its file system has no locks" if exc.errno in _NO_LOCKS else exc.strerror
    return (
        f"{folder}: cannot note which container images this run brings ({why}); if it is killed, they stay until they "
        "are removed by hand; set XDG_STATE_HOME to a folder on a local disk with room"
    )
