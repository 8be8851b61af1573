"""Names of images: the grammar, the one canonical form, and what is made of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.images.reference import (
    FILE_NAME_MAX,
    BadReference,
    ImageName,
    canonical,
    check_prefix,
    familiar,
    parts,
    safe_file_name,
    under,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4

WORDS = st.from_regex(r"\A[a-z0-9]{1,4}((\.|_|__|-{1,3})[a-z0-9]{1,3}){0,2}\Z")
PATHS = st.lists(WORDS, min_size=1, max_size=4).map("/".join)
LABELS = st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9-]{0,4}[A-Za-z0-9])?\Z")
HOSTS = st.one_of(
    st.sampled_from(["docker.io", "index.docker.io", "localhost", "[::1]", "10.0.0.7"]),
    st.lists(LABELS, min_size=2, max_size=3).map(".".join),
)
PORTS = st.one_of(st.just(""), st.integers(0, 65535).map(":{}".format))
REGISTRIES = st.builds("{}{}".format, HOSTS, PORTS)
TAGS = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}\Z")
ENDS = st.one_of(
    st.just(""),
    TAGS.map(":{}".format),
    st.just("@" + DIGEST),
    TAGS.map(lambda tag: f":{tag}@{DIGEST}"),
)
BARE = PATHS.filter(lambda path: "." not in path.partition("/")[0])
REFERENCES = st.one_of(st.builds("{}/{}{}".format, REGISTRIES, PATHS, ENDS), st.builds("{}{}".format, BARE, ENDS))
"""Texts that the grammar allows. A first word with a dot in it is a registry."""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.12", "docker.io/library/python:3.12"),
        ("owner/name", "docker.io/owner/name:latest"),
        ("docker.io/python", "docker.io/library/python:latest"),
        ("index.docker.io/python:1", "docker.io/library/python:1"),
        ("docker.io/library/python:1", "docker.io/library/python:1"),
        ("a/b/c", "docker.io/a/b/c:latest"),
        ("localhost/x", "localhost/x:latest"),
        ("localhost:5000", "docker.io/library/localhost:5000"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("ghcr.io/owner/name:Tag_1.0-x", "ghcr.io/owner/name:Tag_1.0-x"),
        ("Registry.Example/x", "Registry.Example/x:latest"),
        ("host:80/x:1", "host:80/x:1"),
        ("[::1]:5000/x", "[::1]:5000/x:latest"),
        (f"x@{DIGEST}", f"docker.io/library/x@{DIGEST}"),
        (f"registry.example:5000/x:1@{DIGEST}", f"registry.example:5000/x@{DIGEST}"),
        ("swebench/sweb.eval.x86_64.astropy_1776_astropy-12907", None),
        ("a__b/c---d_e.f", None),
        ("x:_", "docker.io/library/x:_"),
        ("x:" + "t" * 128, "docker.io/library/x:" + "t" * 128),
        ("p" * 247, "docker.io/library/" + "p" * 247 + ":latest"),
        ("ghcr.io/" + "p" * 255, "ghcr.io/" + "p" * 255 + ":latest"),
    ],
)
def test_a_name_is_completed_as_docker_completes_it(text: str, name: str | None) -> None:
    assert canonical(text) == (name or f"docker.io/{text}:latest")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", '"" names no image'),
        (":1", "part"),
        ("docker.io/", "names no image"),
        ("library/", "names no image"),
        ("x/", 'has a part ""'),
        ("/x", 'has a part ""'),
        ("a//b", 'has a part ""'),
        ("Owner/name", 'has a part "Owner" that is in upper case'),
        ("ghcr.io/Owner/name", 'has a part "Owner" that is in upper case'),
        ("Python", 'has a part "Python" that is in upper case'),
        ("a___b", 'has a part "a___b" that is not of letters and digits'),
        ("a..b/c.", "that is no host"),
        ("-x", 'has a part "-x"'),
        ("é", 'has a part "é" that is not'),
        ("x\n", 'has a part "x\\n" that is not'),
        (" x", 'has a part " x" that is not'),
        ("x:", "has a tag"),
        ("x:a b", "has a tag"),
        ("x:-a", "has a tag"),
        ("x:1\n", "has a tag"),
        ("x:" + "t" * 129, "has a tag"),
        ("x@", "has a digest"),
        ("x@sha256:abc", "has a digest"),
        (f"x@{DIGEST.upper()}", "has a digest"),
        (f"x@{DIGEST}\n", "has a digest"),
        (f"x@{DIGEST}@{DIGEST}", "has a digest"),
        (f"x:a b@{DIGEST}", "has a tag"),
        (DIGEST, "is the id of an image"),
        (DIGEST.removeprefix("sha256:"), "is the id of an image"),
        ("https://ghcr.io/x", "is a URL; leave https:// away"),
        ("docker://python", "is a URL; leave docker:// away"),
        ("reg_istry.example/x", 'has a registry "reg_istry.example" that is no host'),
        ("host:port/x", 'has a registry "host:port" that is no host'),
        ("h" * 256 + ".example/x", "that is no host"),
        ("p" * 248 + ":1", "path of more than 255 characters"),
        ("ghcr.io/" + "p" * 256, "path of more than 255 characters"),
    ],
)
def test_what_is_no_name_is_refused_and_told(text: str, said: str) -> None:
    with pytest.raises(BadReference) as caught:
        canonical(text)
    assert said in str(caught.value)
    assert "it looks like python:3.12" in str(caught.value)
    assert str(caught.value).isprintable()


@given(REFERENCES)
def test_the_canonical_name_of_a_canonical_name_is_itself(text: str) -> None:
    name = canonical(text)
    assert canonical(name) == name
    assert parts(name).registry != "index.docker.io"


@given(REFERENCES)
def test_the_parts_of_a_name_make_it_again(text: str) -> None:
    name = canonical(text)
    found = parts(name)
    assert str(found) == name
    assert bool(found.tag) != bool(found.digest)
    assert found.reference in (found.tag, found.digest)
    assert found.reference
    assert name.startswith(found.repository)


@given(REFERENCES)
def test_what_people_read_names_the_same_image(text: str) -> None:
    assert canonical(familiar(canonical(text))) == canonical(text)


@given(st.text())
def test_any_text_is_a_name_or_refused(text: str) -> None:
    try:
        name = canonical(text)
    except BadReference:
        return
    assert canonical(name) == name


def test_the_parts_have_names() -> None:
    assert parts("registry.example:5000/a/b:1") == ImageName("registry.example:5000", "a/b", "1", "")
    assert parts(f"docker.io/library/x@{DIGEST}") == ImageName("docker.io", "library/x", "", DIGEST)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("docker.io/library/python:3.12", "python:3.12"),
        (f"docker.io/library/python@{DIGEST}", f"python@{DIGEST}"),
        ("docker.io/owner/name:1", "owner/name:1"),
        ("docker.io/library/a/b:1", "library/a/b:1"),
        ("ghcr.io/owner/name:1", "ghcr.io/owner/name:1"),
        ("docker.io/localhost/x:1", "docker.io/localhost/x:1"),
        ("docker.io/a.b/x:1", "docker.io/a.b/x:1"),
        ("docker.io/library/" + "a" * 64 + ":1", "a" * 64 + ":1"),
        ("docker.io/library/sha256:" + "a" * 64, "docker.io/library/sha256:" + "a" * 64),
    ],
)
def test_docker_hubs_names_are_read_without_it(name: str, short: str) -> None:
    assert familiar(name) == short


# --- mirrors


@pytest.mark.parametrize(
    ("prefix", "name", "there"),
    [
        ("mirror.example:5000/hub", "docker.io/library/x:1", "mirror.example:5000/hub/library/x:1"),
        ("mirror.example:5000/hub/", "docker.io/a/b:1", "mirror.example:5000/hub/a/b:1"),
        ("localhost", f"docker.io/a/b@{DIGEST}", f"localhost/a/b@{DIGEST}"),
        ("mirror.example", "ghcr.io/a/b:1", "mirror.example/ghcr.io/a/b:1"),
        ("mirror.example/m", "Registry.example:5000/x:1", "mirror.example/m/registry.example-5000/x:1"),
        ("mirror.example", "[::1]:5000/x:1", "mirror.example/1-5000/x:1"),
        ("docker.io/copies", "docker.io/a/b:1", "docker.io/copies/a/b:1"),
    ],
)
def test_a_mirror_has_an_image_under_its_prefix(prefix: str, name: str, there: str) -> None:
    assert under(prefix, name) == there


@given(REFERENCES, st.sampled_from(["localhost:5000", "mirror.example/hub/", "docker.io/copies"]))
def test_the_name_at_a_mirror_is_a_canonical_name_and_another_one(text: str, prefix: str) -> None:
    there = under(prefix, canonical(text))
    assert canonical(there) == there
    assert there != canonical(text)
    assert parts(there).reference == parts(canonical(text)).reference


def test_images_of_different_registries_have_different_names_at_a_mirror() -> None:
    names = ["docker.io/a/b:1", "ghcr.io/a/b:1", "quay.io/a/b:1", "quay.io:80/a/b:1"]
    assert len({under("mirror.example", name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://mirror.example:5000", "leave http:// away: engines know by themselves"),
        ("HTTPS://mirror.example", "leave HTTPS:// away"),
        ("", "does not begin with a registry's host"),
        ("hub", "does not begin with a registry's host"),
        ("/hub", "does not begin with a registry's host"),
        ("mir_ror.example/hub", "does not begin with a registry's host"),
        ("mirror.example:/hub", "does not begin with a registry's host"),
        ("mirror.example/Hub", 'a folder "Hub" that no registry can have'),
        ("mirror.example//hub", 'a folder "/hub" that no registry can have'),
        ("mirror.example/hub//", 'a folder "hub/" that no registry can have'),
        ("mirror.example/hub:1", 'a folder "hub:1" that no registry can have'),
        ("mirror.example\n", "does not begin with a registry's host"),
        ("docker.io", "is Docker Hub itself"),
        ("registry-1.docker.io/", "is Docker Hub itself"),
    ],
)
def test_what_is_no_prefix_is_refused_and_told(text: str, said: str) -> None:
    for refused in (check_prefix, lambda prefix: under(prefix, "docker.io/library/x:1")):
        with pytest.raises(BadReference) as caught:
            refused(text)
        assert said in str(caught.value)
        assert "it looks like mirror.example:5000/folder" in str(caught.value)


def test_a_prefix_loses_the_slash_at_its_end() -> None:
    assert check_prefix("mirror.example:5000/hub/") == "mirror.example:5000/hub"
    assert check_prefix("localhost") == "localhost"


# --- names of files


@given(st.one_of(REFERENCES.map(canonical), st.text()))
def test_the_name_of_a_file_is_safe(name: str) -> None:
    file_name = safe_file_name(name)
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*[a-z0-9]", file_name)
    assert len(file_name) <= FILE_NAME_MAX


def test_names_that_look_alike_have_files_of_their_own() -> None:
    names = [
        "docker.io/a/b:1",
        "docker.io/a-b:1",
        "docker.io/a/b:1 ",
        "docker.io/A/b:1",
        *("x" * n for n in range(110, 140)),
    ]
    assert len({safe_file_name(name) for name in names}) == len(names)


def test_the_name_of_a_file_tells_its_image() -> None:
    assert re.fullmatch(
        r"docker\.io-library-python-3\.12-[0-9a-f]{12}", safe_file_name("docker.io/library/python:3.12")
    )
