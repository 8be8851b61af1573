"""Archives that are put together out of others: what is copied, in which order, and what comes last."""

from __future__ import annotations

import io
import json
import tarfile

import attrs
import pytest

from archive_kit import Made, hex_of, new_docker, old_docker, reading
from scavenge.core.images.archive import read_archive
from scavenge.core.images.archive_headers import BLOCK
from scavenge.core.images.archive_writing import END, Wanted, archive_size, header, last_bytes, padding, spans

BASE, TOP, OTHER = b"base" * 300, b"top" * 700, b"other" * 10
NAME = "docker.io/library/x:1"
ONE, TWO = Made(("x:1",), (BASE, TOP)), Made(("y:1",), (BASE, OTHER))


def wanted(*images: Made, pack: str = "") -> list[Wanted]:
    data = new_docker(images, pack)
    return [Wanted(entry, entry.names[0]) for entry in read_archive(reading(data)).entries]


@pytest.mark.parametrize("size", [0, 1, BLOCK, 8**11 - 1, 8**11, 2**50])
def test_a_header_is_read_as_it_was_meant(size: int):
    read = tarfile.TarInfo.frombuf(header("a" * 99, size), "utf-8", "strict")
    assert (read.name, read.size, read.mode, read.isreg()) == ("a" * 99, size, 0o644, True)


def test_a_layer_of_several_images_is_copied_once_for_all_of_them():
    found = spans(wanted(ONE, TWO))
    assert {span.name: span.images for span in found} == {
        f"{hex_of(ONE.config)}.json": (0,),
        f"{hex_of(TWO.config)}.json": (1,),
        f"{hex_of(BASE)}.tar": (0, 1),
        f"{hex_of(TOP)}.tar": (0,),
        f"{hex_of(OTHER)}.tar": (1,),
    }
    assert [span.offset for span in found] == sorted(span.offset for span in found)


def test_a_layer_that_an_image_has_twice_is_copied_once():
    (image,) = wanted(Made(layers=(BASE, TOP, BASE)))
    first, second, third = image.entry.layers
    elsewhere = (first, second, attrs.evolve(third, offset=2**20))  # as in an archive that has it in two places
    image = attrs.evolve(image, entry=attrs.evolve(image.entry, layers=elsewhere))
    assert sorted(span.size for span in spans([image]))[1:] == [len(BASE), len(TOP)]
    assert {span.images for span in spans([image])} == {(0,)}
    assert len(manifest_of(image)["Layers"]) == 3


def manifest_of(image: Wanted) -> dict[str, object]:
    with tarfile.open(fileobj=io.BytesIO(last_bytes(image))) as tar:
        held = tar.extractfile("manifest.json")
        assert held is not None
        (entry,) = json.loads(held.read())
        return entry


def test_the_manifest_has_one_name_and_the_layers_in_their_order():
    (image,) = wanted(Made(("x:1", "y:2"), (TOP, BASE)))
    assert manifest_of(image) == {
        "Config": f"{hex_of(Made(('x:1', 'y:2'), (TOP, BASE)).config)}.json",
        "RepoTags": [NAME],
        "Layers": [f"{hex_of(TOP)}.tar", f"{hex_of(BASE)}.tar"],
    }


def test_a_plain_layer_has_the_digest_of_its_content_and_a_compressed_one_its_own():
    plain, packed = spans(wanted(ONE)), spans(wanted(ONE, pack="gzip"))
    layers = [span for span in plain if span.name.endswith(".tar")]
    assert all(span.digest == span.diff_id for span in layers)
    layers = [span for span in packed if span.name.endswith(".tar")]
    assert all(span.compression == "gzip" and span.digest not in ("", span.diff_id) for span in layers)


def test_a_compressed_layer_whose_digest_nobody_tells_has_none():
    (image,) = wanted(ONE, pack="gzip")
    layers = tuple(attrs.evolve(layer, digest="") for layer in image.entry.layers)
    image = attrs.evolve(image, entry=attrs.evolve(image.entry, layers=layers))
    assert {span.digest for span in spans([image]) if span.compression} == {""}


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513])
def test_members_begin_at_whole_blocks(size: int):
    assert (size + len(padding(size))) % BLOCK == 0


def test_the_size_of_an_archive_is_known_beforehand_and_its_bytes_are_an_archive():
    data = old_docker([TWO, ONE])
    entry = read_archive(reading(data)).entries[1]
    image = Wanted(entry, NAME)
    parts = []
    for span in spans([image]):
        body = data[span.offset : span.offset + span.size]
        parts += [header(span.name, span.size), body, padding(span.size)]
    whole = b"".join([*parts, last_bytes(image)])
    assert len(whole) == archive_size(image)
    assert whole.endswith(END)
    (again,) = read_archive(reading(whole)).entries
    assert (again.names, again.config_digest, again.diff_ids) == ((NAME,), ONE.config_digest, ONE.diff_ids)
