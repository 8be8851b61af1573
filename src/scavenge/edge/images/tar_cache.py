"""What is in the tars that were looked into, kept on disk between runs: ``tar-index.json``. Blocks; for threads only.

The file is a memory and nothing else: one that cannot be read, is of another version, or is not what was written is as
good as none, and one that cannot be written costs the time to look again. It is replaced whole, under a lock beside it,
so that several processes may add to it. What it says of a file holds for as long as the file's key is the same.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import orjson

from scavenge.core.images.archive_values import Archive, ArchiveEntry, ArchiveLayer
from scavenge.edge.images.archive_file import FileKey
from scavenge.images import Platform

VERSION = 1
FILE, LOCK = "tar-index.json", "tar-index.lock"
MOST_BYTES = 2**28
_LOCK_TRIES, _LOCK_PAUSE_S = 40, 0.05


@attrs.frozen
class Looked:
    """What was seen in a file while it had that key: its images, or (``trouble``) why there are none."""

    key: FileKey
    archive: Archive = attrs.field(factory=partial(Archive, ()))
    trouble: str = ""


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where what is kept between runs belongs: ``$XDG_CACHE_HOME/scavenge``, by default ``~/.cache/scavenge``."""
    told = Path(environ.get("XDG_CACHE_HOME", ""))  # one that is relative counts for nothing (XDG Base Directory)
    return (told if told.is_absolute() else Path.home() / ".cache") / "scavenge"


def read_cache(folder: Path) -> dict[str, Looked]:
    """What is known, by the files' paths; empty when nothing can be read."""
    try:
        with open(folder / FILE, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        return _parse(data) if len(data) <= MOST_BYTES else {}
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return {}


def add_to_cache(folder: Path, looked: Mapping[str, Looked]) -> bool:
    """Keep more, and forget the files that are gone. Whether it was kept: it is no harm where it was not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / LOCK):
            known = {path: one for path, one in read_cache(folder).items() if os.path.exists(path)} | dict(looked)
            _replace(folder / FILE, _text(known))
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone with the file, where the file system has locks. Raises ``OSError`` when another process holds on to it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(_LOCK_TRIES):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOCK_PAUSE_S)
            except OSError:
                break  # no locks there: the last one to write wins, and the others look again next time
            else:
                break
        else:
            raise TimeoutError(f"{path} is held by another process")
        yield
    finally:
        os.close(fd)


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


def _text(known: Mapping[str, Looked]) -> bytes:
    files = {path: _looked_text(one) for path, one in known.items() if _is_plain(path)}
    return orjson.dumps({"version": VERSION, "files": files})


def _is_plain(path: str) -> bool:
    """Whether JSON can say it: a name that is no UTF-8 is looked into each time."""
    return path.isascii() or path.encode(errors="replace").decode() == path


def _looked_text(looked: Looked) -> dict[str, Any]:
    return {
        "key": attrs.astuple(looked.key),
        "trouble": looked.trouble,
        "troubles": looked.archive.troubles,
        "images": [
            {
                "names": entry.names,
                "platform": attrs.astuple(entry.platform),
                "config": (entry.config_digest, entry.config_offset, entry.config_size),
                "layers": [attrs.astuple(layer, recurse=False) for layer in entry.layers],
            }
            for entry in looked.archive.entries
        ],
    }


def _parse(data: bytes) -> dict[str, Looked]:
    """Raises one of several errors for what :func:`_text` did not write."""
    document = orjson.loads(data)
    if document["version"] != VERSION:
        return {}
    return {path: _looked(one) for path, one in document["files"].items()}


def _looked(said: Mapping[str, Any]) -> Looked:
    key = FileKey(*_typed(said["key"], int, int, int))
    trouble, *troubles = _typed([said["trouble"], *said["troubles"]], *(str,) * (1 + len(said["troubles"])))
    return Looked(key, Archive(tuple(map(_entry, said["images"])), tuple(troubles)), trouble)


def _entry(said: Mapping[str, Any]) -> ArchiveEntry:
    names = said["names"]
    digest, offset, size = _typed(said["config"], str, int, int)
    return ArchiveEntry(
        tuple(_typed(names, *(str,) * len(names))),
        Platform(*_typed(said["platform"], str, str, str)),
        digest,
        offset,
        size,
        tuple(ArchiveLayer(*_typed(layer, int, int, str, str, str)) for layer in said["layers"]),
    )


def _typed(values: Any, *types: type) -> list[Any]:
    """The values, if they have just these types."""
    if not isinstance(values, list) or [type(value) for value in values] != list(types):
        raise ValueError(f"expected {types}")
    return values
