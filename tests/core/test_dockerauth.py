"""What configuration files and credential helpers say about who we are."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.images.dockerauth import (
    HUB_SERVER,
    Auth,
    BadConfig,
    DockerConfig,
    Helper,
    Unusable,
    Way,
    helper_auth,
    parse_config,
)

IMAGE = "registry.example:5000/team/app:1"
HUB_IMAGE = "docker.io/library/python:3.12"
SECRET = "opal-Zebra/42+x"
ASKED = Helper("pass", "registry.example:5000", "docker-credential-pass (F)")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(**table: object) -> DockerConfig:
    return parse_config(json.dumps(table).encode(), "F")


def ways(image: str = IMAGE, **table: object) -> list[Way]:
    return list(config(**table).ways(image))


def entry(name: str, secret: str = SECRET) -> dict[str, str]:
    return {"auth": encoded(f"{name}:{secret}")}


# --- what an engine is given


def test_the_header_is_json_in_padded_base64_for_urls() -> None:
    text = Auth("registry.example:5000", "me??>>", "p>?").header()
    assert len(text) % 4 == 0
    assert not set(text) & set("+/")
    assert json.loads(base64.urlsafe_b64decode(text)) == {
        "username": "me??>>",
        "password": "p>?",
        "serveraddress": "registry.example:5000",
    }


def test_a_token_stands_for_name_and_password() -> None:
    text = Auth(HUB_SERVER, "me", "", "the-token").header()
    assert json.loads(base64.urlsafe_b64decode(text)) == {"identitytoken": "the-token", "serveraddress": HUB_SERVER}


def test_secrets_are_told_and_not_shown() -> None:
    auth = Auth("h", "me", SECRET, "the-token")
    assert auth.secrets() == (SECRET, "the-token", encoded(f"me:{SECRET}"))
    assert Auth("h").secrets() == ()
    assert "Zebra" not in repr(auth)
    assert "token'" not in repr(auth)
    assert "Zebra" not in repr(config(auths={"h": {"username": "me", "password": SECRET}}))


# --- entries


@pytest.mark.parametrize(
    ("said", "auth"),
    [
        (entry("me"), Auth("registry.example:5000", "me", SECRET, origin="F")),
        ({"auth": encoded("me:a:b")}, Auth("registry.example:5000", "me", "a:b", origin="F")),
        ({"auth": encoded("me:secret\0\0")}, Auth("registry.example:5000", "me", "secret", origin="F")),
        ({"auth": encoded("me:secret12").rstrip("=")}, Auth("registry.example:5000", "me", "secret12", origin="F")),
        ({"username": "me", "password": SECRET}, Auth("registry.example:5000", "me", SECRET, origin="F")),
        (
            entry("me") | {"username": "old", "password": "old"},
            Auth("registry.example:5000", "me", SECRET, origin="F"),
        ),
        (
            {"auth": encoded("0000:"), "identitytoken": "tok"},
            Auth("registry.example:5000", "0000", "", "tok", origin="F"),
        ),
        ({"identitytoken": "tok"}, Auth("registry.example:5000", "", "", "tok", origin="F")),
        (entry("me") | {"email": 5}, Auth("registry.example:5000", "me", SECRET, origin="F")),
    ],
)
def test_an_entry_has_a_name_and_a_password_or_a_token(said: dict[str, object], auth: Auth) -> None:
    assert ways(auths={"registry.example:5000": said}) == [auth]


@pytest.mark.parametrize(
    "said", [{}, None, {"email": "x"}, {"auth": ""}, {"username": "me"}, {"password": SECRET}, {"auth": encoded("me:")}]
)
def test_an_entry_may_be_empty(said: object) -> None:
    assert ways(auths={"registry.example:5000": said}) == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("text", "is no table"),
        ({"auth": "***"}, "has an auth that is no text in base64"),
        ({"auth": encoded("me")}, "has an auth without a colon in it"),
        ({"auth": base64.b64encode(b"\xff:x").decode()}, "has an auth that is no text in base64"),
        ({"auth": "é"}, "has an auth that is no text in base64"),
        ({"auth": 5}, "has a auth that is no text"),
        ({"identitytoken": ["x"]}, "has a identitytoken that is no text"),
    ],
)
def test_a_broken_entry_says_what_is_wrong_with_it_and_costs_only_itself(said: object, why: str) -> None:
    table = {"registry.example:5000": said, "docker.io": entry("hub")}
    assert ways(auths=table) == [Unusable(f'F: the entry for "registry.example:5000" {why}')]
    assert ways(HUB_IMAGE, auths=table) == [Auth(HUB_SERVER, "hub", SECRET, origin="F")]


# --- keys


@pytest.mark.parametrize(
    "key",
    [
        "registry.example:5000",
        "Registry.Example:5000",
        "registry.example:5000/",
        "https://registry.example:5000",
        "http://registry.example:5000/v1/",
        "https://registry.example:5000/v2/",
        "https://registry.example:5000/some/path",
        "registry.example:5000/v1/",
        "registry.example:5000/team",
        "registry.example:5000/team/app",
    ],
)
def test_a_registry_is_meant_by_many_keys(key: str) -> None:
    assert [type(way) for way in ways(auths={key: entry("me")})] == [Auth]
    assert ways(HUB_IMAGE, auths={key: entry("me")}) == []


@pytest.mark.parametrize(
    "key",
    ["registry.example", "registry.example:5000/tea", "registry.example:5000/team/app/x", "registry.example:50", ""],
)
def test_a_key_for_something_else_does_not_fit(key: str) -> None:
    assert ways(auths={key: entry("me")}) == []


@pytest.mark.parametrize(
    "key",
    [
        "https://index.docker.io/v1/",
        "index.docker.io",
        "docker.io",
        "registry-1.docker.io",
        "https://docker.io",
        "docker.io/library",
    ],
)
@pytest.mark.parametrize("image", [HUB_IMAGE, "registry-1.docker.io/library/python:latest"])
def test_docker_hub_has_many_names_and_one_for_engines(key: str, image: str) -> None:
    assert ways(image, auths={key: entry("me")}) == [Auth(HUB_SERVER, "me", SECRET, origin="F")]


def test_the_narrowest_key_counts() -> None:
    table = {
        "registry.example:5000": entry("all"),
        "registry.example:5000/team": entry("team"),
        "registry.example:5000/team/app": entry("app"),
    }
    names = {
        image: ways(image, auths=table)
        for image in (IMAGE, "registry.example:5000/team/b:1", "registry.example:5000/c:1")
    }
    assert [way.username for found in names.values() for way in found if isinstance(way, Auth)] == [
        "app",
        "team",
        "all",
    ]
    assert {way.server for found in names.values() for way in found if isinstance(way, Auth)} == {
        "registry.example:5000"
    }


def test_of_two_keys_for_one_place_the_first_that_has_something_counts() -> None:
    table = {
        "https://registry.example:5000": {},
        "registry.example:5000": entry("me"),
        "registry.example:5000/v1/": entry("x"),
    }
    assert ways(auths=table) == [Auth("registry.example:5000", "me", SECRET, origin="F")]


# --- programs


def test_a_registrys_own_program_counts_before_the_one_for_all() -> None:
    table = {"credHelpers": {"https://registry.example:5000": "pass"}, "credsStore": "desktop"}
    assert ways(**table) == [ASKED]
    assert ways(HUB_IMAGE, **table) == [Helper("desktop", HUB_SERVER, "docker-credential-desktop (F)")]
    assert ASKED.program == "docker-credential-pass"


def test_what_the_file_has_itself_comes_behind_the_program() -> None:
    auth = Auth("registry.example:5000", "me", SECRET, origin="F")
    assert ways(credsStore="pass", auths={"registry.example:5000": entry("me")}) == [ASKED, auth]


@pytest.mark.parametrize("name", ["../evil", "a/b", "", "a b", "-x", 5, ["pass"], "x" * 101, "a\n", "é"])
def test_a_program_has_a_plain_name(name: object) -> None:
    for table in ({"credsStore": name}, {"credHelpers": {"registry.example:5000": name}}):
        found = ways(**table)
        assert all(isinstance(way, Unusable) and "is no name of a credential helper" in way.why for way in found)
        assert len(found) == bool(name)


def test_a_program_prints_a_name_and_a_secret() -> None:
    said = json.dumps({"ServerURL": "x", "Username": "me", "Secret": SECRET}).encode()
    assert helper_auth(ASKED, 0, said) == Auth("registry.example:5000", "me", SECRET, origin=ASKED.origin)
    token = json.dumps({"Username": "<token>", "Secret": "tok"}).encode()
    assert helper_auth(ASKED, 0, token) == Auth("registry.example:5000", "", "", "tok", origin=ASKED.origin)
    assert helper_auth(ASKED, 0, b'{"Username":"me","Secret":""}') is None


@pytest.mark.parametrize("said", [b"credentials not found in native keychain\n", b"Credentials not found in store"])
def test_a_program_may_have_nothing(said: bytes) -> None:
    assert helper_auth(ASKED, 1, said) is None
    assert helper_auth(ASKED, 1, b"", said) is None


@pytest.mark.parametrize(
    ("code", "output", "why"),
    [
        (1, b"gpg: no key\n", "docker-credential-pass (F) fails with exit code 1: gpg: no key"),
        (-9, b"", "docker-credential-pass (F) fails with exit code -9: and says nothing"),
        (2, b"\xff\x1b" + b"x" * 1000, "docker-credential-pass (F) fails with exit code 2: � " + "x" * 197 + "…"),
        (0, b"", "docker-credential-pass (F) prints no credentials"),
        (0, SECRET.encode(), "docker-credential-pass (F) prints no credentials"),
        (0, b'["opal-Zebra/42+x"]', "docker-credential-pass (F) prints no credentials"),
        (0, b'{"Username":"me"}', "docker-credential-pass (F) prints no credentials"),
        (0, b'{"Secret":"opal-Zebra/42+x"}', "docker-credential-pass (F) prints no credentials"),
        (0, b'{"Username":1,"Secret":"opal-Zebra/42+x"}', "docker-credential-pass (F) prints no credentials"),
    ],
)
def test_a_program_that_fails_is_told_of_without_secrets(code: int, output: bytes, why: str) -> None:
    with pytest.raises(BadConfig) as caught:
        helper_auth(ASKED, code, output)
    assert str(caught.value) == why


# --- files


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "F: not JSON"),
        (b"{", "F: not JSON"),
        (b"\xff", "F: not JSON"),
        (b"[]", "F: not a table of JSON"),
        (b'{"auths":[]}', "F: auths and credHelpers have to be tables"),
        (b'{"credHelpers":"x"}', "F: auths and credHelpers have to be tables"),
    ],
)
def test_a_file_that_is_none_says_so(text: bytes, why: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parse_config(text, "F")
    assert str(caught.value) == why


@pytest.mark.parametrize(
    "text", [b"{}", b'{"auths":null,"credHelpers":null,"credsStore":null}', b'{"proxies":{"x":1}}']
)
def test_a_file_may_have_nothing(text: bytes) -> None:
    assert list(parse_config(text, "F").ways(IMAGE)) == []


KEYS = [
    "auths",
    "credHelpers",
    "credsStore",
    "registry.example:5000",
    "https://index.docker.io/v1/",
    "auth",
    "username",
]
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.text(), st.integers(-5, 5), st.just(entry("me")), st.just("pass")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)),
)


@given(JSON)
def test_whatever_a_file_says_is_read_or_refused(table: object) -> None:
    try:
        found = parse_config(json.dumps(table).encode(), "F")
    except BadConfig:
        return
    for way in [*found.ways(IMAGE), *found.ways(HUB_IMAGE)]:
        assert isinstance(way, Auth | Helper | Unusable)
