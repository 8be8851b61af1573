"""Messages between run and worker as bytes: a version byte, the length in four bytes, and a JSON object in UTF-8.

Pure; knows no socket. What comes from a worker is untrusted, since foreign code runs in it: a reader gives whole,
well-formed messages of its own direction or raises :class:`BadFrame`, however the bytes are split.

What foreign code put into a message may be no JSON. A rollout's values follow the rules of ``results.jsonl``
(:mod:`scavenge.core.plainjson`, :func:`scavenge.core.records.checked_rollout`), so that a result is the same wherever
it was played; an example is never changed, but refused (:func:`rows_within`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Generic, TypeVar

import attrs

from scavenge.core.message_shapes import FROM_WORKER, KIND_OF, TO_WORKER, fields_of, shaped
from scavenge.core.naming import listed, one_line, shown
from scavenge.core.plainjson import NOTES_KEPT, exact_copy, read_json, read_json_fast, write_json
from scavenge.core.records import checked_rollout, note_in_info, value_shown
from scavenge.core.worker_messages import FromWorker, Play, Played, PlayFailed, Rows, ToWorker
from scavenge.rollouts import Example, Failure, Rollout
from scavenge.types import Json

VERSION = 1
MAX_FRAME_BYTES = 64 * 2**20
"""The longest payload that is written or read."""
ROWS_BYTES = 8 * 2**20
"""How much of a dataset goes into one frame, unless a single row has more."""
MAX_ROW_BYTES = 48 * 2**20
"""The longest row, so that a frame has room for it beside the others and for the model's address."""

_HEAD = struct.Struct(">BI")
_DIGITS_AS_0 = bytes.maketrans(b"123456789", b"0" * 9)
_BEYOND_64_BITS = b"0" * 19
"""Any 18 digits are a number of 64 bits, with either sign."""
M = TypeVar("M")


class BadFrame(ValueError):
    """What came is no message; nothing that comes after it can be trusted."""


class FrameTooLong(ValueError):
    """A message is longer than the other side would take."""

    def __init__(self, kind: str, size_bytes: int) -> None:
        most = MAX_FRAME_BYTES // 2**20
        super().__init__(f"{kind}: {size_bytes} bytes as JSON, at most {most} MiB go between a worker and the run")


def encode(message: ToWorker | FromWorker) -> bytes:
    """The frame of a message.

    Whatever foreign code has put into a :class:`Played`, a :class:`Ready` or the texts of the others, it is written:
    see :func:`checked_rollout` for a result, which becomes a :class:`PlayFailed` where its reward is no number.
    Examples must have come from :func:`rows_within`. Raises :class:`FrameTooLong`, nothing else.
    """
    payload = _payload(message)
    if len(payload) > MAX_FRAME_BYTES:
        raise FrameTooLong(KIND_OF[type(message)], len(payload))
    return _HEAD.pack(VERSION, len(payload)) + payload


def rows_within(examples: Iterable[Example], skip: int, count: int, most_bytes: int = ROWS_BYTES) -> Rows:
    """The next rows of a dataset as a message: at most *count*, at least one, and no more once *most_bytes* are full.

    Takes from *examples*, whose next is number *skip* from 0, just those that are in the message. ``last`` where they
    ended before that was enough. Each is as the other side will see it (tuples come as lists), or has an ``error`` that
    says why it cannot be sent; one that has no id that can be sent is called ``row:N``, counted from 1.

    Raises what iterating raises, and nothing for what an example is.
    """
    rows: list[Example] = []
    size_bytes = 0
    for example in islice(examples, count):
        plain, row_bytes = _plain_row(example, skip + len(rows) + 1)
        rows.append(plain)
        size_bytes += row_bytes
        if size_bytes >= most_bytes:
            break
    return Rows(skip, tuple(rows), last=len(rows) < count and size_bytes < most_bytes)


def reader_from_worker() -> FrameReader[FromWorker]:
    """A reader for the run's side."""
    return FrameReader(FROM_WORKER)


def reader_to_worker() -> FrameReader[ToWorker]:
    """A reader for the worker's side."""
    return FrameReader(TO_WORKER)


@attrs.define(eq=False)
class FrameReader(Generic[M]):
    """Finds the messages of one direction in what is fed to it, however that is split.

    It holds one frame that is not whole yet, and no more. After the first frame that is no message nothing is read.
    """

    _shapes: Mapping[str, type[M]]
    _rest: bytearray = attrs.field(factory=bytearray, init=False)
    _fault: str | None = attrs.field(default=None, init=False)

    def feed(self, data: bytes | bytearray | memoryview) -> list[M]:
        """The messages that became whole with *data*, in their order.

        Raises :class:`BadFrame` from the first frame on that is no message: at once, or with the next call (of nothing,
        if need be) when there are messages before it.
        """
        messages: list[M] = []
        if self._fault is None:
            self._rest += data
            try:
                while (payload := self._take()) is not None:
                    messages.append(self._read(payload))
            except BadFrame as exc:
                self._fault = str(exc)
                self._rest.clear()
        if self._fault is not None and not messages:
            raise BadFrame(self._fault)
        return messages

    def _take(self) -> bytes | None:
        """The payload of the next frame, if it is whole."""
        rest = self._rest
        if rest and rest[0] != VERSION:
            raise BadFrame(f"a frame of version {rest[0]}, not {VERSION}: is the worker's scavenge another one?")
        if len(rest) < _HEAD.size:
            return None
        _, size_bytes = _HEAD.unpack_from(rest)
        if size_bytes > MAX_FRAME_BYTES:
            raise BadFrame(f"a frame of {size_bytes} bytes; at most {MAX_FRAME_BYTES} are read")
        end = _HEAD.size + size_bytes
        if len(rest) < end:
            return None
        with memoryview(rest) as view:
            payload = bytes(view[_HEAD.size : end])
        del rest[:end]
        return payload

    def _read(self, payload: bytes) -> M:
        try:
            table = _parse(payload)
        except ValueError as exc:
            raise BadFrame(f"a frame with no JSON: {one_line(str(exc), 100)}") from None
        if not isinstance(table, dict):
            raise BadFrame(f"a frame with {shown(table)}, not an object")
        kind = table.pop("kind", None)
        shape = self._shapes.get(kind) if isinstance(kind, str) else None
        if shape is None:
            raise BadFrame(f"a message of kind {shown(kind)}; there are {listed(self._shapes)}")
        try:
            return shaped(table, shape)
        except ValueError as exc:
            raise BadFrame(f"{kind}: {exc}") from None


def _parse(payload: bytes) -> object:
    """As :func:`read_json` reads it, but in half the time where no number has so many digits that it might be cut."""
    return read_json(payload) if _BEYOND_64_BITS in payload.translate(_DIGITS_AS_0) else read_json_fast(payload)


def _payload(message: ToWorker | FromWorker) -> bytes:
    kind = KIND_OF[type(message)]
    match message:
        case Played(rollout, result):
            checked = checked_rollout(result)
            if isinstance(checked, Failure):
                return _payload(PlayFailed(rollout, checked))
            return _spliced({"kind": kind, "rollout": rollout}, "result", _result(checked))
        case Play():
            head = {"kind": kind, "rollout": message.rollout, "model": fields_of(message)["model"]}
            return _spliced(head, "example", _row(message.example))
        case Rows(skip, examples, last):
            rows = b"[%s]" % b",".join(map(_row, examples))
            return _spliced({"kind": kind, "skip": skip, "last": last}, "examples", rows)
        case _:
            return write_json({"kind": kind, **fields_of(message)})


def _spliced(head: Mapping[str, object], name: str, value: bytes) -> bytes:
    """The object *head* with a value more that is written already, as deep in itself as it is in ``results.jsonl``."""
    return b'%s,"%s":%s}' % (write_json(head)[:-1], name.encode(), value)


def _result(result: Rollout) -> bytes:
    return write_json(
        {
            "reward": result.reward,
            "metrics": result.metrics,
            "completion": result.completion,
            "answer": result.answer,
            "info": result.info,
        },
        note_in_info,
    )


def _row(example: Example) -> bytes:
    fields = {"id": example.id, "data": example.data, "error": example.error, "images": example.images}
    return write_json(fields)


def _plain_row(example: Example, row: int) -> tuple[Example, int]:
    """The example as :func:`rows_within` has it, where it is number *row* from 1; and its length in bytes."""
    plain = _addressed(example, row)
    line = _row(plain)
    if plain.error is None and not _reads_back(line, plain.data):
        plain = _unchanged(plain)
        line = _row(plain)
    if len(line) > MAX_ROW_BYTES:
        size_bytes, most = len(line), MAX_ROW_BYTES // 2**20
        plain = Example(f"row:{row}", {}, f"row {row}: {size_bytes} bytes as JSON, at most {most} MiB go to a worker")
        line = _row(plain)
    return plain, len(line)


def _addressed(example: Example, row: int) -> Example:
    """The example with an id and an error that are text. Nobody looks at the data of one that has an error."""
    if not issubclass(type(example.id), str):  # isinstance() asks the value, which may be foreign code
        return Example(f"row:{row}", {}, f"row {row}: id {value_shown(example.id)} is no string")
    if example.error is None:
        return example
    is_text = issubclass(type(example.error), str)
    return Example(example.id, {}, example.error if is_text else value_shown(example.error))


def _reads_back(line: bytes, data: Json) -> bool:
    try:
        table = _parse(line)
        return isinstance(table, dict) and bool(table["data"] == data) and isinstance(data, dict)
    except Exception:  # nested too deep, or a foreign class's own __eq__ failed
        return False


def _unchanged(example: Example) -> Example:
    copy, changed = exact_copy(example.data, "data")
    if not isinstance(copy, dict):
        return Example(example.id, {}, f"its data must be a mapping, got {value_shown(example.data)}")
    if changed:
        places = listed((place.removeprefix("data.") for place in changed), NOTES_KEPT)
        return Example(example.id, {}, f"its data cannot be written as JSON: {places}")
    return Example(example.id, copy, images=example.images)
