"""Credentials from real files and real programs."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from scavenge.core.images.dockerauth import HUB_SERVER, Auth
from scavenge.edge.images import credentials as module
from scavenge.edge.images.credentials import REMEMBERED_S, Credentials, files
from scavenge.edge.program import run_program

HUB = "docker.io/library/python:3.12"
IMAGE = "registry.example:5000/team/app:1"
SECRET = "opal-Zebra/42+x"


@attrs.define
class Home:
    """A home folder with configuration files and programs, and what was said about them."""

    folder: Path
    warnings: list[str] = attrs.field(factory=list)
    hidden: list[str] = attrs.field(factory=list)

    @property
    def environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder),
            "REGISTRY_AUTH_FILE": str(self.folder / "named.json"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
        }

    def write(self, name: str, **table: object) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(table))

    def helper(self, name: str, script: str) -> None:
        """A program on the path; what it was told is noted in the file ``asked``."""
        path = self.folder / f"docker-credential-{name}"
        path.write_text(f'#!/bin/sh\necho "$1 $(cat)" >> {self.folder}/asked\n{script}\n')
        path.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, name: str) -> None:
        """Wait until a program has written a line into a file. Blocks."""
        bound = time.monotonic() + 20
        while not ((self.folder / name).exists() and (self.folder / name).read_text().endswith("\n")):
            assert time.monotonic() < bound
            time.sleep(0.01)

    def open(self) -> Credentials:
        return Credentials(self.environ, warn=self.warnings.append, hide=self.hidden.append)

    async def find(self, image: str = IMAGE) -> Auth | None:
        return await self.open().find(image)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return Home(tmp_path)


def entry(name: str) -> dict[str, object]:
    return {"registry.example:5000": {"auth": base64.b64encode(f"{name}:{SECRET}".encode()).decode()}}


def printing(name: str) -> str:
    return f"""echo '{json.dumps({"ServerURL": "x", "Username": name, "Secret": SECRET})}'"""


# --- files


PLACES = ["named.json", ".docker/config.json", "run/containers/auth.json", ".config/containers/auth.json"]


async def test_the_first_file_that_has_something_counts(home: Home) -> None:
    for place in reversed(PLACES):
        home.write(place, auths=entry(place))
        found = await home.find()
        assert found == Auth("registry.example:5000", place, SECRET, origin=str(home.folder / place))
    home.write("named.json", auths={"other.example": {}}, credsStore="")
    found = await home.find()
    assert found is not None
    assert found.username == ".docker/config.json"
    assert home.warnings == []


def test_the_folders_may_be_elsewhere() -> None:
    environ = {"HOME": "/h", "DOCKER_CONFIG": "/d", "XDG_CONFIG_HOME": "/c"}
    assert [str(path) for path in files(environ)] == [
        "/d/config.json",
        f"/run/containers/{os.getuid()}/auth.json",
        "/c/containers/auth.json",
    ]
    assert list(files({"XDG_RUNTIME_DIR": "/r", "HOME": ""})) == [Path("/r/containers/auth.json")]


async def test_there_may_be_no_file_at_all(home: Home) -> None:
    assert await home.find() is None
    assert home.warnings == []
    assert await Credentials({"XDG_RUNTIME_DIR": str(home.folder)}).find(HUB) is None


async def test_what_is_found_is_hidden(home: Home) -> None:
    home.write("named.json", auths=entry("me"))
    await home.find()
    assert home.hidden == [SECRET, base64.b64encode(f"me:{SECRET}".encode()).decode()]
    assert "Zebra" not in repr(home.open())


async def test_a_broken_file_costs_itself_and_one_warning(home: Home) -> None:
    (home.folder / "named.json").write_text('{"auths": opal-Zebra')
    home.write(".docker/config.json", auths=entry("me"))
    found = home.open()
    for image in (IMAGE, IMAGE, HUB):
        auth = await found.find(image)
        assert (auth is not None) == (image == IMAGE)
    assert home.warnings == [f"no credentials from {home.folder}/named.json: not JSON"]


async def test_a_file_that_cannot_be_read_costs_itself_and_one_warning(home: Home) -> None:
    home.write(".docker/config.json", auths=entry("me"))
    environ = home.environ | {"REGISTRY_AUTH_FILE": "/proc/self/mem"}  # whoever reads it from its start gets an error
    found = Credentials(environ, warn=home.warnings.append)
    assert await found.find(IMAGE) is not None
    assert await found.find(IMAGE) is not None
    assert home.warnings == ["no credentials from /proc/self/mem: Input/output error"]


async def test_nobody_needs_to_listen(home: Home) -> None:
    (home.folder / "named.json").write_text("broken")
    home.write(".docker/config.json", auths=entry("me"))
    assert await Credentials(home.environ).find(IMAGE) is not None


async def test_what_is_no_file_is_not_read(home: Home) -> None:
    os.mkfifo(home.folder / "named.json")
    (home.folder / ".docker" / "config.json").mkdir(parents=True)
    with trio.fail_after(5):
        assert await home.find() is None
    assert home.warnings == []


async def test_a_broken_entry_costs_itself_and_the_next_file_counts(home: Home) -> None:
    home.write("named.json", auths={"registry.example:5000": {"auth": "opal-Zebra!"}})
    home.write(".docker/config.json", auths=entry("me"))
    found = home.open()
    assert await found.find(IMAGE) is not None
    assert await found.find(IMAGE) is not None
    (warning,) = home.warnings
    assert warning.endswith('named.json: the entry for "registry.example:5000" has an auth that is no text in base64')


# --- programs


async def test_a_program_is_asked_by_the_name_of_the_registry(home: Home) -> None:
    home.helper("pass", printing("me"))
    home.helper("desktop", printing("all"))
    home.write("named.json", credHelpers={"registry.example:5000": "pass"}, credsStore="desktop")
    found = home.open()
    origin = f"docker-credential-pass ({home.folder}/named.json)"
    assert await found.find(IMAGE) == Auth("registry.example:5000", "me", SECRET, origin=origin)
    hub = await found.find(HUB)
    assert hub is not None
    assert (hub.username, hub.server) == ("all", HUB_SERVER)
    assert home.asked == ["get registry.example:5000", f"get {HUB_SERVER}"]
    assert SECRET in home.hidden


async def test_a_program_that_has_nothing_is_no_trouble(home: Home) -> None:
    home.helper("pass", "echo credentials not found in native keychain; exit 1")
    home.write("named.json", credsStore="pass")
    home.write(".docker/config.json", auths=entry("me"))
    found = await home.find()
    assert found is not None
    assert home.warnings == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo gpg: no key >&2; exit 2", "fails with exit code 2: gpg: no key"),
        ("echo opal-Zebra", "prints no credentials"),
        ("kill -9 $$", "fails with exit code -9: and says nothing"),
        (None, "which cannot be started: No such file or directory"),
    ],
)
async def test_a_program_that_fails_costs_itself_and_one_warning(home: Home, script: str | None, why: str) -> None:
    if script is not None:
        home.helper("pass", script)
    home.write("named.json", credsStore="pass", auths=entry("me"))
    found = home.open()
    for _ in range(2):
        auth = await found.find(IMAGE)
        assert auth is not None
        assert auth.username == "me"
    (warning,) = home.warnings
    assert warning.startswith(f"no credentials from docker-credential-pass ({home.folder}/named.json)")
    assert warning.endswith(why)
    assert len(home.asked) == (script is not None)


async def test_a_program_that_does_not_end_is_ended(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELPER_WITHIN_S", 0.1)
    home.helper("pass", f"echo $$ > {home.folder}/pid; exec sleep 1000")
    home.write("named.json", credsStore="pass")
    assert await home.find() is None
    (warning,) = home.warnings
    assert warning.endswith("which does not end within 0.1 s")
    assert not Path(f"/proc/{(home.folder / 'pid').read_text().strip()}").exists()


async def test_a_program_may_leave_its_input_unread(home: Home) -> None:
    path = home.folder / "docker-credential-pass"
    path.write_text(f"#!/bin/sh\nexec <&-\n{printing('me')}\n")
    path.chmod(0o755)
    home.write("named.json", credsStore="pass")
    assert await home.find() is not None


# --- what is remembered


async def test_answers_are_remembered_for_a_while(home: Home, mock_clock: trio.testing.MockClock) -> None:
    home.helper("pass", printing("me"))
    home.write("named.json", credsStore="pass")
    found = home.open()
    for image in (IMAGE, IMAGE, "registry.example:5000/other:1"):
        assert await found.find(image) is not None
    assert home.asked == ["get registry.example:5000"]
    home.write("named.json", auths=entry("new"))
    mock_clock.jump(REMEMBERED_S - 1)
    first = await found.find(IMAGE)
    mock_clock.jump(1)
    second = await found.find(IMAGE)
    assert [auth and auth.username for auth in (first, second)] == ["me", "new"]


async def test_many_at_once_ask_a_program_once(home: Home) -> None:
    home.helper("pass", printing("me"))
    home.write("named.json", credsStore="pass")
    found = home.open()
    names: list[str] = []

    async def find() -> None:
        auth = await found.find(IMAGE)
        assert auth is not None
        names.append(auth.username)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(find)
    assert names == ["me"] * 20
    assert len(home.asked) == 1


async def test_a_cancelled_search_leaves_nothing_behind(home: Home) -> None:
    home.helper("pass", f"echo $$ > {home.folder}/pid; exec sleep 1000")
    home.write("named.json", credsStore="pass")
    found = home.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.find, IMAGE)
        await trio.to_thread.run_sync(home.wait_for, "pid")
        nursery.cancel_scope.cancel()
    assert not Path(f"/proc/{(home.folder / 'pid').read_text().strip()}").exists()
    home.helper("pass", printing("me"))
    assert await found.find(IMAGE) is not None


# --- the standard input of programs


@pytest.mark.parametrize("told", [b"", b"x", b"registry.example\n", bytes(range(256)) * 16])
async def test_a_program_reads_what_it_is_told_and_then_the_end(tmp_path: Path, told: bytes) -> None:
    ran = await run_program(["cat"], tmp_path, 10, told)
    assert (ran.output, ran.exit_code, ran.whole) == (told, 0, True)


async def test_no_descriptor_is_left_open_by_what_is_told(tmp_path: Path) -> None:
    await run_program(["cat"], tmp_path, 10, b"x")
    before = sorted(os.listdir("/proc/self/fd"))
    await run_program(["cat"], tmp_path, 10, b"x")
    with pytest.raises(FileNotFoundError):
        await run_program(["./no-such-program"], tmp_path, 10, b"x")
    assert sorted(os.listdir("/proc/self/fd")) == before
