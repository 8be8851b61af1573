"""Which container engine is meant: the one that is named, or the first of the usual sockets that exists.

Where somebody names one (``[images] engine``, ``DOCKER_HOST``, ``CONTAINER_HOST``, a context of the Docker CLI), it is
that one or none: another engine has other images. Looks at a few paths and small files, and connects to nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import attrs
import httpx

from scavenge.core.naming import shown
from scavenge.errors import EngineError

PLAIN_PORT = 2375
"""Docker's own for an engine that listens without TLS."""

NAME_ONE = "name its socket with `engine` in `[images]` or with DOCKER_HOST"
_FORWARD = "forward its socket (`ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock HOST`) and name /tmp/engine.sock"


@attrs.frozen
class Address:
    """Where an engine listens: a Unix socket's path, or else a URL. ``named_by`` says who named it, if anybody did."""

    text: str
    socket: str = ""
    url: str = "http://engine"
    named_by: str = ""

    def __str__(self) -> str:
        """``unix:///run/docker.sock (DOCKER_HOST)``."""
        return f"{self.text} ({self.named_by})" if self.named_by else self.text

    @property
    def is_here(self) -> bool:
        """Whether the engine is sure to run on this machine."""
        return bool(self.socket)


def find_address(named: str | None, environ: Mapping[str, str]) -> Address:
    """Where the engine is to be found now. *named* is what ``[images] engine`` says.

    Raises :class:`EngineError`: silent when no socket is there, else for an address that cannot be used.
    """
    for who, text in _namings(named, environ):
        try:
            return attrs.evolve(parse_address(text, environ), named_by=who)
        except ValueError as exc:
            raise EngineError(f"container engine by {who}: {exc}") from None
    usual = list(usual_sockets(environ))
    for path in usual:
        if os.path.exists(path):
            return Address(f"unix://{path}", path)
    what = f"no container engine is there (looked at {', '.join(usual)})"
    raise EngineError(f"{what}; start Docker or Podman, or {NAME_ONE}", silent=True)


def parse_address(text: str, environ: Mapping[str, str]) -> Address:
    """The address in a path or URL. Raises :class:`ValueError` that says what is wrong with it and what to do."""
    if not text.isprintable() or not text:
        raise ValueError(f"{shown(text)} is no address; {NAME_ONE}")
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _unix(text, environ)
    if scheme == "unix":
        return _unix(rest, environ)
    if scheme in ("tcp", "http"):
        return _plain(text, rest)
    if scheme == "ssh":
        raise ValueError(f"{shown(text)}: engines are not reached by ssh; {_FORWARD}")
    raise ValueError(f"{shown(text)}: only unix://, tcp:// and http:// can be used; {NAME_ONE}")


def usual_sockets(environ: Mapping[str, str]) -> Iterator[str]:
    """Where Docker and Podman listen by themselves, in the order in which they are tried."""
    yield "/var/run/docker.sock"
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        yield f"{runtime}/docker.sock"
        yield f"{runtime}/podman/podman.sock"
    yield "/run/podman/podman.sock"


def _namings(named: str | None, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if named:
        yield "`engine` in `[images]`", named
    for variable in ("DOCKER_HOST", "CONTAINER_HOST"):
        if text := environ.get(variable):
            yield variable, text
    folder = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "/"), ".docker"))
    if context := environ.get("DOCKER_CONTEXT") or _read(folder / "config.json", "currentContext"):
        meta = folder / "contexts" / "meta" / sha256(context.encode("utf-8", "surrogateescape")).hexdigest()
        if text := _read(meta / "meta.json", "Endpoints", "docker", "Host"):
            yield f"docker context {shown(context)}", text


def _read(file: Path, *keys: str) -> str:
    """The text at the end of *keys* in a JSON file; empty where there is none."""
    found: object = None
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(file.read_bytes())
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def _unix(path: str, environ: Mapping[str, str]) -> Address:
    if path.startswith("~/"):
        path = f"{environ.get('HOME', '~')}{path[1:]}"
    if not path:
        raise ValueError(f"names no socket; {NAME_ONE}")
    return Address(f"unix://{path}", path)


def _plain(text: str, rest: str) -> Address:
    try:
        url = httpx.URL(f"http://{rest}")
    except httpx.InvalidURL as exc:
        raise ValueError(f"{shown(text)} is no address: {exc}; {NAME_ONE}") from None
    if url.userinfo or url.query or url.fragment:  # which may hold secrets
        raise ValueError(f"an address has no user, query or fragment; {NAME_ONE}")
    if not url.host or not 0 <= (url.port or 0) < 2**16:
        raise ValueError(f"{shown(text)} is no address of the form tcp://HOST:PORT; {NAME_ONE}")
    port = url.port or (PLAIN_PORT if text.startswith("tcp") else None)
    return Address(text, url=str(url.copy_with(port=port)).rstrip("/"))
