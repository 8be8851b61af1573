"""What the files of images are called in a store, and the record beside each archive."""

from __future__ import annotations

import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.images.layout import (
    MOST_RECORD_BYTES,
    BadRecord,
    archive_name,
    kind_of,
    misfit,
    parse_record,
    read_platform,
    record_json,
    record_name,
)
from scavenge.images import ImageRecord, Platform

AMD64 = Platform("linux", "amd64")
IMAGE = "docker.io/library/python:3.12"
RECORD = ImageRecord(
    image=IMAGE,
    platform=AMD64,
    config_digest="sha256:" + "a" * 64,
    diff_ids=("sha256:" + "b" * 64, "sha256:" + "c" * 64),
    archive="python.tar",
    size_bytes=123,
    sha256="d" * 64,
    created="2026-01-31T12:00:00Z",
    made_by="scavenge 0.1.0",
)


def document(**changes: object) -> bytes:
    return orjson.dumps({**orjson.loads(record_json(RECORD)), **changes})


def without(key: str) -> bytes:
    return orjson.dumps({name: value for name, value in orjson.loads(record_json(RECORD)).items() if name != key})


# --- records


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        attrs.evolve(RECORD, platform=Platform("linux", "arm64", "v8"), diff_ids=(), size_bytes=0),
        attrs.evolve(
            RECORD, image=f"ghcr.io/a/b@sha256:{'e' * 64}", archive="x.tar.zst", created="2026-01-31T12:00+00:00"
        ),
    ],
)
def test_a_record_comes_back_as_it_was(record: ImageRecord):
    assert parse_record(record_json(record)) == record


def test_a_record_is_a_text_for_people_too():
    assert record_json(RECORD).startswith(b'{\n  "scavenge_image": 1,\n  "image": "docker.io/library/python:3.12",\n')


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("image", "python:3.12", 'image: expected the whole name of an image, "docker.io/library/python:3.12", got'),
        ("image", "A B", "image: "),
        ("image", 7, "image: expected a short text, got 7"),
        ("image", "x" * 300, "image: expected a short text"),
        ("platform", "linux", 'platform: expected a platform such as "linux/amd64", got "linux"'),
        ("platform", "linux/amd64/v1/x", "platform: expected"),
        ("platform", "../amd64", "platform: expected"),
        ("platform", None, "platform: expected a short text, got nothing"),
        ("config_digest", "sha256:" + "A" * 64, "config_digest: expected sha256: and 64 hexadecimal digits"),
        ("diff_ids", "sha256:" + "b" * 64, "diff_ids: expected a list of digests"),
        ("diff_ids", ["sha256:" + "b" * 63], "diff_ids: expected sha256:"),
        ("archive", "../python.tar", "archive: expected the name of a file beside the record"),
        ("archive", ".python.tar", "archive: expected the name of a file"),
        ("archive", "python.zip", "archive: expected a name that ends in .tar, .tar.gz, .tgz, .tar.zst"),
        ("size_bytes", -1, "size_bytes: expected a number of bytes, got -1"),
        ("size_bytes", True, "size_bytes: expected a number of bytes, got true"),
        ("size_bytes", 1.0, "size_bytes: expected"),
        ("sha256", "d" * 65, "sha256: expected 64 hexadecimal digits"),
        ("sha256", "", "sha256: expected 64 hexadecimal digits"),
        ("created", "2026-01-31T12:00:00", "created: expected a time in UTC"),
        ("created", "2026-01-31T12:00:00+01:00", "created: expected a time in UTC"),
        ("created", "yesterday", "created: expected a time in UTC"),
        ("made_by", "a\nb", "made_by: expected a short text"),
        ("made_by", "  ", "made_by: expected a short text"),
        ("archiv", "x", '"archiv": unknown key; did you mean "archive"?'),
        ("scavenge_image", 2, "scavenge_image: version 2, and this scavenge reads 1; install a newer one"),
        ("scavenge_image", 0, "scavenge_image: expected a version, got 0"),
        ("scavenge_image", True, "scavenge_image: expected a version, got true"),
        ("scavenge_image", "1", "scavenge_image: expected a version"),
    ],
)
def test_what_is_wrong_with_a_record_names_the_key(key: str, value: object, said: str):
    with pytest.raises(BadRecord) as caught:
        parse_record(document(**{key: value}))
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("key", sorted(set(orjson.loads(record_json(RECORD))) - {"scavenge_image"}))
def test_a_key_that_is_missing_is_named(key: str):
    with pytest.raises(BadRecord, match=f"^{key}: this key is missing$"):
        parse_record(without(key))


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"7", b"{}", b"<html>", without("scavenge_image")])
def test_what_is_no_record_at_all_is_told(data: bytes):
    with pytest.raises(BadRecord, match="so it is no record of an image"):
        parse_record(data)


def test_a_text_without_end_is_no_record():
    with pytest.raises(BadRecord, match="longer than"):
        parse_record(record_json(RECORD) + b" " * MOST_RECORD_BYTES)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_whatever_bytes_come_are_a_record_or_a_bad_one(data: bytes):
    with pytest.raises(BadRecord):
        parse_record(data)


@given(
    st.sampled_from(sorted(orjson.loads(record_json(RECORD)))),
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text() | st.lists(st.text()),
)
def test_whatever_value_a_key_has_is_read_or_refused(key: str, value: object):
    try:
        record = parse_record(document(**{key: value}))
    except BadRecord:
        return
    assert parse_record(record_json(record)) == record


# --- names


def test_the_names_of_an_image_say_what_they_are_of():
    name = record_name(IMAGE, AMD64)
    assert name.startswith("docker.io-library-python-3.12-")
    assert name.endswith(".linux-amd64.json")
    assert archive_name(IMAGE, AMD64, "d" * 64) == name.removesuffix(".json") + f".{'d' * 16}.tar"
    assert archive_name(IMAGE, AMD64, "d" * 64, ".tar.zst").endswith(".tar.zst")


def test_the_names_of_other_images_platforms_and_archives_differ():
    arm = Platform("linux", "arm64")
    assert len({record_name(i, p) for i in (IMAGE, f"{IMAGE}x") for p in (AMD64, arm)}) == 4
    assert archive_name(IMAGE, AMD64, "d" * 64) != archive_name(IMAGE, AMD64, "e" * 64)


def test_a_variant_that_is_meant_anyway_changes_no_name():
    assert record_name(IMAGE, Platform("linux", "arm64", "v8")) == record_name(IMAGE, Platform("linux", "arm64"))
    assert record_name(IMAGE, Platform("linux", "arm", "v7")) != record_name(IMAGE, Platform("linux", "arm"))


@given(st.text(max_size=300), st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_a_name_is_one_of_a_file_whatever_an_engine_says(image: str, os: str, architecture: str, variant: str):
    name = archive_name(image, Platform(os, architecture, variant), "d" * 64)
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    assert not name.startswith(".")
    assert len(name) <= 255


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.tar", ".tar"), ("a.tar.gz", ".tar.gz"), ("a.tgz", ".tgz"), ("a.tar.zst", ".tar.zst"), ("sha256:ab", ".tar")],
)
def test_the_kind_of_an_archive_is_how_its_name_ends(name: str, kind: str):
    assert kind_of(name) == kind


# --- what fits


def test_a_record_fits_its_own_image_and_platform():
    assert misfit(RECORD, IMAGE, AMD64) == ""
    assert misfit(RECORD, f"{IMAGE}-slim", AMD64) == f"it is the record of {IMAGE}"
    assert misfit(RECORD, IMAGE, Platform("linux", "arm64")) == "it is for linux/amd64"


@pytest.mark.parametrize(
    ("own", "wanted", "fits"),
    [
        ("linux/arm64", "linux/arm64/v8", True),
        ("linux/arm64/v8", "linux/arm64", True),
        ("linux/arm/v7", "linux/arm", True),
        ("linux/arm/v7", "linux/arm/v6", False),
        ("linux/amd64", "windows/amd64", False),
    ],
)
def test_a_variant_that_is_not_said_is_no_difference(own: str, wanted: str, fits: bool):
    record = attrs.evolve(RECORD, platform=read_platform(own))
    assert (misfit(record, IMAGE, read_platform(wanted)) == "") is fits


@pytest.mark.parametrize("text", ["", "linux", "linux/", "/amd64", "Linux/amd64", "linux/amd64\n", "a/b/c/d"])
def test_what_is_no_platform_is_refused(text: str):
    with pytest.raises(ValueError, match="expected a platform such as"):
        read_platform(text)
