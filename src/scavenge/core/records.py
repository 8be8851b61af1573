"""A rollout's record and its line in ``results.jsonl``. Pure; knows no file.

The line has the keys of the reference, in their order, and ends with the only newline in it; see
:mod:`scavenge.core.plainjson` for what happens to values that JSON does not have (a note goes to
``info.scavenge_note``). ``ErrorInfo.counts`` is not written: it only matters while the run is under way.

A reward that is no finite number would spoil every mean it is part of, so :func:`storable` makes such a rollout an
error of type ``BadReward``, and :func:`checked_rollout` before there is a record; a metric that is none is left out,
with a note.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import attrs

from scavenge.core.plainjson import read_json, read_json_fast, write_json
from scavenge.rollouts import ErrorInfo, Failure, Rollout, RolloutKey, RolloutRecord, Timing
from scavenge.types import Attempt, Url, Usage

NOTE = "scavenge_note"
_MISSING = object()
T = TypeVar("T")


def storable(record: RolloutRecord) -> RolloutRecord:
    """The record with a reward and metrics that are finite floats, changed as little as that takes."""
    if _is_plain(record):
        return record
    metrics, info = _metrics(record.metrics, record.info)
    error = record.error or _reward_error(record.reward)
    return attrs.evolve(record, reward=_number(record.reward), metrics=metrics, info=info, error=error)


def checked_rollout(rollout: Rollout) -> Rollout | Failure:
    """The rollout as :func:`storable` would have it in its record, or the failure that its reward makes of it.

    Never raises. What has been through it once stays as it is.
    """
    if _is_plain(rollout):
        return rollout
    if (error := _reward_error(rollout.reward)) is not None:
        return Failure(error, final=True)
    metrics, info = _metrics(rollout.metrics, rollout.info)
    return Rollout(rollout.completion, _number(rollout.reward), metrics, rollout.answer, info)


def _is_plain(result: RolloutRecord | Rollout) -> bool:
    reward = result.reward
    plain = reward is None or (type(reward) is float and math.isfinite(reward))
    return plain and type(result.metrics) is dict and not result.metrics and issubclass(type(result.info), dict)


def _reward_error(reward: object) -> ErrorInfo | None:
    if reward is None or _number(reward) is not None:
        return None
    said = f"the reward must be a finite number or None, got {value_shown(reward)}: look at the scorer"
    return ErrorInfo("BadReward", said)


def _metrics(metrics: object, info: object) -> tuple[dict[str, float], dict[str, Any]]:
    """Those metrics that are finite numbers, and ``info`` with a note of the others."""
    told, given = _as_dict(info), _as_dict(metrics)
    note = told if told is not None else {"info": info}
    if given is None:
        return {}, _noted(note, f"metrics must be a mapping, got {value_shown(metrics)}")
    numbers = {_text(name): _number(value) for name, value in given.items()}
    bad = [name for name, number in numbers.items() if number is None]
    if bad:
        note = _noted(note, f"metrics that are no finite number are left out: {', '.join(bad)}")
    return {name: number for name, number in numbers.items() if number is not None}, note


def _as_dict(value: object) -> dict[Any, Any] | None:
    try:
        return dict(value) if isinstance(value, Mapping) else None
    except Exception:  # a foreign class's own keys() failed
        return None


def _number(value: object) -> float | None:
    """A finite float for anything that is a number (NumPy's too), ``None`` for all else."""
    try:
        if isinstance(value, str | bytes | bytearray) or not hasattr(value, "__float__"):
            return None
        number = float(value)
    except Exception:  # an integer too large, or a foreign class's own failure
        return None
    return number if math.isfinite(number) else None


def value_shown(value: object) -> str:
    """A foreign value in a few words, with its type. Never raises."""
    try:
        return f"{str(value)[:80]} ({type(value).__name__})"
    except Exception:  # a foreign class's own __str__ failed, or an integer is too long to write out
        return f"a value of type {type(value).__name__}"


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # as above
        return f"<{type(value).__name__}>"


def _noted(info: dict[str, Any], sentence: str) -> dict[str, Any]:
    return {**info, NOTE: f"{_text(info[NOTE])}; {sentence}" if NOTE in info else sentence}


def encode(record: RolloutRecord) -> bytes:
    """The record's line, with its newline. Never raises, whatever an environment put into the record."""
    document = {
        "eval": record.key.eval,
        "env_id": record.env_id,
        "example_id": record.key.example_id,
        "rollout": record.key.rollout,
        "status": "ok" if record.error is None else "error",
        "reward": record.reward,
        "metrics": record.metrics,
        "prompt": record.prompt,
        "completion": record.completion,
        "answer": record.answer,
        "error": None if record.error is None else {"type": record.error.type, "message": record.error.message},
        "usage": {
            "prompt_tokens": record.usage.prompt_tokens,
            "completion_tokens": record.usage.completion_tokens,
        },
        "timing": {
            "queued_s": record.timing.queued_s,
            "model_s": record.timing.model_s,
            "total_s": record.timing.total_s,
        },
        "attempts": [_attempt(attempt) for attempt in record.attempts],
        "info": record.info,
    }
    return write_json(document, note_in_info) + b"\n"


def note_in_info(document: dict[str, Any], sentence: str) -> None:
    """Put what was changed to write *document* into its ``info``, beside what is noted there already."""
    info = document["info"]
    document["info"] = _noted(info if isinstance(info, dict) else {"info": info}, sentence)


def _attempt(attempt: Attempt) -> dict[str, object]:
    return {
        "endpoint": attempt.endpoint,
        "outcome": attempt.outcome,
        "http_status": attempt.http_status,
        "started": iso_time(attempt.started_time),
        "duration_s": attempt.duration_s,
        "first_byte_s": attempt.first_byte_s,
        "tokens_per_s": attempt.tokens_per_s,
        "message": attempt.message,
    }


def iso_time(epoch_s: float) -> str:
    """An instant as ISO 8601 in UTC, to the microsecond: ``2025-01-31T12:00:00.000000Z``."""
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


@attrs.frozen
class Brief:
    """What resume and the counters need of one line."""

    key: RolloutKey
    ok: bool
    reward: float | None
    prompt_tokens: int
    completion_tokens: int


def parse_brief(line: bytes) -> Brief:
    """The short form of a line.

    Raises :class:`ValueError`, which says what is wrong, for a line that is no record.
    """
    table = _table(read_json_fast(line))
    status, usage = _get(table, "status", str), _usage(table)
    if status not in ("ok", "error"):
        raise ValueError(f"status is {status!r}")
    return Brief(_key(table), status == "ok", _reward(table), usage.prompt_tokens or 0, usage.completion_tokens or 0)


def parse_line(line: bytes) -> RolloutRecord:
    """The record that a line was written for. Text that stands for something else stays text.

    Raises :class:`ValueError`, which says what is wrong, for a line that is no record.
    """
    table = _table(read_json(line))
    status, error = _get(table, "status", str), _get(table, "error", dict, type(None))
    if status != ("ok" if error is None else "error"):
        raise ValueError(f"status is {status!r}, but error is {'absent' if error is None else 'there'}")
    return RolloutRecord(
        key=_key(table),
        env_id=_get(table, "env_id", str),
        reward=_reward(table),
        metrics=_get(table, "metrics", dict),
        prompt=_get(table, "prompt"),
        completion=_get(table, "completion"),
        answer=_get(table, "answer"),
        error=None if error is None else ErrorInfo(_get(error, "type", str), _get(error, "message", str)),
        usage=_usage(table),
        timing=_structure(Timing, _get(table, "timing", dict)),
        attempts=tuple(_parse_attempt(_table(attempt)) for attempt in _get(table, "attempts", list)),
        info=_get(table, "info", dict),
    )


def _key(table: dict[str, Any]) -> RolloutKey:
    return RolloutKey(_get(table, "eval", str), _get(table, "example_id", str), _get(table, "rollout", int))


def _reward(table: dict[str, Any]) -> float | None:
    reward = _get(table, "reward", float, int, type(None))
    if reward is not None and _number(reward) is None:
        raise ValueError("reward is not finite")
    return _number(reward)


def _usage(table: dict[str, Any]) -> Usage:
    usage = _get(table, "usage", dict)
    counts = [_get(usage, name, int, type(None)) for name in ("prompt_tokens", "completion_tokens")]
    return Usage(counts[0], counts[1])


def _parse_attempt(table: dict[str, Any]) -> Attempt:
    fields = {name: value for name, value in table.items() if name not in ("started", "endpoint")}
    started = datetime.fromisoformat(_get(table, "started", str)).timestamp()
    return _structure(Attempt, {**fields, "endpoint": Url(_get(table, "endpoint", str)), "started_time": started})


def _structure(cls: Callable[..., T], fields: dict[str, Any]) -> T:
    try:
        return cls(**fields)
    except TypeError as exc:
        raise ValueError(str(exc)) from None


def _table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return value


def _get(table: dict[str, Any], name: str, *kinds: type) -> Any:
    value = table.get(name, _MISSING)
    if value is _MISSING:
        raise ValueError(f"{name} is missing")
    if kinds and (not isinstance(value, kinds) or isinstance(value, bool)):
        raise ValueError(f"{name} is a {type(value).__name__}")
    return value
