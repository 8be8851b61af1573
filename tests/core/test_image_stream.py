"""What engines say while they pull and load, in pieces of any size."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.images.stream import LAYERS, OBJECT_BYTES, SHOWN_BYTES, PullStream
from scavenge.images import Transferred

CUT = "the engine's answer was cut before its end"
GARBAGE = "the engine's answer is not what it should be: "


def lines(*objects: object, separator: bytes = b"\r\n") -> bytes:
    return b"".join(json.dumps(said).encode() + separator for said in objects)


def downloading(layer: str, current: int, total: int | None = None) -> dict[str, object]:
    detail = {"current": current} | ({} if total is None else {"total": total})
    return {"status": "Downloading", "progressDetail": detail, "progress": "[=> ]", "id": layer}


def fed(*pieces: bytes) -> PullStream:
    stream = PullStream()
    for piece in pieces:
        stream.feed(piece)
    return stream


def cut_at(data: bytes, places: Iterable[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


def facts(stream: PullStream) -> tuple[object, ...]:
    return stream.end(), stream.error, stream.loaded, stream.transferred, stream.last_status


DOCKER = lines(
    {"status": "Pulling from library/busybox", "id": "latest"},
    {"status": "Pulling fs layer", "progressDetail": {}, "id": "aaa"},
    {"status": "Pulling fs layer", "progressDetail": {}, "id": "bbb"},
    downloading("aaa", 100, 1000),
    downloading("bbb", 5, 10),
    downloading("aaa", 600, 1000),
    {"status": "Verifying Checksum", "progressDetail": {}, "id": "bbb"},
    {"status": "Download complete", "progressDetail": {}, "id": "bbb"},
    {"status": "Extracting", "progressDetail": {"current": 10, "total": 10}, "id": "bbb"},
    {"status": 'Digest: sha256:"{\\é'},
)
DOCKERS_END = lines({"status": "Status: Downloaded newer image for busybox:latest"})
PODMAN = lines(
    {"status": "Pulling fs layer", "progressDetail": {}, "id": "aaa"},
    downloading("aaa", 7, 10),
    {"status": "Download complete", "progressDetail": {}, "id": "aaa"},
    {"status": "Download complete", "progressDetail": {}, "id": "fff"},
    separator=b"\n",
)


def test_a_pull_by_docker_is_followed_to_its_end() -> None:
    stream = fed(DOCKER)
    assert stream.transferred == Transferred(610, 1010)
    assert stream.end() == CUT
    stream.feed(DOCKERS_END)
    assert stream.end() is None
    assert stream.last_status == "Status: Downloaded newer image for busybox:latest"


def test_a_pull_by_podman_ends_with_a_layer_that_is_complete() -> None:
    stream = fed(PODMAN)
    assert stream.end() is None
    assert stream.transferred == Transferred(10, 10)


def test_a_stream_of_dockers_does_not_end_with_a_layer_that_is_complete() -> None:
    start = lines({"status": "Pulling from library/busybox", "id": "latest"})
    assert fed(start, PODMAN).end() == CUT


@pytest.mark.parametrize("status", ["Status: Image is up to date for x:1", "Pull complete", "Download complete"])
def test_an_answer_may_be_nothing_but_its_end(status: str) -> None:
    assert fed(lines({"status": status})).end() is None


@pytest.mark.parametrize(
    "data", [b"", b"\r\n", lines({"status": "Already exists", "id": "a"}), b'{"status":"Status: x"']
)
def test_an_answer_without_an_end_was_cut(data: bytes) -> None:
    assert fed(data).end() == CUT


def test_a_half_object_behind_the_end_was_cut() -> None:
    assert fed(DOCKERS_END + b'{"status"').end() == CUT
    assert fed(DOCKERS_END + b" \r\n\t").end() is None


@pytest.mark.parametrize("separator", [b"", b"\n", b"\r\n", b" \t\r\n\r\n"])
def test_objects_may_be_separated_by_anything_that_is_space(separator: bytes) -> None:
    stream = fed(separator + lines(downloading("a", 1, 2), {"status": "Status: done"}, separator=separator))
    assert stream.end() is None
    assert stream.transferred == Transferred(1, 2)


# --- errors


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"errorDetail": {"message": "manifest unknown"}, "error": "other"}, "manifest unknown"),
        ({"errorDetail": {"code": 1, "message": "no"}}, "no"),
        ({"error": "bare"}, "bare"),
        ({"errorDetail": {}, "error": "bare"}, "bare"),
        ({"errorDetail": {"message": " "}, "error": "bare"}, "bare"),
        ({"errorDetail": "odd", "error": ["odd"]}, "the engine says that it failed, and not why"),
        ({"errorDetail": {"code": 1}}, "the engine says that it failed, and not why"),
        ({"error": {"message": "odd"}}, "the engine says that it failed, and not why"),
        ({"cause": "c", "message": "podman's own", "response": 500}, "podman's own"),
        ({"status": "Download complete", "error": "podman's\nown"}, "podman's own"),
        ({"error": "x" * 5000}, "x" * 3999 + "…"),
    ],
)
def test_an_error_in_the_stream_is_heard(said: object, error: str) -> None:
    stream = fed(DOCKER, lines(said), DOCKERS_END)
    assert stream.error == stream.end() == error


@pytest.mark.parametrize(
    "said",
    [
        {"error": "", "status": "x"},
        {"errorDetail": None},
        {"errorDetail": {}, "error": ""},
        {"status": "x", "message": "m"},
    ],
)
def test_an_empty_error_is_none(said: object) -> None:
    assert fed(lines(said), DOCKERS_END).end() is None


def test_the_first_error_stands() -> None:
    assert fed(lines({"error": "first"}, {"error": "second"}), b"garbage").end() == "first"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"<html>\n404</html>", '"<html>\\n404</html>"'),
        (b"[1]", '"[1]"'),
        (b"null", '"null"'),
        (b'"text"', '"\\"text\\""'),
        (b"\x00", '"\\u0000"'),
        (b"\xff\xfe", '"��"'),
        (b"{]}", '"{]}"'),
        (b'{"a":1,}', '"{\\"a\\":1,}"'),
        (b'{"a":"\xff"}', '"{\\"a\\":\\"�\\"}"'),
        (b'{"a":' * 3000 + b"1" + b"}" * 3000, None),
        (b"}", '"}"'),
    ],
)
def test_garbage_is_an_error(data: bytes, shown: str | None) -> None:
    error = fed(DOCKER, data, DOCKERS_END).end()
    assert error is not None
    assert error.startswith(GARBAGE)
    assert error.isprintable()
    assert shown is None or error.startswith(GARBAGE + shown.removesuffix('"'))


def test_nothing_is_read_behind_garbage() -> None:
    stream = fed(b"x", lines({"stream": "Loaded image: a:1"}))
    assert stream.loaded == ()
    assert stream.error == GARBAGE + '"x{\\"stream\\": \\"Loaded image: a:1\\"}\\r\\n"'


def test_garbage_is_kept_only_as_far_as_it_is_shown() -> None:
    stream = fed(*[b"x" * 1000] * 100)
    assert stream.error == GARBAGE + '"' + "x" * 58 + "…"
    assert stream._garbage == b"x" * SHOWN_BYTES


@pytest.mark.parametrize("step", [1 << 30, 4096])
def test_a_line_has_a_greatest_length(step: int) -> None:
    fits = b'{"status":"' + b"y" * (OBJECT_BYTES - 13) + b'"}'
    assert len(fits) == OBJECT_BYTES
    for line, said in [(fits, None), (fits[:20] + b"y" + fits[20:], GARBAGE + "a line of more than 1 MiB")]:
        stream = fed(*(line[at : at + step] for at in range(0, len(line), step)))
        assert stream.error == said
    endless = fed(*[b'{"status":"'] + [b"y" * 4096] * 300)
    assert endless.error == GARBAGE + "a line of more than 1 MiB"


# --- loads


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("Loaded image: busybox:latest\n", ("busybox:latest",)),
        ("Loaded image ID: sha256:0123\n", ("sha256:0123",)),
        ("Loaded image: localhost/a:1,docker.io/library/b:2\n", ("localhost/a:1", "docker.io/library/b:2")),
        ("Loaded image(s): localhost/a:1, b:2", ("localhost/a:1", "b:2")),
        ("Loaded image: \n", ()),
        ("The image a:1 already exists, renaming the old one with ID sha256:0 to empty string\n", ()),
    ],
)
def test_what_was_loaded_is_told(said: str, names: tuple[str, ...]) -> None:
    stream = fed(lines({"status": "Loading layer", "id": "a"}, {"stream": said}))
    assert stream.loaded == names
    assert stream.end() == (None if names else CUT)


def test_several_images_may_be_loaded() -> None:
    said = [{"stream": f"Loaded image: x:{tag}\n"} for tag in (1, 2)]
    assert fed(lines(*said, separator=b"")).loaded == ("x:1", "x:2")


def test_an_error_behind_a_loaded_image_is_one() -> None:
    assert fed(lines({"stream": "Loaded image: x:1\n"}, {"error": "disk"})).end() == "disk"


def test_names_and_layers_are_bounded() -> None:
    many = "Loaded image: " + ",".join(f"x:{tag}" for tag in range(LAYERS + 5))
    stream = fed(lines({"stream": many}, {"stream": "Loaded image: y:1"}))
    assert len(stream.loaded) == LAYERS
    stream = fed(
        lines(*(downloading(f"layer{number}", 1, 1) for number in range(LAYERS + 5)), downloading("layer0", 3, 3))
    )
    assert stream.transferred == Transferred(LAYERS + 2, LAYERS + 2)


# --- progress


def test_nothing_is_transferred_at_first() -> None:
    assert PullStream().transferred == Transferred(0, None)
    assert fed(lines({"status": "Pulling fs layer", "id": "a"}, downloading("a", 0))).transferred == Transferred(
        0, None
    )


def test_a_layer_never_goes_back() -> None:
    stream = fed(
        lines(downloading("a", 90, 100), {"status": "Retrying in 5 seconds", "id": "a"}, downloading("a", 1, 100))
    )
    assert stream.transferred == Transferred(90, 100)


def test_a_layer_of_unknown_size_counts_as_far_as_it_is() -> None:
    assert fed(lines(downloading("a", 90), downloading("b", 1, 10))).transferred == Transferred(91, 100)


@pytest.mark.parametrize(
    "said",
    [
        {"status": "Downloading", "id": "a"},
        {"status": "Downloading", "id": "a", "progressDetail": None},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": -5, "total": -1}},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": "5", "total": [1]}},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 1e300, "total": 2**63}},
        {"status": "Downloading", "id": 5, "progressDetail": {"current": 5, "total": 10}},
        {"status": "Downloading", "progressDetail": {"current": 5, "total": 10}},
        {"status": ["Downloading"], "id": "a", "progressDetail": {"current": 5, "total": 10}},
        {"status": "Download complete", "id": "a"},
        {"stream": 5},
        {"stream": ["Loaded image: x"]},
        {},
    ],
)
def test_odd_progress_counts_nothing(said: object) -> None:
    stream = fed(lines(said))
    assert stream.transferred == Transferred(0, None)
    assert stream.error is None


# --- pieces

STREAMS = st.lists(
    st.one_of(
        st.sampled_from([DOCKER, DOCKERS_END, PODMAN, lines({"stream": "Loaded image: a:1\n"}), b"\r\n", b" "]),
        st.builds(lambda text: lines({"status": text, "id": text}, separator=b""), st.text()),
        st.builds(lambda text: lines({"error": text}), st.text()),
        st.builds(lambda current, total: lines(downloading("aaa", current, total)), st.integers(), st.integers()),
    ),
    max_size=6,
).map(b"".join)


@given(STREAMS, st.lists(st.integers(0, 1 << 20), max_size=20))
def test_the_pieces_that_an_answer_comes_in_are_of_no_account(data: bytes, places: list[int]) -> None:
    assert facts(fed(*cut_at(data, places))) == facts(fed(data))


@given(
    st.lists(st.one_of(STREAMS, st.binary()), max_size=4).map(b"".join), st.lists(st.integers(0, 1 << 20), max_size=20)
)
def test_whatever_comes_is_read_alike_in_all_pieces_and_never_raises(data: bytes, places: list[int]) -> None:
    assert facts(fed(*cut_at(data, places))) == facts(fed(data))


@pytest.mark.parametrize(
    "data", [DOCKER + DOCKERS_END, lines({"status": 'a\\"{}\\\\', "x": {"y": ["}"]}}) + DOCKERS_END]
)
def test_an_answer_may_come_byte_by_byte(data: bytes) -> None:
    assert facts(fed(*(data[at : at + 1] for at in range(len(data))))) == facts(fed(data))
    assert fed(data).end() is None


def test_an_answer_that_is_cut_anywhere_is_no_success() -> None:
    whole = (DOCKER + DOCKERS_END).rstrip()
    assert {fed(whole[:end]).end() for end in range(len(whole))} == {CUT}
