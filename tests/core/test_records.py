"""A record's line: what is written, what is refused, what comes back."""

from __future__ import annotations

import enum
import json
import sys
from collections import UserDict
from datetime import UTC, datetime
from types import MappingProxyType
from unittest.mock import ANY

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.plainjson import DEEPEST
from scavenge.core.records import (
    NOTE,
    Brief,
    checked_rollout,
    encode,
    iso_time,
    parse_brief,
    parse_line,
    storable,
)
from scavenge.rollouts import ErrorInfo, Failure, Rollout, RolloutKey, RolloutRecord, Timing
from scavenge.types import Attempt, Url, Usage

KEY = RolloutKey("math", "q1", 0)
FULL = RolloutRecord(
    key=KEY,
    env_id="chat",
    reward=1.0,
    metrics={"turns": 2.0},
    prompt=[{"role": "user", "content": "2+2?"}],
    completion="4",
    answer="4",
    usage=Usage(5, None),
    timing=Timing(0.5, 1.0, 2.0),
    attempts=(
        Attempt(Url("http://a/v1"), "lost", 1_700_000_000.25, 1.5, None, None, None, "reset"),
        Attempt(Url("http://b/v1"), "ok", 1_700_000_002.0, 2.0, 200, 0.1, 40.0),
    ),
    info={"finish_reason": "stop"},
)


def with_info(value: object) -> RolloutRecord:
    return attrs.evolve(FULL, info={"value": value})


def written(record: RolloutRecord) -> dict[str, object]:
    line = encode(record)
    assert line.endswith(b"\n")
    assert len(line.decode().splitlines()) == 1, "some reader would split the line"
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def test_a_line_has_exactly_the_documented_keys_in_their_order():
    line = written(FULL)
    assert " ".join(line) == (
        "eval env_id example_id rollout status reward metrics prompt completion answer error usage timing attempts info"
    )
    assert line["attempts"][0] == {
        "endpoint": "http://a/v1",
        "outcome": "lost",
        "http_status": None,
        "started": "2023-11-14T22:13:20.250000Z",
        "duration_s": 1.5,
        "first_byte_s": None,
        "tokens_per_s": None,
        "message": "reset",
    }
    assert line["usage"] == {"prompt_tokens": 5, "completion_tokens": None}
    assert line["timing"] == {"queued_s": 0.5, "model_s": 1.0, "total_s": 2.0}
    assert (line["status"], line["error"]) == ("ok", None)


def test_an_error_is_written_without_what_only_the_breaker_wants_to_know():
    line = written(attrs.evolve(FULL, error=ErrorInfo("BadRow", "no prompt", counts=False)))
    assert (line["status"], line["error"]) == ("error", {"type": "BadRow", "message": "no prompt"})


def test_a_record_comes_back_as_it_was():
    assert parse_line(encode(FULL)) == FULL
    failed = attrs.evolve(FULL, reward=None, error=ErrorInfo("Boom", "why"))
    assert parse_line(encode(failed)) == failed


JSON_TEXT = st.text(st.characters(exclude_categories=())).map(
    lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
"""Any text, but with halves of a surrogate pair that stand side by side joined, as JSON cannot keep them apart."""
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(JSON_TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(JSON_VALUES, JSON_TEXT, st.integers(0, 10**30))
def test_every_json_value_survives_the_round_trip_on_one_line(value, name, number):
    record = attrs.evolve(
        FULL, key=RolloutKey(name, name, 3), completion=value, info={"deep": [value, number]}, prompt=name
    )
    written(record)
    assert parse_line(encode(record)) == record
    assert parse_brief(encode(record)).key == record.key


@pytest.mark.parametrize(
    "text", ["a\x85b", "a\u2028b", "a\u2029b", "\x00\x0b\x0c\x1c\x1d\x1e\r\n", "\ud800", "\udfff tail", "𝄞", "\x7f"]
)
def test_characters_that_break_readers_are_escaped_and_kept(text):
    record = with_info({text: [text]})
    written(record)
    assert parse_line(encode(record)) == record


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class BrokenMapping(UserDict[str, object]):
    def items(self):
        raise RuntimeError("no items")


class Unbound:
    @property
    def __class__(self):
        raise RuntimeError("unbound")

    def __str__(self) -> str:
        return "unbound"


class Shifty(float):
    __slots__ = ()

    def __float__(self) -> float:
        return float("nan")


class Colour(enum.Enum):
    RED = "red"


class Name(str):
    __slots__ = ()


def circular() -> list[object]:
    ring: list[object] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\xff", "b'\\xff'"),
        ({1}, "{1}"),
        (1j, "1j"),
        (datetime(2025, 1, 2, tzinfo=UTC), "2025-01-02 00:00:00+00:00"),
        (Broken(), "<Broken>"),
        pytest.param(10**5000, hex(10**5000), id="an integer too long to write out"),
    ],
)
def test_what_json_does_not_have_becomes_text_with_a_note_that_says_where(value, text):
    line = written(attrs.evolve(FULL, completion=["fine", {"x": value}]))
    assert line["completion"] == ["fine", {"x": text}]
    assert line["info"][NOTE] == f"not JSON, so written as text: completion[1].x ({type(value).__name__})"
    assert line["info"]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, 2), [1, 2]),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (Colour.RED, "red"),
        ([Name("x"), {"s"}][:1], ["x"]),
        (2**80, 2**80),
        ("\ud800", "\ud800"),
        (float("nan"), None),
        ([float("inf"), 2**70], [None, 2**70]),
        ([Colour.RED, 2**70, Name("n"), True, None], ["red", 2**70, "n", True, None]),
    ],
)
def test_what_json_has_in_another_guise_is_written_without_a_note(value, plain):
    line = written(with_info(value))
    assert line["info"] == {"value": plain}


def test_keys_that_are_no_text_become_text_and_never_meet():
    line = written(with_info({1: "a", "1": "b", None: "c"}))
    assert line["info"]["value"] == {"1": "a", "1'": "b", "None": "c"}
    assert "a key of info.value (int)" in line["info"][NOTE]


def test_a_foreign_mapping_that_fails_becomes_text():
    assert isinstance(written(with_info(BrokenMapping(a=1)))["info"]["value"], str)


@pytest.mark.parametrize("depth", [99, 150, 260, 5000])
def test_deep_nesting_is_written_and_read_as_deep_as_it_goes(depth):
    value: object = "bottom"
    for _ in range(depth):
        value = [value]
    record = attrs.evolve(FULL, completion=value)
    written(record)
    parse_line(encode(record))


def test_a_circle_ends():
    written(with_info(circular()))


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"k": value}])
def test_beside_what_is_no_json_the_hundredth_level_is_text(wrap):
    value: object = {1}
    for _ in range(150):
        value = wrap(value)
    found, levels = written(attrs.evolve(FULL, completion=value))["completion"], 0
    while not isinstance(found, str):
        found, levels = next(iter(found.values() if isinstance(found, dict) else found)), levels + 1
    assert levels == DEEPEST - 1
    assert "{1}" in found


@pytest.mark.parametrize(
    ("count", "end"), [(10, "[9] (set)"), (11, "[9] (set) and 1 more"), (30, "[9] (set) and 20 more")]
)
def test_many_notes_are_cut_short(count, end):
    assert written(with_info([{i} for i in range(count)]))["info"][NOTE].endswith(f"info.value{end}")


def test_a_note_does_not_replace_another_one():
    line = written(attrs.evolve(FULL, info={NOTE: "first", "x": {1}}))
    assert line["info"][NOTE] == "first; not JSON, so written as text: info.x (set)"
    assert written(attrs.evolve(FULL, info=[{1}]))["info"]["info"] == ["{1}"]


class Scalar:
    """As NumPy's: a number by its ``__float__`` only."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


@pytest.mark.parametrize(("reward", "stored"), [(1, 1.0), (True, 1.0), (Scalar(0.5), 0.5), (None, None), (0.25, 0.25)])
def test_a_reward_is_stored_as_a_float(reward, stored):
    record = storable(attrs.evolve(FULL, reward=reward))
    assert (record.reward, type(record.reward), record.error) == (stored, type(stored), None)


@pytest.mark.parametrize("reward", [float("nan"), float("-inf"), "1.0", 10**400, [1], Scalar(float("inf")), Broken()])
def test_a_reward_that_is_no_finite_number_makes_the_rollout_an_error(reward):
    record = storable(attrs.evolve(FULL, reward=reward))
    assert record.reward is None
    assert record.error is not None
    assert record.error.type == "BadReward"
    assert record.error.counts


def test_an_error_keeps_its_own_reason_whatever_its_reward():
    failed = attrs.evolve(FULL, reward=float("nan"), error=ErrorInfo("Boom", "why"))
    assert storable(failed).error == failed.error


def test_a_huge_reward_is_described_without_its_digits():
    error = storable(attrs.evolve(FULL, reward=10**5000)).error
    assert error is not None
    assert "a value of type int" in error.message


def test_a_metric_that_is_no_finite_number_is_left_out_with_a_note():
    record = storable(attrs.evolve(FULL, metrics={"good": 1, "bad": float("nan"), "worse": "x"}))
    assert record.metrics == {"good": 1.0}
    assert record.info[NOTE] == "metrics that are no finite number are left out: bad, worse"
    assert record.error is None


def test_metrics_and_info_that_are_no_mappings_do_no_harm():
    record = storable(attrs.evolve(FULL, metrics=[1], info="text"))
    assert record.metrics == {}
    assert record.info == {"info": "text", NOTE: "metrics must be a mapping, got [1] (list)"}


@pytest.mark.parametrize("reward", [1.0, None])
def test_a_plain_record_is_stored_as_it_is(reward):
    plain = attrs.evolve(FULL, metrics={}, reward=reward)
    assert storable(plain) is plain


class Unreadable(UserDict[str, object]):
    """Whose every look into it fails, also the one for whether there is something in it."""

    def __bool__(self) -> bool:
        raise RuntimeError("ambiguous")

    def keys(self):
        raise RuntimeError("no keys")


def test_metrics_and_info_that_cannot_be_read_do_no_harm():
    record = storable(attrs.evolve(FULL, metrics=Unreadable(a=1), info=Unreadable(b=2)))
    assert record.metrics == {}
    assert record.info[NOTE] == "metrics must be a mapping, got {'a': 1} (Unreadable)"
    assert written(record)["info"]["info"] == {"b": 2}


def test_objects_that_cannot_be_looked_at_do_no_harm():
    record = storable(attrs.evolve(FULL, reward=Unbound(), metrics=Unbound(), info=Unbound(), completion=Unbound()))
    line = written(record)
    assert line["error"]["type"] == "BadReward"
    assert (line["metrics"], line["completion"], line["info"]["info"]) == ({}, "unbound", "unbound")
    assert checked_rollout(Rollout("text", 1.0, info=Unbound())) == Rollout("text", 1.0, info=ANY)


def test_the_names_of_metrics_and_a_note_that_have_no_text_do_no_harm():
    record = storable(attrs.evolve(FULL, metrics={Broken(): 1, "x": "y"}, info={NOTE: Broken()}))
    assert record.metrics == {"<Broken>": 1.0}
    assert record.info == {NOTE: "<Broken>; metrics that are no finite number are left out: x"}


class Moody:
    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def test_a_reward_that_cannot_be_looked_at_is_none():
    error = storable(attrs.evolve(FULL, reward=Moody())).error
    assert error is not None
    assert error.type == "BadReward"


@pytest.mark.parametrize("reward", [0.5, None])
def test_a_plain_rollout_is_sent_as_it_is(reward):
    plain = Rollout("text", reward, info={"why": {1}})
    assert checked_rollout(plain) is plain


@pytest.mark.parametrize("reward", [True, 2, Scalar(0.5), None, 1.0])
def test_a_rollout_is_sent_as_its_record_would_have_it(reward):
    rollout = Rollout("text", reward, {"good": 1, "bad": "x"}, "4", {"why": 1})
    record = storable(attrs.evolve(FULL, reward=reward, metrics=rollout.metrics, info=rollout.info))
    assert record.reward is None or type(record.reward) is float
    sent = checked_rollout(rollout)
    assert sent == Rollout("text", record.reward, record.metrics, "4", record.info)
    assert checked_rollout(sent) == sent


def test_a_rollout_of_a_class_of_its_own_is_sent_as_a_rollout():
    class Own(Rollout):
        def __init__(self) -> None:
            super().__init__("text", 1, {"a": 1})

    assert checked_rollout(Own()) == Rollout("text", 1.0, {"a": 1.0})


def test_a_rollout_whose_reward_is_no_finite_number_is_a_failure_for_good():
    failure = checked_rollout(Rollout("text", float("nan"), {"a": 1}))
    error = storable(attrs.evolve(FULL, reward=float("nan"))).error
    assert error is not None
    assert failure == Failure(error, final=True)


def test_an_object_that_cannot_be_looked_at_becomes_text():
    assert written(attrs.evolve(FULL, completion=[Unbound()]))["completion"] == ["unbound"]


def test_a_number_is_written_by_what_it_is_and_not_by_what_its_class_says():
    assert written(attrs.evolve(FULL, completion=[Shifty(0.5), {1}]))["completion"] == [0.5, "{1}"]


@pytest.mark.parametrize("limit", [0, 640])
def test_an_integer_is_written_so_that_it_can_be_read_wherever_the_limit_of_digits_stands(limit):
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(limit)
    try:
        line = encode(with_info([10**600, 10**4300, -(10**4300)]))
    finally:
        sys.set_int_max_str_digits(before)
    assert parse_line(line).info["value"] == [10**600, hex(10**4300), hex(-(10**4300))]


def test_an_integer_beyond_a_lower_limit_of_digits_becomes_hexadecimal():
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        line = encode(with_info(10**650))
    finally:
        sys.set_int_max_str_digits(before)
    assert parse_line(line).info["value"] == hex(10**650)


def test_the_short_form_has_what_resume_needs():
    assert parse_brief(encode(FULL)) == Brief(KEY, True, 1.0, 5, 0)
    failed = attrs.evolve(FULL, error=ErrorInfo("Boom", "why"), usage=Usage())
    assert parse_brief(encode(failed)) == Brief(KEY, False, 1.0, 0, 0)


GOOD = json.loads(encode(FULL))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b"\x00" * 10,
        b"[" * 100_000,
        b'{"eval": NaN}',
        encode(FULL)[:-5],
        *(
            json.dumps(GOOD | change).encode()
            for change in (
                {"status": "maybe"},
                {"status": 1},
                {"rollout": "0"},
                {"rollout": True},
                {"example_id": None},
                {"reward": "1"},
                {"usage": []},
                {"usage": {}},
            )
        ),
        json.dumps(GOOD).encode().replace(b'"reward": 1.0', b'"reward": 1e999'),
        json.dumps(GOOD | {"reward": 10**400}).encode(),
    ],
)
def test_a_line_that_is_no_record_is_refused(line):
    with pytest.raises(ValueError):
        parse_brief(line)
    with pytest.raises(ValueError):
        parse_line(line)


@pytest.mark.parametrize(
    "change",
    [
        {"status": "error"},
        {"error": {"type": "X", "message": "y"}},
        {"timing": {"slow": 1.0}},
        {"attempts": [{}]},
        {"attempts": [1]},
        {"attempts": [GOOD["attempts"][0] | {"started": "yesterday"}]},
        {"attempts": [GOOD["attempts"][0] | {"extra": 1}]},
        {"metrics": None},
    ],
)
def test_a_record_that_contradicts_itself_is_refused(change):
    with pytest.raises(ValueError):
        parse_line(json.dumps(GOOD | change).encode())


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_record_or_a_value_error(line):
    with pytest.raises(ValueError):
        parse_brief(line)
    with pytest.raises(ValueError):
        parse_line(line)


def test_times_are_in_utc_to_the_microsecond():
    assert iso_time(0.000001) == "1970-01-01T00:00:00.000001Z"
