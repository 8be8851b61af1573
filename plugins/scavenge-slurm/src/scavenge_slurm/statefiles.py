"""Reads what jobs write about themselves: ``DIR/{job_id}.json`` or ``.toml``. Blocking; called in a thread.

A file that cannot be used costs its job only; a folder that cannot be read costs the whole listing, or a file server
that is away would look like servers that are.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import attrs

from scavenge.plugin import SourceError
from scavenge_slurm.jobs import Job
from scavenge_slurm.said import NotWhole, state_pairs

MOST_BYTES = 64 * 1024
OLDER_S = 60.0
"""A file that was written so long before its job began is of an earlier run of the job; the clocks may differ by less.

Slurm starts a job anew two minutes after its end at the earliest.
"""


@attrs.frozen
class FileSays:
    """What the file of a job says, or why it says nothing."""

    pairs: dict[str, str] | None = None
    trouble: str | None = None


def read_state_files(folder: Path, jobs: Iterable[Job]) -> dict[int, FileSays]:
    """What the files of the jobs say; a job without a file is not in it.

    Raises :class:`SourceError` when the folder cannot be read.
    """
    try:
        os.scandir(folder).close()
    except OSError as exc:
        where = "create it where the jobs write to, or correct the key"
        raise SourceError(f"state_dir {folder} cannot be read: {exc.strerror or exc}; {where}") from None
    found = ((job.job_id, _read_either(folder, job)) for job in jobs)
    return {job_id: says for job_id, says in found if says is not None}


def _read_either(folder: Path, job: Job) -> FileSays | None:
    for suffix in (".json", ".toml"):
        path = folder / f"{job.job_id}{suffix}"
        try:
            return _read(path, suffix, job.started_at)
        except FileNotFoundError:
            continue
        except NotWhole as exc:
            return FileSays(trouble=f"{path}: {exc}")
        except OSError as exc:
            return FileSays(trouble=f"{path} cannot be read: {exc.strerror or exc}")
    return None


def _read(path: Path, suffix: str, started_at: float | None) -> FileSays | None:
    with open(path, "rb", opener=_open_at_once) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise NotWhole("no regular file")
        if started_at is not None and state.st_mtime < started_at - OLDER_S:
            return None
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise NotWhole(f"more than {MOST_BYTES} bytes")
    return FileSays(state_pairs(data, suffix))


def _open_at_once(path: str, flags: int) -> int:
    """Open what may be a pipe without waiting for its other end."""
    return os.open(path, flags | os.O_NONBLOCK)
