"""A cluster for tests: an executable ``squeue`` in a folder, which prints jobs in the shape of one version of Slurm.

The shapes are those of ``recordings/`` (22.05, recorded) and of the data parsers v0.0.37 to v0.0.42. Like the real one,
``--json`` of 22.05 and earlier filters nothing, and an unknown user is an empty answer with exit code 0.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

SHAPES = ("21.08", "22.05", "23.02", "23.11", "24.11")

START = 1_795_998_000
NOW = START + 600.0

_SCRIPT = """#!/bin/sh
cd "{folder}" || exit 9
printf '%s ' "$@" >> arguments
echo >> arguments
env > environment
. ./behaviour
"""


def job(job_id: int = 1, **changes: Any) -> dict[str, Any]:
    """A job that runs, as the tests write it; times in seconds, ``limit`` in minutes."""
    plain = {
        "job_id": job_id,
        "name": "vllm",
        "user": "alice",
        "state": ["RUNNING"],
        "comment": f"port={8000 + job_id}",
        "extra": "",
        "nodes": f"gpu{job_id:02d}",
        "batch_host": f"gpu{job_id:02d}",
        "start": START,
        "end": START + 36_000,
        "limit": 600,
        "preempt": 0,
        "array": None,
    }
    assert set(changes) <= set(plain)
    return {**plain, **changes}


def document(shape: str, jobs: Sequence[dict[str, Any]], errors: Sequence[object] = ()) -> dict[str, Any]:
    """What ``squeue --json`` of a version prints."""
    return {
        "meta": {"slurm": {"release": shape}},
        "jobs": [_shaped(shape, one) for one in jobs],
        "errors": list(errors),
    }


def _shaped(shape: str, one: dict[str, Any]) -> dict[str, Any]:
    tables = shape >= "23.02"
    late = shape >= "23.11"
    array, task = one["array"] or (0, None)
    shaped = {
        "account": "",
        "admin_comment": "port=1",
        "array_job_id": _number(array, tables),
        "array_task_id": _number(task, tables),
        "batch_host": one["batch_host"],
        "comment": one["comment"],
        "end_time": _number(one["end"], late),
        "job_id": one["job_id"],
        "job_resources": {"nodes": {"list": one["nodes"]} if shape >= "24.05" else one["nodes"]},
        "job_state": one["state"] if late else one["state"][-1],
        "name": one["name"],
        "nodes": one["nodes"],
        "partition": "gpu",
        "preempt_time": _number(one["preempt"], late),
        "start_time": _number(one["start"], late),
        "time_limit": _number(one["limit"], tables),
        "user_name": one["user"],
    }
    return {**shaped, "extra": one["extra"]} if late else shaped


def _number(value: int | None, as_table: bool) -> object:
    if not as_table:
        return value
    return {"set": value is not None, "infinite": False, "number": value or 0}


def lines(jobs: Sequence[dict[str, Any]], now: float = NOW) -> str:
    """What ``squeue --format`` prints."""
    header = "JOBID ARRAY_JOB_ID ARRAY_TASK_ID STATE TIME_LEFT USER ACCOUNT PARTITION NODELIST EXEC_HOST NAME COMMENT"
    return "".join(
        f"{':_:'.join(['scavenge', *row])}\n" for row in [header.split(), *(_fields(one, now) for one in jobs)]
    )


def _fields(one: dict[str, Any], now: float) -> list[str]:
    array, task = one["array"] or (one["job_id"], "N/A")
    left = int(one["end"] - now)
    time_left = f"{left // 86400}-{left // 3600 % 24:02d}:{left // 60 % 60:02d}:{left % 60:02d}"
    return [
        str(one["job_id"]),
        str(array),
        str(task),
        one["state"][-1],
        time_left if one["limit"] else "UNLIMITED",
        one["user"],
        "(null)",
        "gpu",
        one["nodes"],
        one["batch_host"] or "n/a",
        one["name"],
        one["comment"] or "(null)",
    ]


class Cluster:
    """The folder with ``squeue`` in it. What it does next is what was said last."""

    def __init__(self, folder: Path, shape: str = "24.11") -> None:
        self.folder = folder
        self.shape = shape
        self.squeue = folder / "squeue"
        self.squeue.write_text(_SCRIPT.format(folder=folder))
        self.squeue.chmod(0o755)
        self.tell([])

    def tell(self, jobs: Sequence[dict[str, Any]]) -> None:
        """Have these jobs."""
        self._replace("answer.json", json.dumps(document(self.shape, jobs)))
        self._replace("answer.txt", lines(jobs))
        self.behave('case "$*" in *--json*) cat answer.json;; *) cat answer.txt;; esac')

    def behave(self, script: str) -> None:
        """Do what a shell script does, in the folder, with the arguments of ``squeue``."""
        self._replace("behaviour", f"{script}\n")

    @asynccontextmanager
    async def behaving(self, script: str) -> AsyncIterator[None]:
        """Do that for a while."""
        before = (self.folder / "behaviour").read_text()
        self.behave(script)
        yield
        self.behave(before)

    @property
    def arguments(self) -> list[list[str]]:
        """What ``squeue`` was called with, each time."""
        return [line.split() for line in (self.folder / "arguments").read_text().splitlines()]

    def environment(self) -> dict[str, str]:
        """What ``squeue`` last had for its environment."""
        text = (self.folder / "environment").read_text()
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def _replace(self, name: str, text: str) -> None:
        (self.folder / f"{name}.new").write_text(text)
        os.replace(self.folder / f"{name}.new", self.folder / name)
