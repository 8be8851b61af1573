"""Which engine is meant: by the evaluation file, the environment, Docker's contexts, or the usual sockets."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from engine_kit import Auths

from fake_engine import open_fake_engine
from scavenge.edge.images import sockets
from scavenge.edge.images.engine import open_engine
from scavenge.edge.images.sockets import Address, find_address, parse_address, usual_sockets
from scavenge.errors import EngineError


@pytest.fixture(autouse=True)
def own_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The usual sockets, in a folder of the test instead of this machine's."""

    def usual(environ: dict[str, str]) -> list[str]:
        return [f"{tmp_path}/usual{path}" for path in usual_sockets(environ)]

    monkeypatch.setattr(sockets, "usual_sockets", usual)
    return tmp_path / "usual"


def add_context(home: Path, name: str, host: object, *, current: bool = True) -> None:
    """Give a home folder a context of the Docker CLI."""
    meta = home / ".docker" / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}))
    if current:
        (home / ".docker" / "config.json").write_text(json.dumps({"currentContext": name}))


def make(file: Path) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return str(file)


@pytest.mark.parametrize(
    ("text", "socket", "url"),
    [
        ("/run/x.sock", "/run/x.sock", "http://engine"),
        ("unix:///run/x.sock", "/run/x.sock", "http://engine"),
        ("~/x.sock", "/home/me/x.sock", "http://engine"),
        ("unix://~/x.sock", "/home/me/x.sock", "http://engine"),
        ("x.sock", "x.sock", "http://engine"),
        ("tcp://127.0.0.1:2376", "", "http://127.0.0.1:2376"),
        ("tcp://box", "", "http://box:2375"),
        ("tcp://box/", "", "http://box:2375"),
        ("http://box", "", "http://box"),
        ("http://box:80/engine/", "", "http://box/engine"),
        ("tcp://[::1]:99", "", "http://[::1]:99"),
    ],
)
def test_an_address_is_a_path_or_a_url(text, socket, url):
    found = parse_address(text, {"HOME": "/home/me"})
    assert (found.socket, found.url) == (socket, url)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no address"),
        ("unix://", "names no socket"),
        ("a\0b", "no address"),
        ("a\nb", "no address"),
        ("ssh://me@box", "ssh -nNT -L"),
        ("npipe:////./pipe/docker_engine", "only unix://, tcp:// and http://"),
        ("fd://", "only unix://"),
        ("https://box:2376", "only unix://"),
        ("tcp://", "tcp://HOST:PORT"),
        ("tcp://:2375", "tcp://HOST:PORT"),
        ("tcp://box:port", "no address"),
        ("tcp://box:99999", "tcp://HOST:PORT"),
        ("tcp://box?x=1", "no user, query or fragment"),
        ("tcp://box#x", "no user, query or fragment"),
    ],
)
def test_what_cannot_be_used_is_told_with_a_remedy(text, what):
    with pytest.raises(ValueError, match=r"; (name its socket|forward its socket)") as caught:
        parse_address(text, {})
    assert what in str(caught.value)


def test_secrets_in_an_address_are_not_shown():
    with pytest.raises(ValueError, match="no user") as caught:
        parse_address("tcp://me:s3cret@box:2375", {})
    assert "s3cret" not in str(caught.value)


def test_whoever_says_more_is_believed(tmp_path):
    add_context(tmp_path, "lab", "unix:///context.sock")
    make(tmp_path / "usual/var/run/docker.sock")
    environ = {
        "DOCKER_HOST": "unix:///docker.sock",
        "CONTAINER_HOST": "unix:///podman.sock",
        "HOME": str(tmp_path),
        "XDG_RUNTIME_DIR": "/run/user/1",
    }
    found = [find_address("/named.sock", environ)]
    for variable in ("DOCKER_HOST", "CONTAINER_HOST"):
        found.append(find_address(None, environ))
        environ[variable] = ""
    found.append(find_address("", environ))
    (tmp_path / ".docker/config.json").unlink()
    found.append(find_address(None, environ))
    assert [str(address) for address in found] == [
        "unix:///named.sock (`engine` in `[images]`)",
        "unix:///docker.sock (DOCKER_HOST)",
        "unix:///podman.sock (CONTAINER_HOST)",
        'unix:///context.sock (docker context "lab")',
        f"unix://{tmp_path}/usual/var/run/docker.sock",
    ]


def test_the_usual_sockets_are_tried_in_order(tmp_path, own_sockets):
    environ = {"XDG_RUNTIME_DIR": "/run/user/1", "HOME": str(tmp_path)}
    order = [
        "/var/run/docker.sock",
        "/run/user/1/docker.sock",
        "/run/user/1/podman/podman.sock",
        "/run/podman/podman.sock",
    ]
    assert list(usual_sockets(environ)) == order
    for path in reversed(order):
        socket = make(Path(f"{own_sockets}{path}"))
        assert find_address(None, environ) == Address(f"unix://{socket}", socket)


def test_no_engine_at_all_is_silence_that_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(EngineError) as caught:
        find_address(None, {"HOME": str(tmp_path)})
    assert caught.value.silent
    assert "/var/run/docker.sock, " in str(caught.value)
    assert "/run/podman/podman.sock" in str(caught.value)
    assert "start Docker or Podman, or name its socket" in str(caught.value)


@pytest.mark.parametrize("variable", ["DOCKER_HOST", "CONTAINER_HOST"])
def test_an_address_that_cannot_be_used_is_no_silence_and_names_who_named_it(tmp_path, variable):
    make(tmp_path / "usual/var/run/docker.sock")
    with pytest.raises(EngineError, match=f"container engine by {variable}: .*ssh") as caught:
        find_address(None, {variable: "ssh://box", "HOME": str(tmp_path)})
    assert not caught.value.silent


def test_a_context_may_be_named_by_the_environment_and_its_folder_too(tmp_path):
    add_context(tmp_path, "lab", "unix:///lab.sock")
    add_context(tmp_path, "other", "tcp://other", current=False)
    environ = {"HOME": "/nowhere", "DOCKER_CONFIG": f"{tmp_path}/.docker"}
    assert find_address(None, environ).socket == "/lab.sock"
    assert find_address(None, {**environ, "DOCKER_CONTEXT": "other"}).url == "http://other:2375"


@pytest.mark.parametrize(
    "config",
    [b"", b"{", b"[]", b"\xff", b"3", b'{"currentContext": 3}', b'{"currentContext": "default"}', b"[" * 100_000],
)
def test_docker_settings_that_say_nothing_are_passed_over(tmp_path, config):
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_bytes(config)
    socket = make(tmp_path / "usual/var/run/docker.sock")
    assert find_address(None, {"HOME": str(tmp_path)}).socket == socket


@pytest.mark.parametrize("host", [None, 3, ""])
def test_a_context_without_an_address_is_passed_over(tmp_path, host):
    add_context(tmp_path, "lab", host)
    socket = make(tmp_path / "usual/run/podman/podman.sock")
    assert find_address(None, {"HOME": str(tmp_path)}).socket == socket


async def test_an_engine_that_starts_later_on_one_of_the_usual_sockets_is_found(tmp_path, own_sockets):
    environ = {"HOME": str(tmp_path)}
    async with open_engine(None, environ, Auths()) as client, open_fake_engine() as engine:
        with pytest.raises(EngineError, match="no container engine is there"):
            await client.info()
        second = own_sockets / "run/podman/podman.sock"
        second.parent.mkdir(parents=True)
        second.symlink_to(engine.socket)
        assert (await client.info()).product == "docker"
        assert client.disk() is not None
        second.unlink()
        with pytest.raises(EngineError, match="there is no such socket"):
            await client.list_images()
        with pytest.raises(EngineError, match="no container engine is there"):
            await client.info()
