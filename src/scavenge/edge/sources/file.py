"""The file source: ``endpoints.toml``, read afresh each time it is asked.

Decides what of a file is a listing and what is only a file in the making. Knows nothing of what the rows must be.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import attrs
import trio

from scavenge.core.documents import DocumentError, endpoint_tables, parse_toml
from scavenge.core.naming import one_line
from scavenge.errors import SourceError
from scavenge.listings import Listing

_REPLACE = "write a new file beside it and rename that over it"


@attrs.frozen
class FileSourceConfig:
    """The keys of a ``[[source]]`` of type ``file``."""

    path: Path


class FileSource:
    """Lists the endpoints of a file.

    A read that hangs (a dead network mount) is left behind in its thread when it is cancelled, and the next one waits
    until it is over, so no more than one thread ever hangs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._limiter = trio.CapacityLimiter(1)

    async def list_endpoints(self) -> Listing:
        """The endpoints that the file has now.

        Raises :class:`SourceError` when it cannot be read or is no whole endpoints file. Cancelled, it leaves at most
        a read behind that nobody waits for.
        """
        read = partial(read_endpoints_file, self.path)
        return await trio.to_thread.run_sync(read, limiter=self._limiter, abandon_on_cancel=True)


def read_endpoints_file(path: Path) -> Listing:
    """The listing in an endpoints file; its rows are not checked.

    Raises :class:`SourceError`, which names the file and the remedy on one line. A file of nothing but comments, or
    with ``endpoint = []``, is a listing without any endpoint; a file without a byte in it is not.
    """
    try:
        data = _read(path)
        if not data.strip():
            raise DocumentError(
                f"empty, so it looks half-written; {_REPLACE}, or write `endpoint = []` for no endpoint"
            )
        return Listing(endpoint_tables(parse_toml(data)), where=str(path))
    except DocumentError as exc:
        raise SourceError(f"{one_line(str(path))}: {exc}") from None


def _read(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise DocumentError("this is a folder; name the endpoints.toml in it")
        if path.exists() and not path.is_file():
            raise DocumentError("this is no regular file; name an endpoints.toml")
        with path.open("rb") as file:
            before = _state(file.fileno())
            data = file.read()
            after = _state(file.fileno())
    except FileNotFoundError:
        raise DocumentError("no such file; create it, or correct the path") from None
    except PermissionError:
        raise DocumentError("not readable for this user; change its permissions") from None
    except DocumentError:
        raise
    except (OSError, ValueError) as exc:
        raise DocumentError(f"cannot be read: {one_line(str(exc))}") from None
    if before != after:
        raise DocumentError(f"it changed while it was read; {_REPLACE}")
    return data


def _state(descriptor: int) -> tuple[int, int]:
    state = os.fstat(descriptor)
    return state.st_size, state.st_mtime_ns
