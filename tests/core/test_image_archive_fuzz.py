"""Whatever bytes come, an archive is read right or refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from archive_kit import Made, new_docker, oci, old_docker, reading
from scavenge.core.images.archive import read_archive
from scavenge.core.images.archive_values import Archive, BadArchive

IMAGES = [Made(("x:1",), (b"base" * 200, b"top" * 300)), Made(("y:1",), (b"base" * 200,))]
WHOLE = [old_docker(IMAGES), new_docker(IMAGES), new_docker(IMAGES, "gzip"), oci(IMAGES, "zstd")]
RIGHT = [read_archive(reading(data)) for data in WHOLE]


def read(data: bytes) -> Archive | None:
    try:
        return read_archive(reading(data))
    except BadArchive as exc:
        why = str(exc)
    assert why
    assert why.isprintable()
    return None


def is_right(found: Archive, whole: Archive) -> bool:
    """Whether the images are as they were, without names where the document that tells them is cut off.

    An index may come first, so that images whose blobs are there are found, and the others told.
    """
    images, all_images = (
        {(entry.config_digest, entry.layers) for entry in archive.entries} for archive in (found, whole)
    )
    return images == all_images or (images < all_images and bool(found.troubles))


def test_an_archive_that_is_cut_anywhere_is_refused_or_read_right():
    for data, right in zip(WHOLE, RIGHT, strict=True):
        lengths = sorted({*range(0, len(data), 61), *range(len(data) % 512, len(data), 512), len(data)})
        found = [read(data[:length]) for length in lengths]
        assert all(one is None or is_right(one, right) for one in found)
        assert found[0] is None
        assert found[-1] == right


@given(data=st.binary(max_size=3000))
def test_arbitrary_bytes_are_refused(data: bytes):
    assert read(data) is None


@given(which=st.sampled_from(WHOLE), at=st.floats(0, 1), new=st.binary(min_size=1, max_size=40))
def test_an_archive_with_other_bytes_in_it_is_read_or_refused(which: bytes, at: float, new: bytes):
    place = int(at * (len(which) - 1))
    read(which[:place] + new + which[place + len(new) :])


@given(
    which=st.sampled_from(WHOLE),
    document=st.sampled_from(
        [b'"Config"', b'"Layers"', b'"RepoTags"', b'"digest"', b'"manifests"', b'"rootfs"', b"sha256"]
    ),
    new=st.binary(max_size=12),
)
def test_an_archive_whose_documents_are_spoilt_is_read_or_refused(which: bytes, document: bytes, new: bytes):
    read(which.replace(document, new.ljust(len(document))[: len(document)]))


@given(cut=st.integers(1, 4000), which=st.sampled_from(WHOLE))
def test_an_archive_without_a_part_in_the_middle_is_read_or_refused(cut: int, which: bytes):
    read(which[: len(which) // 3] + which[len(which) // 3 + cut :])
