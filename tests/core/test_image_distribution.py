"""The words of registries: what is read out of them, whatever stands there."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.images.distribution import (
    Challenge,
    begins_at,
    challenges,
    error_text,
    next_page,
    parse_tags,
    parse_token,
    pause_s,
    received_bytes,
)
from scavenge.core.images.manifests import (
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    BadManifest,
    Blob,
    Index,
    Listed,
    Manifest,
    digest_of,
    fits,
    index_json,
    is_digest,
    manifest_json,
    parse_config,
    parse_manifest,
)
from scavenge.images import Platform

NOW = 1_800_000_000.0
A, B = digest_of(b"a"), digest_of(b"b")
AMD64, ARM64, ARM64_V8 = Platform("linux", "amd64"), Platform("linux", "arm64"), Platform("linux", "arm64", "v8")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(A),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "mediaType",
                    "schemaVersion",
                    "config",
                    "layers",
                    "manifests",
                    "digest",
                    "size",
                    "platform",
                    "os",
                    "architecture",
                    "variant",
                    "annotations",
                    "rootfs",
                    "diff_ids",
                    "tags",
                    "token",
                    "expires_in",
                    "errors",
                    "code",
                    "message",
                    "created",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", []),
        ('Basic realm="x"', [Challenge("basic", {"realm": "x"})]),
        ("Basic", [Challenge("basic", {})]),
        (
            'Bearer realm="https://auth.example/token",service="a, b",scope="repository:x:pull,push"',
            [
                Challenge(
                    "bearer",
                    {"realm": "https://auth.example/token", "service": "a, b", "scope": "repository:x:pull,push"},
                )
            ],
        ),
        (
            'Negotiate, BEARER Realm = "a\\"b" , error=invalid_token, Basic realm=x',
            [
                Challenge("negotiate", {}),
                Challenge("bearer", {"realm": 'a"b', "error": "invalid_token"}),
                Challenge("basic", {"realm": "x"}),
            ],
        ),
        ('Bearer realm="never ends', [Challenge("bearer", {"realm": ""})]),
        ("=,=,=", []),
    ],
)
def test_challenges_are_read(header: str, found: list[Challenge]):
    assert challenges(header) == found


@given(st.text(alphabet='ab=", \\\t%', max_size=40))
def test_no_header_breaks_the_reading_of_challenges(header: str):
    assert len(challenges(header)) <= len(header)


@pytest.mark.parametrize(
    ("reply", "value", "lives_s"),
    [
        ({"token": "t"}, "t", 60.0),
        ({"access_token": "t", "expires_in": 300}, "t", 300.0),
        ({"token": "t", "access_token": "other", "expires_in": 1.5}, "t", 1.5),
        ({"token": "t", "expires_in": -1}, "t", 60.0),
        ({"token": "t", "expires_in": "300"}, "t", 60.0),
        ({"token": ""}, None, 0),
        ({"token": "é"}, None, 0),
        ({"token": "a\r\nb"}, None, 0),
        ({"token": 3}, None, 0),
        ([], None, 0),
    ],
)
def test_a_token_is_read(reply: object, value: str | None, lives_s: float):
    token = parse_token(json.dumps(reply).encode())
    assert (token and token.value) == value
    if token:
        assert token.lives_s == lives_s
        assert repr(token) == f"Token(lives_s={lives_s})"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"<html>", ""),
        (b"{}", ""),
        (b"[1]", ""),
        (b"{never", ""),
        (b"no healthy\n upstream", "no healthy upstream"),
        (b'{"errors": [{"code": "DENIED", "message": "no"}]}', "DENIED: no"),
        (b'{"errors": [{"code": "DENIED"}]}', "DENIED"),
        (b'{"errors": [{"message": "no"}, {"message": "other"}]}', "no"),
        (b'{"errors": []}', ""),
        (b'{"errors": [3]}', ""),
        (b'{"details": "incorrect username or password"}', "incorrect username or password"),  # Docker Hub's tokens
        (b'{"code": 3, "message": ["x"]}', ""),
        (b"x" * 1000, "x" * 299 + "…"),
    ],
)
def test_what_a_registry_says_is_one_line(data: bytes, text: str):
    assert error_text(data) == text


@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ({}, None),
        ({"retry-after": "120"}, 120.0),
        ({"retry-after": "Fri, 15 Jan 2027 08:01:00 GMT"}, 60.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({"retry-after": "soon", "x-ratelimit-reset": f"{NOW + 30:.0f}"}, 30.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"x-retry-after": f"{NOW + 45:.0f}"}, 45.0),
        ({"ratelimit-reset": "1800;w=21600"}, 1800.0),
        ({"ratelimit-remaining": "0;w=21600"}, None),
        ({"retry-after": "999999"}, 21600.0),
    ],
)
def test_the_pause_is_what_the_headers_say(headers: dict[str, str], pause: float | None):
    assert pause_s(headers, NOW) == pause


@pytest.mark.parametrize(
    ("link", "page"),
    [
        ("", None),
        ('</v2/x/tags/list?last=b&n=2>; rel="next"', "/v2/x/tags/list?last=b&n=2"),
        ("<a>; rel=next", "a"),
        ('<a>; rel="prev", <b>; rel="next"', "b"),
        ('<a>; rel="prev"', None),
    ],
)
def test_the_next_page_is_found(link: str, page: str | None):
    assert next_page(link) == page


@pytest.mark.parametrize(
    ("said", "count"),
    [("0-0", 0), ("0-1023", 1024), ("bytes=0-9", 10), ("", 0), ("5-9", 0), ("0-" + "9" * 30, 0)],
)
def test_what_an_upload_has_is_counted(said: str, count: int):
    assert received_bytes(said) == count


@pytest.mark.parametrize(
    ("said", "at"),
    [("bytes 10-19/20", 10), ("bytes 0-1/*", 0), ("", None), ("bytes */20", None), (f"bytes {'9' * 30}-1/2", None)],
)
def test_where_a_part_begins_is_read(said: str, at: int | None):
    assert begins_at(said) == at


def test_what_is_written_is_read_again():
    config, layers = Blob(A, 1, OCI_CONFIG), (Blob(B, 2, f"{OCI_LAYER}+gzip", {"key": "value"}),)
    data = manifest_json(config, layers, {"note": "x"})
    found = parse_manifest(data, "")
    assert found == Manifest(digest_of(data), OCI_MANIFEST, config, layers, data)
    listed = (Listed(Blob(A, 1, OCI_MANIFEST), ARM64_V8), Listed(Blob(B, 2, OCI_MANIFEST), None))
    data = index_json(listed)
    assert parse_manifest(data, OCI_INDEX) == Index(digest_of(data), listed)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"", "no JSON object"),
        (b"[]", "no JSON object"),
        (b'{"schemaVersion": 1, "fsLayers": []}', "schema 1"),
        (b'{"schemaVersion": 2, "mediaType": "text/chart"}', 'no image: a document of type "text/chart"'),
        (b'{"config": 3, "layers": []}', "config: expected a table"),
        (b'{"config": {"digest": "sha512:1", "size": 1}, "layers": []}', "expected a sha256 digest"),
        (b'{"config": {"digest": "sha256:%s", "size": -1}, "layers": []}' % (b"a" * 64), "expected a size"),
        (b'{"manifests": [{}]}', "expected a sha256 digest"),
        (b"\xff" * 100, "no JSON object"),
        (b"[" * 10_000, "no JSON object"),
        (b'{"config": {"digest": "%s", "size": true}, "layers": []}' % A.encode(), "expected a size"),
        (b'{"config": {"digest": "%s", "size": 1}, "layers": [1]}' % A.encode(), "layers: expected a table"),
        (b'{"config": {"digest": "%s", "size": 1}}' % A.encode(), "it is no image"),
    ],
)
def test_what_is_no_image_is_told(document: bytes, why: str):
    with pytest.raises(BadManifest, match=why):
        parse_manifest(document, "")


def test_the_type_of_a_reply_counts_where_the_document_says_none():
    data = b'{"config": {"digest": "%s", "size": 1}, "layers": []}' % A.encode()
    found = parse_manifest(data, "application/x; charset=utf-8")
    assert isinstance(found, Manifest)
    assert found.media_type == "application/x"


@pytest.mark.parametrize(
    ("platforms", "wanted", "place"),
    [
        ((AMD64, ARM64), ARM64, 1),
        ((ARM64, ARM64_V8), ARM64_V8, 1),
        ((AMD64, ARM64_V8), ARM64, 1),
        ((Platform("linux", "arm", "v7"), Platform("linux", "arm", "v6")), Platform("linux", "arm", "v6"), 1),
        ((None, AMD64), AMD64, 1),
        ((Platform("windows", "amd64"),), AMD64, None),
    ],
)
def test_the_manifest_of_a_platform_is_chosen(platforms: tuple[Platform, ...], wanted: Platform, place: int | None):
    blobs = [Blob(digest_of(b"%d" % number), 1) for number in range(len(platforms))]
    index = Index(A, tuple(map(Listed, blobs, platforms)))
    assert index.choose(wanted) == (None if place is None else blobs[place])


def test_a_variant_that_one_side_does_not_say_is_no_difference():
    v7 = Platform("linux", "arm", "v7")
    assert fits(ARM64_V8, ARM64)
    assert fits(ARM64, ARM64_V8)
    assert not fits(v7, Platform("linux", "arm", "v6"))
    assert not fits(AMD64, ARM64)


@pytest.mark.parametrize("digest", ["sha256:" + "A" * 64, "sha512:" + "a" * 128, "sha256:" + "a" * 63, "", None, 3])
def test_only_what_can_be_checked_is_a_digest(digest: object):
    assert is_digest(A)
    assert not is_digest(digest)


def test_a_config_says_its_platform_and_layers():
    document = {"os": "linux", "architecture": "arm64", "variant": "v8", "created": "2026", "rootfs": {"diff_ids": [A]}}
    found = parse_config(json.dumps(document).encode())
    assert (found.platform, found.diff_ids, found.created) == (ARM64_V8, (A,), "2026")
    assert parse_config(json.dumps({**document, "created": 3}).encode()).created == ""
    for wrong in ({"os": 3}, {"os": ""}, {"rootfs": None}, {"rootfs": {}}, {"rootfs": {"diff_ids": ["x"]}}):
        with pytest.raises(BadManifest):
            parse_config(json.dumps({**document, **wrong}).encode())


@pytest.mark.parametrize(
    ("data", "tags"),
    [(b"", []), (b'{"tags": null}', []), (b'{"tags": ["a", 3, "b\\nc"]}', ["a", "b c"]), (b'{"tags": {}}', [])],
)
def test_tags_are_read(data: bytes, tags: list[str]):
    assert parse_tags(data) == tags


@given(JSON)
def test_no_document_breaks_the_reading(document: object):
    data = json.dumps(document).encode()
    for read in (parse_config, lambda text: parse_manifest(text, "x")):
        with suppress(BadManifest):
            read(data)
    assert error_text(data) is not None
    assert parse_tags(data) is not None
    parse_token(data)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reading(data: bytes):
    for read in (parse_config, lambda text: parse_manifest(text, "x")):
        with pytest.raises(BadManifest):
            read(data)
    assert "\n" not in error_text(data)
