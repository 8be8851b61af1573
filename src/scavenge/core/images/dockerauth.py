"""What Docker's and Podman's configuration files say about who we are to a registry. Pure: reads texts, runs nothing.

A file has credentials in ``auths``, or names programs that have them: in ``credHelpers`` one for a registry, in
``credsStore`` one for all. Podman's files may have keys for a part of a registry (``registry.example/team``); the
longest that fits an image counts. Docker Hub has many names, and is ``https://index.docker.io/v1/`` to programs and
engines. In a file the order is: the registry's own program, the program for all, what the file has itself.

Secrets are in no ``repr`` and in no text that is made here.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import attrs
import orjson

from scavenge.core.images.reference import DOCKER_HUB, parts
from scavenge.core.naming import one_line, shown

HUB_SERVER = "https://index.docker.io/v1/"
_HUB_HOSTS = frozenset({DOCKER_HUB, "index.docker.io", "registry-1.docker.io"})
_IS_A_TOKEN = "<token>"  # noqa: S105 - the user's name that says so, by docker-credential-helpers
_NOT_FOUND = "credentials not found"
_SAID_CHARACTERS = 200
_HELPER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_VERSION = re.compile(r"/v[12]$")


class BadConfig(ValueError):
    """A file, an entry of it or what a program printed cannot be used; the message says why, and has no secret."""


@attrs.frozen
class Auth:
    """Credentials for one registry: a name and a password, or a token that stands for both."""

    server: str
    """The registry's name to engines."""
    username: str = ""
    password: str = attrs.field(default="", repr=False)
    identity_token: str = attrs.field(default="", repr=False)
    origin: str = ""
    """Where they are from, for messages: a file, or a program and the file that names it."""

    def header(self) -> str:
        """The value of an engine's ``X-Registry-Auth``: JSON in padded base64 for URLs (Docker Engine API)."""
        said = {"serveraddress": self.server}
        if self.identity_token:
            said["identitytoken"] = self.identity_token
        else:
            said |= {"username": self.username, "password": self.password}
        return base64.urlsafe_b64encode(orjson.dumps(said)).decode()

    def secrets(self) -> tuple[str, ...]:
        """What must not be shown."""
        pair = base64.b64encode(f"{self.username}:{self.password}".encode()).decode() if self.password else ""
        return tuple(filter(None, (self.password, self.identity_token, pair)))


@attrs.frozen
class Helper:
    """A program to ask: ``docker-credential-NAME get`` with *server* on its standard input."""

    name: str
    server: str
    origin: str

    @property
    def program(self) -> str:
        """What it is called."""
        return f"docker-credential-{self.name}"


@attrs.frozen
class Unusable:
    """Something is there for the image, and is broken."""

    why: str


Way: TypeAlias = "Auth | Helper | Unusable"


@attrs.frozen
class DockerConfig:
    """One file. ``where`` names it in messages."""

    where: str
    _entries: Mapping[str, object] = attrs.field(repr=False)
    """What is in ``auths``, by the place that it is for."""
    _helpers: Mapping[str, object]
    _store: object

    def ways(self, image: str) -> Iterator[Way]:
        """What the file has for an image (its canonical name), in the order in which it counts."""
        places = list(_places(image))
        own = next((place for place in places if place in self._helpers), None)
        if own is not None:
            yield self._helper(self._helpers[own], own)
        elif self._store:
            yield self._helper(self._store, places[-1])
        found = next((place for place in places if self._entries.get(place)), None)
        if found is not None and (way := self._auth(self._entries[found], found)) is not None:
            yield way

    def _helper(self, name: object, place: str) -> Way:
        if not isinstance(name, str) or not _HELPER.fullmatch(name):
            return Unusable(f"{self.where}: {shown(name)} is no name of a credential helper")
        return Helper(name, _server(place), f"docker-credential-{name} ({self.where})")

    def _auth(self, entry: object, place: str) -> Auth | Unusable | None:
        try:
            return _auth_in(entry, _server(place), self.where)
        except BadConfig as exc:
            return Unusable(f"{self.where}: the entry for {shown(place)} {exc}")


def parse_config(text: bytes, where: str) -> DockerConfig:
    """What a configuration file says; *where* names it. Raises :class:`BadConfig`."""
    try:
        table = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise BadConfig(f"{where}: not JSON") from None
    if not isinstance(table, dict):
        raise BadConfig(f"{where}: not a table of JSON")
    entries, helpers = _by_place(table.get("auths"), where), _by_place(table.get("credHelpers"), where)
    return DockerConfig(where, entries, helpers, table.get("credsStore"))


def helper_auth(helper: Helper, exit_code: int, output: bytes, complaints: bytes = b"") -> Auth | None:
    """The credentials that a program printed; ``None``: it has none. Raises :class:`BadConfig`.

    ``{"ServerURL", "Username", "Secret"}``, or an exit code other than 0 and a message (docker-credential-helpers).
    """
    if exit_code != 0:
        said = one_line((output + b" " + complaints).decode("utf-8", "replace"), _SAID_CHARACTERS)
        if _NOT_FOUND in said.lower():
            return None
        raise BadConfig(f"{helper.origin} fails with exit code {exit_code}: {said or 'and says nothing'}")
    try:
        table = orjson.loads(output)
    except orjson.JSONDecodeError:
        table = None
    if not isinstance(table, dict):
        raise BadConfig(f"{helper.origin} prints no credentials")
    name, secret = table.get("Username"), table.get("Secret")
    if not isinstance(name, str) or not isinstance(secret, str):
        raise BadConfig(f"{helper.origin} prints no credentials")
    if not secret:
        return None
    if name == _IS_A_TOKEN:
        return Auth(helper.server, identity_token=secret, origin=helper.origin)
    return Auth(helper.server, name, secret, origin=helper.origin)


def _auth_in(entry: object, server: str, where: str) -> Auth | None:
    """The credentials of an entry; ``None``: it has none, as those have that a program stands in for."""
    if not isinstance(entry, dict):
        raise BadConfig("is no table")
    texts = {key: entry.get(key) or "" for key in ("auth", "username", "password", "identitytoken")}
    if odd := [key for key, value in texts.items() if not isinstance(value, str)]:
        raise BadConfig(f"has a {odd[0]} that is no text")
    username, password = texts["username"], texts["password"]
    if texts["auth"]:
        username, password = _pair(texts["auth"])
    if texts["identitytoken"]:
        return Auth(server, username, identity_token=texts["identitytoken"], origin=where)
    return Auth(server, username, password, origin=where) if username and password else None


def _pair(text: str) -> tuple[str, str]:
    """The name and the password in an ``auth``; old Docker padded passwords with NUL."""
    try:
        pair = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        raise BadConfig("has an auth that is no text in base64") from None
    username, colon, password = pair.partition(":")
    if not colon:
        raise BadConfig("has an auth without a colon in it")
    return username, password.strip("\0")


def _by_place(table: object, where: str) -> Mapping[str, object]:
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise BadConfig(f"{where}: auths and credHelpers have to be tables")
    found: dict[str, object] = {}
    for key, value in table.items():
        if value:
            found.setdefault(_place(key), value)
    return found


def _place(key: str) -> str:
    """What a key is for: a registry, or a part of one. A URL's path says nothing, nor does an API's version."""
    scheme, separator, rest = key.rpartition("://")
    host, slash, path = _VERSION.sub("", rest.rstrip("/")).partition("/")
    host = host.lower()
    host = DOCKER_HUB if host in _HUB_HOSTS else host
    return host if separator and scheme else f"{host}{slash}{path}"


def _places(image: str) -> Iterator[str]:
    """The places that an image is in, the narrowest first and its registry last."""
    name = parts(image)
    host = _place(name.registry)
    folders = name.path.split("/")
    for count in range(len(folders), 0, -1):
        yield f"{host}/{'/'.join(folders[:count])}"
    yield host


def _server(place: str) -> str:
    host = place.partition("/")[0]
    return HUB_SERVER if host == DOCKER_HUB else host
