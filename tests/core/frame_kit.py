"""Messages of every kind, and what Hypothesis makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from hypothesis import strategies as st

from scavenge.core.frames import VERSION, FrameReader
from scavenge.core.worker_messages import (
    Abort,
    Aborted,
    Beat,
    Broken,
    FromWorker,
    Load,
    Play,
    Played,
    PlayFailed,
    ReadRows,
    Ready,
    Rows,
    RowsFailed,
    Stop,
    ToWorker,
)
from scavenge.errors import Problem
from scavenge.rollouts import ErrorInfo, Example, Failure, Rollout
from scavenge.types import ModelAddress

M = TypeVar("M")
EXAMPLE = Example("q1", {"prompt": "2+2?", "tags": ["sum", None, 1.5], "seed": 2**70, "half": "\ud800"})
ADDRESS = ModelAddress("http://127.0.0.1:4000/session/7/v1", "token")
TO_WORKER: list[ToWorker] = [
    Load("guess", 'word = "höher"\nday = 2025-01-31\n', "/evals", "eval.toml: eval[0]"),
    ReadRows(100, 50),
    Play(7, EXAMPLE, ADDRESS),
    Play(0, Example("", {}), ADDRESS),
    Abort(7),
    Stop(),
]
FROM_WORKER: list[FromWorker] = [
    Ready("trio", True, {"model": "m", "size": 10**40}),
    Ready("sync", False),
    Broken("no module named 'guess'"),
    Broken("two problems", (Problem("eval.toml: eval[0].env_id", "unknown"), Problem("eval.toml", "odd"))),
    Rows(0, (EXAMPLE, Example("q2", {}, "no prompt")), False),
    Rows(2, (), True),
    RowsFailed(5, "KeyError: 'q' (guess.py, line 3)"),
    Played(7, Rollout([{"role": "assistant", "content": "4\u2028\x85"}], 1.0, {"turns": 2.0}, 4, {"why": ["\udfff"]})),
    Played(8, Rollout(None, None)),
    PlayFailed(7, Failure(ErrorInfo("KeyError", "'q' \ud800", counts=False, misrouted=True), final=True)),
    PlayFailed(8, Failure(ErrorInfo("Boom", ""))),
    Aborted(7),
    Beat(),
    Beat(12.5),
]


def framed(payload: bytes) -> bytes:
    """A frame as the protocol has it, whatever is in it."""
    return bytes([VERSION]) + len(payload).to_bytes(4, "big") + payload


def framed_json(document: object) -> bytes:
    """A frame with any JSON, NaN too."""
    return framed(json.dumps(document).encode())


def document_of(frame: bytes) -> dict[str, object]:
    """What a frame has in it, read by Python's own reader."""
    found = json.loads(frame[5:])
    assert isinstance(found, dict)
    return found


def only(reader: FrameReader[M], frame: bytes) -> M:
    (message,) = reader.feed(frame)
    return message


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """*data* cut at these places, some of which may be beyond its end or the same."""
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


JSON_TEXT = st.text(st.characters(exclude_categories=())).map(
    lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
"""Any text, but with halves of a surrogate pair that stand side by side joined, as JSON cannot keep them apart."""
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(JSON_TEXT, inner, max_size=3),
    max_leaves=8,
)
TABLES = st.dictionaries(JSON_TEXT, JSON_VALUES, max_size=3)
COUNTS = st.integers(0, 2**80)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
EXAMPLES = st.builds(Example, JSON_TEXT, TABLES, st.none() | JSON_TEXT)
ERRORS = st.builds(ErrorInfo, JSON_TEXT, JSON_TEXT, st.booleans(), st.booleans())
ROLLOUTS = st.builds(
    Rollout, JSON_VALUES, st.none() | NUMBERS, st.dictionaries(JSON_TEXT, NUMBERS, max_size=3), JSON_VALUES, TABLES
)
MESSAGES_TO = st.one_of(
    st.builds(Load, JSON_TEXT, JSON_TEXT, JSON_TEXT, JSON_TEXT),
    st.builds(ReadRows, COUNTS, COUNTS),
    st.builds(Play, COUNTS, EXAMPLES, st.builds(ModelAddress, JSON_TEXT, JSON_TEXT)),
    st.builds(Abort, COUNTS),
    st.just(Stop()),
)
MESSAGES_FROM = st.one_of(
    st.builds(Ready, JSON_TEXT, st.booleans(), TABLES),
    st.builds(Broken, JSON_TEXT, st.lists(st.builds(Problem, JSON_TEXT, JSON_TEXT), max_size=2).map(tuple)),
    st.builds(Rows, COUNTS, st.lists(EXAMPLES, max_size=3).map(tuple), st.booleans()),
    st.builds(RowsFailed, COUNTS, JSON_TEXT),
    st.builds(Played, COUNTS, ROLLOUTS),
    st.builds(PlayFailed, COUNTS, st.builds(Failure, ERRORS, st.booleans())),
    st.builds(Aborted, COUNTS),
    st.builds(Beat, st.floats(0, 1e300)),
)
