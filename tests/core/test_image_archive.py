"""Which images an archive has: the layouts of the tools that write them, and what is wrong with broken ones."""

from __future__ import annotations

import json

import pytest

from archive_kit import Made, descriptor, digest_of, hex_of, new_docker, oci, old_docker, packed, reading, tar_of
from scavenge.core.images.archive import MOST_DOCUMENT_BYTES, read_archive
from scavenge.core.images.archive_image import compression_of
from scavenge.core.images.archive_values import Archive, ArchiveEntry, BadArchive
from scavenge.images import Platform

BASE, TOP, OTHER = b"base" * 300, b"top" * 700, b"other" * 10
ONE = Made(("python:3.12", "registry.example:5000/py:a"), (BASE, TOP))
TWO = Made(("ghcr.io/owner/tool:v1",), (BASE, OTHER), {"os": "linux", "architecture": "arm64", "variant": "v8"})
PYTHON, MIRRORED = "docker.io/library/python:3.12", "registry.example:5000/py:a"


def read(data: bytes) -> Archive:
    return read_archive(reading(data))


def refused(data: bytes) -> str:
    with pytest.raises(BadArchive) as caught:
        read(data)
    return str(caught.value)


def bytes_at(data: bytes, entry: ArchiveEntry) -> list[bytes]:
    return [data[layer.offset : layer.offset + layer.size] for layer in entry.layers]


@pytest.mark.parametrize("write", [old_docker, new_docker])
def test_the_images_of_a_docker_archive_are_found_with_their_layers(write):
    data = write([ONE, TWO])
    one, two = read(data).entries
    assert one.names == (PYTHON, MIRRORED)
    assert (one.platform, two.platform) == (Platform("linux", "amd64"), Platform("linux", "arm64", "v8"))
    assert one.diff_ids == ONE.diff_ids
    assert one.config_digest == ONE.config_digest
    assert data[one.config_offset : one.config_offset + one.config_size] == ONE.config
    assert bytes_at(data, one) == [BASE, TOP]
    assert bytes_at(data, two) == [BASE, OTHER]


@pytest.mark.parametrize("pack", ["", "gzip", "zstd"])
@pytest.mark.parametrize("annotation", ["io.containerd.image.name", "org.opencontainers.image.ref.name"])
def test_the_images_of_an_oci_layout_are_found_with_their_compressed_layers(pack: str, annotation: str):
    data = oci([Made(("docker.io/library/python:3.12",), (BASE, TOP))], pack, annotation)
    (entry,) = read(data).entries
    assert entry.names == (PYTHON,)
    assert entry.diff_ids == (digest_of(BASE), digest_of(TOP))
    assert [layer.compression for layer in entry.layers] == [pack, pack]
    assert [layer.digest for layer in entry.layers] == [digest_of(packed(layer, pack)) for layer in (BASE, TOP)]
    assert bytes_at(data, entry) == [packed(layer, pack) for layer in (BASE, TOP)]


def test_manifest_json_counts_where_there_is_an_index_too():
    (entry,) = read(new_docker([ONE], "gzip")).entries
    assert entry.names == (PYTHON, MIRRORED)
    assert entry.layers[0].compression == "gzip"


def test_a_bare_tag_in_an_oci_layout_names_nothing():
    (entry,) = read(oci([Made(("latest",))], annotation="org.opencontainers.image.ref.name")).entries
    assert entry.names == ()


def test_podmans_own_names_stay_as_they_are():
    (entry,) = read(old_docker([Made(("localhost/mine:1",))])).entries
    assert entry.names == ("localhost/mine:1",)


def test_an_image_that_was_saved_without_a_name_has_none():
    assert read(new_docker([Made(())])).entries[0].names == ()


def test_an_image_without_layers_is_one():
    assert read(old_docker([Made(layers=())])).entries[0].layers == ()


def test_a_name_that_is_none_is_told_and_costs_no_other():
    found = read(old_docker([Made(("NOT/a name", "x:1"))]))
    assert found.entries[0].names == ("docker.io/library/x:1",)
    assert "NOT/a name" in found.troubles[0]


def test_an_image_of_an_index_is_found_for_each_platform_that_is_there():
    blobs: dict[str, bytes] = {}
    amd, arm = Made(layers=(BASE,)), Made(layers=(TOP,), platform={"os": "linux", "architecture": "arm64"})
    manifests = [manifest(blobs, amd), manifest(blobs, arm), {"digest": f"sha256:{'0' * 64}", "size": 3}]
    proof = manifest(blobs, Made(layers=(OTHER,), platform={"os": "unknown", "architecture": "unknown"}))
    proof["annotations"] = {"vnd.docker.reference.type": "attestation-manifest"}
    inner = descriptor(blobs, json.dumps({"manifests": [*manifests, proof]}).encode(), "index")
    inner["annotations"] = {"io.containerd.image.name": "docker.io/library/x:1"}
    found = read(with_index(blobs, [inner]))
    assert [(entry.names, entry.platform.architecture) for entry in found.entries] == [
        (("docker.io/library/x:1",), "amd64"),
        (("docker.io/library/x:1",), "arm64"),
    ]
    assert found.troubles == ()


def manifest(blobs: dict[str, bytes], image: Made) -> dict[str, object]:
    layers = [descriptor(blobs, layer, "tar") for layer in image.layers]
    own = {"config": descriptor(blobs, image.config, "config"), "layers": layers}
    return descriptor(blobs, json.dumps(own).encode(), "manifest")


def with_index(blobs: dict[str, bytes], manifests: object) -> bytes:
    return tar_of(blobs | {"index.json": json.dumps({"manifests": manifests}).encode()})


def test_an_index_that_holds_itself_ends():
    blobs: dict[str, bytes] = {}
    inner = descriptor(blobs, b'{"manifests": []}', "index")
    for _ in range(5):
        inner = descriptor(blobs, json.dumps({"manifests": [inner]}).encode(), "index")
    assert "index in an index" in refused(with_index(blobs, [inner]))


def test_a_broken_image_costs_no_other():
    broken = {"Config": "nowhere.json", "RepoTags": ["broken:1"], "Layers": []}
    data = with_entries([broken, entry_for(ONE)], files_of(ONE))
    found = read(data)
    assert [entry.names[0] for entry in found.entries] == [PYTHON]
    assert found.troubles == ('image broken:1: the configuration "nowhere.json" is not in the archive',)


def entry_for(image: Made) -> dict[str, object]:
    layers = [f"{hex_of(layer)}.tar" for layer in image.layers]
    return {"Config": f"{hex_of(image.config)}.json", "RepoTags": list(image.names), "Layers": layers}


def files_of(image: Made) -> dict[str, bytes]:
    return {f"{hex_of(layer)}.tar": layer for layer in image.layers} | {f"{hex_of(image.config)}.json": image.config}


def with_entries(entries: object, files: dict[str, bytes]) -> bytes:
    return tar_of(files | {"manifest.json": json.dumps(entries).encode()})


def without(key: str) -> dict[str, object]:
    return {name: value for name, value in entry_for(ONE).items() if name != key}


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({}, "manifest.json is no list"),
        ([], "it holds no image"),
        (["text"], "image number 1: its entry is no JSON object"),
        ([{"RepoTags": [7]}], "image number 1"),
        ([without("Config")], "the name of the configuration is no text"),
        ([without("Layers")], "the configuration tells of 2 layers, and there are 0"),
        ([entry_for(ONE) | {"Layers": "text"}], "Layers is no list"),
        ([entry_for(ONE) | {"Layers": ["a"] * 2_000}], "Layers has 2000 entries"),
        ([entry_for(ONE) | {"Layers": [7, 7]}], "the name of the layer is no text"),
        ([entry_for(ONE) | {"Layers": ["a", "b"]}], 'the layer "a" is not in the archive'),
        ([entry_for(ONE) | {"Layers": ["../a", "b"]}], "leads out of the archive"),
        ([entry_for(ONE) | {"Config": "/etc/passwd"}], "is not inside of the archive"),
        ([entry_for(ONE) | {"Config": f"{hex_of(BASE)}.tar"}], "is no JSON"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused_with_a_reason(entries: object, why: str):
    assert why in refused(with_entries(entries, files_of(ONE)))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (b"[]", "the configuration is no JSON object"),
        (b"{", "is no JSON"),
        (b"{}", "the configuration tells of 0 layers"),
        (b'{"rootfs": 7}', "rootfs of the configuration is no JSON object"),
        (b'{"rootfs": {"diff_ids": "x"}}', "no list of layers"),
        (b'{"rootfs": {"diff_ids": ["x"]}}', "which is no digest"),
        (b'{"rootfs": {"diff_ids": [7]}}', "which is no digest"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_with_a_reason(config: bytes, why: str):
    entry = {"Config": "config.json", "Layers": [f"{hex_of(BASE)}.tar"]}
    assert why in refused(with_entries([entry], files_of(ONE) | {"config.json": config}))


@pytest.mark.parametrize("platform", [{}, {"os": "linux"}, {"os": 7, "architecture": "amd64"}, {"os": "l" * 99}])
def test_a_configuration_without_a_platform_is_refused(platform: dict[str, object]):
    image = Made(platform=platform)
    assert "platform" in refused(old_docker([image]))


def test_a_configuration_that_does_not_have_the_digest_in_its_name_is_refused():
    files = files_of(ONE) | {f"{hex_of(ONE.config)}.json": Made(layers=(BASE, OTHER)).config}
    assert "does not have the digest in its name" in refused(with_entries([entry_for(ONE)], files))


def test_a_plain_blob_that_is_another_layer_is_refused():
    files = files_of(ONE) | {f"blobs/sha256/{hex_of(OTHER)}": OTHER}
    entry = entry_for(ONE) | {"Layers": [f"{hex_of(BASE)}.tar", f"blobs/sha256/{hex_of(OTHER)}"]}
    assert "not the one that the configuration tells of" in refused(with_entries([entry], files))


@pytest.mark.parametrize(
    ("index", "why"),
    [
        ([], "an index is no JSON object"),
        ({"manifests": 7}, "manifests is no list"),
        ({"manifests": [7]}, "a descriptor is no JSON object"),
        ({"manifests": [{}]}, "a descriptor has no sha256 digest"),
        ({"manifests": [{"digest": "md5:1"}]}, "a descriptor has no sha256 digest"),
        ({"manifests": [{"digest": "sha256:../../x"}]}, "leads out of the archive"),
        ({"manifests": [{"annotations": 7}]}, "the annotations of a descriptor"),
        ({"manifests": [{"digest": f"sha256:{'0' * 64}"}]}, "is not in the archive"),
        ({"manifests": [{"digest": digest_of(b"{}"), "size": 9}]}, "has 2 bytes instead of 9"),
        ({"manifests": [{"digest": digest_of(b"{}")}]}, "the configuration of a manifest is no JSON object"),
        ({"manifests": [{"digest": digest_of(b"{}")}] * 30_000}, "manifests has 30000 entries"),
        ({}, "it holds no image"),
    ],
)
def test_an_index_that_makes_no_sense_is_refused_with_a_reason(index: object, why: str):
    blobs = {f"blobs/sha256/{hex_of(b'{}')}": b"{}"}
    assert why in refused(tar_of(blobs | {"index.json": json.dumps(index).encode()}))


def test_indexes_that_tell_of_the_same_many_times_over_are_refused():
    blobs: dict[str, bytes] = {}
    inner = descriptor(blobs, b'{"manifests": []}', "index")
    for _ in range(2):
        inner = descriptor(blobs, json.dumps({"manifests": [inner] * 300}).encode(), "index")
    assert "more than 20000 images" in refused(with_index(blobs, [inner]))


@pytest.mark.parametrize("name", ["manifest.json", "index.json"])
def test_a_document_that_is_too_long_or_no_json_is_refused(name: str):
    assert refused(tar_of({name: b"not json"})) == f"its {name} is no JSON"
    long = b"[" + b" " * MOST_DOCUMENT_BYTES
    assert refused(tar_of({name: long})) == f"its {name} has {len(long)} bytes"
    assert "is no JSON" in refused(tar_of({name: b"{..."}))


def test_an_archive_of_other_things_is_refused():
    assert "no archive of images" in refused(tar_of({"readme.txt": b"hello"}))


def test_more_documents_than_an_archive_can_have_are_refused():
    document = b"[" + b" " * (MOST_DOCUMENT_BYTES - 1)
    files = {f"{number}.json": document for number in range(5)}
    assert "of documents" in refused(tar_of(files))


def test_the_records_of_the_old_layout_are_not_held():
    document = b"[" + b" " * (MOST_DOCUMENT_BYTES - 1)
    files = {f"{number}/json": document for number in range(5)}
    assert read(with_entries([entry_for(ONE)], files_of(ONE) | files)).entries[0].names[0] == PYTHON


def test_how_a_layer_is_compressed_is_seen_from_its_first_bytes():
    assert [compression_of(head) for head in (b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd\0", b"\x5a\x2a\x4d\x18\4")] == [
        "gzip", "zstd", "zstd",
    ]  # fmt: skip
    assert [compression_of(head) for head in (b"BZh9", b"\xfd7zXZ\0", b"", b"a.txt\0\0")] == ["bzip2", "xz", "", ""]
