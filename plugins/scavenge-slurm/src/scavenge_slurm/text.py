"""What ``squeue --format`` says, as jobs: for versions before 21.08, and where JSON of everybody's jobs is too much.

Pure. The header is asked for: it proves that the lines are an answer, also where there is no job. A comment may have
line breaks in it, so a line that does not begin like a record belongs to the one before.
"""

from __future__ import annotations

import re

from scavenge_slurm.jobs import Job, UnknownOutput

_BETWEEN = ":_:"
"""Stands between fields. No sign in it means anything to a shell."""

_FIELDS = "AFKTLuaPNBjk"
FORMAT = _BETWEEN.join(["scavenge", *(f"%{letter}" for letter in _FIELDS)])

_BEGIN = f"scavenge{_BETWEEN}"
_TIME = re.compile(r"(?:(?:(\d{1,6})-)?(\d{1,4}):)?(\d{1,4}):(\d\d)")
_NOTHING = frozenset({"(null)", "n/a", "N/A"})


def jobs_in_text(output: bytes, now: float) -> list[Job]:
    """The jobs in the lines of ``squeue --format`` at the instant *now*. Raises :class:`UnknownOutput`."""
    records: list[str] = []
    for line in output.decode("utf-8", "replace").split("\n"):
        if line.startswith(_BEGIN):
            records.append(line.removeprefix(_BEGIN))
        elif records:
            records[-1] += f"\n{line}"
        elif line.strip() and not line.startswith("CLUSTER: "):  # stands before the header with -M
            raise UnknownOutput(f'it begins with "{" ".join(line[:60].split())}", where the header was expected')
    if not records or "JOBID" not in records[0]:
        raise UnknownOutput("it printed no header, so it may not know")
    if not output.endswith(b"\n"):
        raise UnknownOutput("its last line is cut")
    return [_job(record, now) for record in records[1:]]


def _job(record: str, now: float) -> Job:
    fields = record.split(_BETWEEN, len(_FIELDS) - 1)
    if len(fields) != len(_FIELDS) or not fields[0].isdecimal():
        raise UnknownOutput(f'a record without its fields: "{" ".join(record[:60].split())}"')
    found = dict(zip(_FIELDS, ("" if field.strip() in _NOTHING else field.strip() for field in fields), strict=True))
    left_s = _seconds(found["L"])
    task = _whole(found["K"])
    return Job(
        job_id=int(found["A"]),
        states=frozenset({found["T"].upper()}),
        name=found["j"],
        user=found["u"],
        account=found["a"],
        partition=found["P"],
        comments=(found["k"],),
        nodes=found["N"],
        batch_host=found["B"],
        array_job_id=None if task is None else _whole(found["F"]),
        array_task_id=task,
        ends_at=None if left_s is None else now + left_s,
        ends_about=True,
    )


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _seconds(text: str) -> float | None:
    """The seconds in ``days-hours:minutes:seconds``, of which the first two may be left out."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
