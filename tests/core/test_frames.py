"""Messages as bytes: what is written, what is read, what is refused."""

from __future__ import annotations

import json
import math

import pytest
from frame_kit import ADDRESS, EXAMPLE, FROM_WORKER, TO_WORKER, document_of, framed, framed_json, only

from scavenge.core import frames
from scavenge.core.frames import BadFrame, FrameReader, FrameTooLong, encode, reader_from_worker, reader_to_worker
from scavenge.core.message_shapes import FROM_WORKER as KINDS_FROM
from scavenge.core.message_shapes import TO_WORKER as KINDS_TO
from scavenge.core.worker_messages import Abort, Aborted, Beat, FromWorker, Play, Played, PlayFailed, Ready, Rows
from scavenge.rollouts import ErrorInfo, Example, Failure, Rollout

MESSAGES = [(reader_to_worker, message) for message in TO_WORKER]
MESSAGES += [(reader_from_worker, message) for message in FROM_WORKER]


def refused(reader: FrameReader[object], frame: bytes) -> str:
    with pytest.raises(BadFrame) as caught:
        reader.feed(frame)
    return str(caught.value)


@pytest.mark.parametrize(("reader", "message"), MESSAGES, ids=[type(message).__name__ for _, message in MESSAGES])
def test_every_message_comes_back_as_it_was(reader, message):
    assert only(reader(), encode(message)) == message


def test_every_kind_of_message_has_a_case():
    assert {type(message) for message in TO_WORKER} == set(KINDS_TO.values())
    assert {type(message) for message in FROM_WORKER} == set(KINDS_FROM.values())


def test_a_frame_is_a_version_a_length_and_an_object():
    assert encode(Abort(7)) == b'\x01\x00\x00\x00\x1c{"kind":"abort","rollout":7}'
    assert document_of(encode(Rows(3, (Example("a", {"n": 1}),), True))) == {
        "kind": "rows",
        "skip": 3,
        "last": True,
        "examples": [{"id": "a", "data": {"n": 1}, "error": None, "images": []}],
    }


def test_the_messages_in_one_stream_come_in_their_order_however_it_is_split():
    stream = b"".join(encode(message) for message in FROM_WORKER)
    assert reader_from_worker().feed(stream) == FROM_WORKER
    for size in (1, 2, 3, 7, 100):
        reader, found = reader_from_worker(), list[FromWorker]()
        for start in range(0, len(stream), size):
            found += reader.feed(memoryview(stream)[start : start + size])
        assert found == FROM_WORKER


def test_what_is_read_is_not_kept():
    reader = reader_from_worker()
    frame = encode(Beat(1.0))
    assert reader.feed(frame * 1000 + frame[:9]) == [Beat(1.0)] * 1000
    assert len(reader._rest) == 9


def test_nothing_makes_no_message():
    assert reader_from_worker().feed(b"") == []


# --- what is refused


@pytest.mark.parametrize("version", [0, 2, ord("{"), 255])
def test_another_version_is_refused_by_its_first_byte(version):
    said = refused(reader_from_worker(), bytes([version]))
    assert said == f"a frame of version {version}, not 1: is the worker's scavenge another one?"


def test_a_frame_that_would_be_too_long_is_refused_by_its_head_alone():
    most = 64 * 2**20
    assert reader_from_worker().feed(b"\x01" + most.to_bytes(4, "big")) == []
    said = refused(reader_from_worker(), b"\x01" + (most + 1).to_bytes(4, "big"))
    assert said == f"a frame of {most + 1} bytes; at most {most} are read"


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b'{"kind": "beat"', "no JSON"),
        (b'{"kind": "beat", "loop_late_s": NaN}', "no JSON"),
        (b'{"kind": "beat", "loop_late_s": 1' + b"0" * 5000 + b"}", "no JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b'\xef\xbb\xbf{"kind":"beat","loop_late_s":0}', "no JSON"),
        (b"null", "nothing, not an object"),
        (b'["beat"]', "a list of 1, not an object"),
        (b'"beat"', '"beat", not an object'),
        (b"{}", "kind nothing; there are ready, "),
        (b'{"kind": ["beat"]}', "kind a list of 1; "),
        (b'{"kind": {}}', "kind an empty table; "),
        (b'{"kind": "Beat", "loop_late_s": 0}', 'kind "Beat"; '),
        (b'{"kind": "\\ud800"}', 'kind "\\ud800"; '),
    ],
)
def test_what_is_no_object_of_a_known_kind_is_refused(payload, said):
    assert said in refused(reader_from_worker(), framed(payload))


@pytest.mark.parametrize("message", FROM_WORKER, ids=[type(message).__name__ for message in FROM_WORKER])
def test_a_worker_hears_nothing_of_its_own_kind(message):
    assert "of kind" in refused(reader_to_worker(), encode(message))


@pytest.mark.parametrize("message", TO_WORKER, ids=[type(message).__name__ for message in TO_WORKER])
def test_the_run_hears_nothing_of_its_own_kind(message):
    assert "of kind" in refused(reader_from_worker(), encode(message))


@pytest.mark.parametrize(("reader", "message"), MESSAGES, ids=[type(message).__name__ for _, message in MESSAGES])
def test_every_field_must_be_there_and_no_other(reader, message):
    document = document_of(encode(message))
    assert "with unknown extra" in refused(reader(), framed_json({**document, "extra": 1}))
    for name in set(document) - {"kind"}:
        less = {key: value for key, value in document.items() if key != name}
        assert refused(reader(), framed_json(less)) == f"{document['kind']}: an object without {name}"


ROW = {"id": "a", "data": {}, "error": None, "images": ["docker.io/library/x:1"]}
ROLLOUT = {"reward": 1.0, "metrics": {}, "completion": None, "answer": None, "info": {}}
FAILURE = {
    "error": {"type": "Boom", "message": "", "counts": True, "misrouted": False},
    "final": False,
    "missing_image": "",
}


def rows(**changed: object) -> dict[str, object]:
    return {"kind": "rows", "skip": 0, "last": False, "examples": [ROW, {**ROW, **changed}]}


def played(**changed: object) -> dict[str, object]:
    return {"kind": "played", "rollout": 1, "result": {**ROLLOUT, **changed}}


def failed(**changed: object) -> dict[str, object]:
    return {"kind": "play_failed", "rollout": 1, "failure": {**FAILURE, **changed}}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "aborted", "rollout": -1}, "aborted: rollout: a whole number from 0 is wanted, got -1"),
        ({"kind": "aborted", "rollout": True}, "aborted: rollout: a whole number from 0 is wanted, got true"),
        ({"kind": "aborted", "rollout": 1.0}, "aborted: rollout: a whole number from 0 is wanted, got 1.0"),
        ({"kind": "aborted", "rollout": "1"}, 'aborted: rollout: a whole number from 0 is wanted, got "1"'),
        ({"kind": "beat", "loop_late_s": -0.5}, "beat: 'loop_late_s' must be >= 0: -0.5"),
        ({"kind": "beat", "loop_late_s": False}, "beat: loop_late_s: a finite number is wanted, got false"),
        ({"kind": "beat", "loop_late_s": "1"}, 'beat: loop_late_s: a finite number is wanted, got "1"'),
        ({"kind": "beat", "loop_late_s": 10**400}, "beat: loop_late_s: a finite number is wanted, got an integer of"),
        ({"kind": "ready", "backend": None, "multi_turn": True, "identity": {}}, "ready: backend: text is wanted, got"),
        ({"kind": "ready", "backend": "trio", "multi_turn": 1, "identity": {}}, "multi_turn: true or false is wanted"),
        ({"kind": "ready", "backend": "trio", "multi_turn": True, "identity": []}, "identity: an object is wanted"),
        ({"kind": "broken", "message": "m", "problems": {}}, "broken: problems: a list is wanted, got an empty table"),
        ({"kind": "broken", "message": "m", "problems": "text"}, 'broken: problems: a list is wanted, got "text"'),
        ({"kind": "broken", "message": "m", "problems": [1]}, "broken: problems[0]: an object is wanted, got 1"),
        (rows(id=5), "rows: examples[1].id: text is wanted, got 5"),
        (rows(data=None), "rows: examples[1].data: an object is wanted, got nothing"),
        (rows(error=0), "rows: examples[1].error: text is wanted, got 0"),
        (rows(**{"a b": 1, "c": 2}), 'rows: examples[1]: an object with unknown "a b", c'),
        (played(metrics={"turns": "2"}), 'played: result.metrics.turns: a finite number is wanted, got "2"'),
        (played(metrics=[]), "played: result.metrics: an object is wanted, got an empty list"),
        (played(reward=True), "played: result.reward: a finite number is wanted, got true"),
        (played(info="x" * 1000), 'played: result.info: an object is wanted, got "xxx'),
        (failed(final=None), "play_failed: failure.final: true or false is wanted, got nothing"),
        (
            failed(error={"type": "B", "text": ""}),
            "failure.error: an object without counts, message, misrouted and with",
        ),
    ],
)
def test_a_field_of_the_wrong_type_is_refused_with_its_place(document, said):
    line = refused(reader_from_worker(), framed_json(document))
    assert said in line
    assert len(line) < 200
    assert "\n" not in line


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_a_number_that_is_read_as_infinite_is_refused(number):
    payload = json.dumps(played(reward=0.125)).replace("0.125", number).encode()
    assert "result.reward: a finite number is wanted" in refused(reader_from_worker(), framed(payload))


def test_a_whole_number_stands_for_a_number():
    late = only(reader_from_worker(), framed_json({"kind": "beat", "loop_late_s": 2}))
    assert isinstance(late, Beat)
    assert type(late.loop_late_s) is float


def test_nothing_is_read_after_a_bad_frame():
    reader = reader_from_worker()
    refused(reader, framed(b"{}"))
    for data in (encode(Beat()), b"", b"\x01"):
        assert "of kind" in refused(reader, data)


def test_what_came_before_a_bad_frame_is_told_before_it_is():
    reader = reader_from_worker()
    assert reader.feed(encode(Aborted(1)) + encode(Aborted(2)) + b"HTTP/1.1" + encode(Aborted(3))) == [
        Aborted(1),
        Aborted(2),
    ]
    assert "version 72" in refused(reader, b"")
    assert len(reader._rest) == 0


# --- what is written


def test_a_message_of_the_longest_frame_is_written_and_a_longer_one_is_not(monkeypatch):
    whole = encode(Played(1, Rollout("x" * 1000, 1.0)))
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", len(whole) - 5)
    assert encode(Played(1, Rollout("x" * 1000, 1.0))) == whole
    assert reader_from_worker().feed(whole)
    with pytest.raises(FrameTooLong, match=rf"^played: {len(whole) - 4} bytes as JSON, at most 0 MiB go between"):
        encode(Played(1, Rollout("x" * 1001, 1.0)))


@pytest.mark.parametrize("reward", [math.nan, math.inf, "1.0", 10**400])
def test_a_result_whose_reward_is_no_number_is_the_failure_that_it_is_elsewhere(reward):
    message = only(reader_from_worker(), encode(Played(3, Rollout("text", reward))))
    assert isinstance(message, PlayFailed)
    assert (message.rollout, message.failure.error.type, message.failure.final) == (3, "BadReward", True)


def test_what_is_no_json_in_an_identity_or_a_text_is_written_as_text():
    ready = only(reader_from_worker(), encode(Ready("trio", False, {"words": {"a"}, "n": 10**5000})))
    assert isinstance(ready, Ready)
    assert ready.identity == {"words": "{'a'}", "n": hex(10**5000)}
    odd = Failure(ErrorInfo("Odd", KeyError("x")))  # type: ignore[arg-type] # whatever an exception has for a text
    assert only(reader_from_worker(), encode(PlayFailed(1, odd))) == PlayFailed(1, Failure(ErrorInfo("Odd", "'x'")))


BORDERS = [sign * (2**power + step) for power in (53, 63, 64, 65) for sign in (1, -1) for step in (-1, 0, 1)]
BORDERS += [9_999_999_999_999_999_999, -9_999_999_999_999_999_999, 10**19, -(10**21), 10**22]


@pytest.mark.parametrize("number", BORDERS)
def test_an_integer_keeps_all_its_digits(number):
    played = only(reader_from_worker(), encode(Played(1, Rollout(number, 1.0))))
    assert isinstance(played, Played)
    assert (played.result.completion, type(played.result.completion)) == (number, int)


def test_the_model_of_a_play_is_sent_with_its_key():
    document = document_of(encode(Play(1, EXAMPLE, ADDRESS)))
    assert document["model"] == {"base_url": ADDRESS.base_url, "api_key": "token"}
