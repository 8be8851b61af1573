"""What ``squeue --json`` says, as jobs. Pure; knows the shapes of the versions since 21.08, and no file or process.

The shapes differ: a number may be a table ``{"set", "infinite", "number"}``, a state may be a list of words, a comment
may be a table of comments. A document of another shape is an error of the whole: what is not understood is no listing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import attrs

_NO_VALUE = 0xFFFFFFFE
"""From here on, a number stands for "not set" or "infinite" (slurm.h: NO_VAL and INFINITE)."""

_ABSENT = frozenset(
    {
        "BOOT_FAIL",
        "CONFIGURING",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "POWER_UP_NODE",
        "RECONFIG_FAIL",
        "REVOKED",
        "SPECIAL_EXIT",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
    }
)
"""States in which no server can answer, whatever else the job is: not up yet, frozen, or dead."""


class UnknownOutput(ValueError):
    """The output is not what ``squeue`` prints when it knows; the text says where, on one line."""


@attrs.frozen
class Job:
    """One job as the scheduler sees it; times are seconds since 1970, ``None`` where there is none."""

    job_id: int
    states: frozenset[str]
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    comments: tuple[str, ...] = ()
    """What stands in the comment, then in the free field ``extra``."""
    nodes: str = ""
    """A hostlist expression."""
    batch_host: str = ""
    array_job_id: int | None = None
    array_task_id: int | None = None
    started_at: float | None = None
    ends_at: float | None = None
    ends_about: bool = False
    """Whether the end is only known to some seconds."""
    preempted_at: float | None = None

    @property
    def is_leaving(self) -> bool:
        """Whether its processes are being ended."""
        return "COMPLETING" in self.states and not self.states & _ABSENT

    @property
    def is_running(self) -> bool:
        """Whether its processes may answer and are not being ended."""
        return "RUNNING" in self.states and "COMPLETING" not in self.states and not self.states & _ABSENT

    @property
    def is_preempted(self) -> bool:
        """Whether it has its grace time before another job gets its place; a notice to an earlier run of it is over."""
        return self.preempted_at is not None and self.preempted_at >= (self.started_at or 0.0)


def jobs_in_json(output: bytes) -> list[Job]:
    """The jobs in a document of ``squeue --json``, in any state. Raises :class:`UnknownOutput`."""
    document = _document(output)
    errors = [_error_text(error) for error in _list(document, "errors", [])]
    if errors:
        raise UnknownOutput("; ".join(dict.fromkeys(errors)))
    return [_job(index, entry) for index, entry in enumerate(_list(document, "jobs", None))]


def _document(output: bytes) -> Mapping[str, object]:
    if not output.strip():
        raise UnknownOutput("it printed nothing, where JSON was expected")
    try:
        document = json.loads(output.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as exc:
        begin = " ".join(output[:60].decode("utf-8", "replace").split())
        raise UnknownOutput(f'what it printed is no JSON ({exc}); it begins with "{begin}"') from None
    if not isinstance(document, dict):
        raise UnknownOutput("what it printed is JSON, but no table with jobs")
    return document


def _list(document: Mapping[str, object], key: str, default: list[object] | None) -> list[object]:
    value = document.get(key, default)
    if not isinstance(value, list):
        raise UnknownOutput(f"its JSON has no list `{key}`")
    return value


def _error_text(error: object) -> str:
    if isinstance(error, Mapping):
        words = [error.get("error"), error.get("description"), error.get("source")]
        return ": ".join(word for word in words if isinstance(word, str) and word) or "an error without a text"
    return str(error)


def _job(index: int, entry: object) -> Job:
    job_id = _whole(entry.get("job_id")) if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or job_id is None:
        raise UnknownOutput(f"jobs[{index}] of its JSON has no job_id")
    array = _whole(entry.get("array_job_id")) or None  # 0 in a job that is in no array
    return Job(
        job_id=job_id,
        states=_states(index, entry.get("job_state")),
        name=_text(entry.get("name")),
        user=_text(entry.get("user_name")),
        account=_text(entry.get("account")),
        partition=_text(entry.get("partition")),
        comments=tuple(_comments(entry)),
        nodes=_text(entry.get("nodes")),
        batch_host=_text(entry.get("batch_host")),
        array_job_id=array,
        array_task_id=None if array is None else _whole(entry.get("array_task_id")),
        started_at=_instant(entry.get("start_time")),
        ends_at=_end(entry),
        preempted_at=_instant(entry.get("preempt_time")),
    )


def _states(index: int, value: object) -> frozenset[str]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise UnknownOutput(f"jobs[{index}] of its JSON has no job_state")
    return frozenset(word.upper() for word in words)


def _comments(entry: Mapping[str, object]) -> Iterator[str]:
    comment = entry.get("comment")
    yield _text(comment.get("job") if isinstance(comment, Mapping) else comment)
    yield _text(entry.get("extra"))


def _end(entry: Mapping[str, object]) -> float | None:
    end = _instant(entry.get("end_time"))
    start, limit_min = _instant(entry.get("start_time")), _number(entry.get("time_limit"))
    if end is None and start is not None and limit_min is not None:
        return start + 60.0 * limit_min
    return end


def _instant(value: object) -> float | None:
    return _number(value) or None


def _whole(value: object) -> int | None:
    found = _number(value)
    return None if found is None else int(found)


def _number(value: object) -> float | None:
    """A number in either of the shapes, or ``None`` where it is not set, infinite, or none."""
    if isinstance(value, Mapping):
        if value.get("set") is False or value.get("infinite") is True:
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < _NO_VALUE else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
