"""``scavenge serve`` and ``scavenge exec`` where the gateway itself does not do well."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from gateway_story import gateway_file
from run_kit import Folder, run_here
from told_server import BOUND_S

import scavenge.app.exec
import scavenge.app.serve

ASKED = "trap 'echo > asked; exit' TERM; echo > ready; while :; do sleep 0.01; done"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    gateway_file(folder)
    return folder


@pytest.fixture
def open_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Has both commands open their gateway by another function."""

    def replace(open_gateway: object) -> None:
        monkeypatch.setattr(scavenge.app.exec, "open_gateway", open_gateway)
        monkeypatch.setattr(scavenge.app.serve, "open_gateway", open_gateway)

    return replace


@pytest.mark.parametrize("command", [["serve", "gateway.toml"], ["exec", "gateway.toml", "touch", "started"]])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_that_comes_while_it_is_being_opened_ends_it(folder, open_as, command, name):
    @asynccontextmanager
    async def hanging(*_: object, **__: object) -> AsyncIterator[None]:
        signal.raise_signal(signal.Signals[name])
        await trio.sleep(BOUND_S)
        raise AssertionError("nothing has ended it")
        yield

    open_as(hanging)
    done = run_here(folder, *command)
    assert (done.returncode, done.stdout) == (128 + signal.Signals[name], "")
    assert "Traceback" not in done.stderr
    assert not (folder.path / "started").exists()


def test_a_gateway_that_breaks_takes_its_command_with_it(folder, open_as):
    async def fail() -> None:
        while not (folder.path / "ready").exists():  # noqa: ASYNC110 - nobody tells of it
            await trio.sleep(0.005)
        raise ValueError("a bug")

    @asynccontextmanager
    async def breaking(*_: object, **__: object) -> AsyncIterator[SimpleNamespace]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            yield SimpleNamespace(base_url="http://127.0.0.1:1/v1")

    open_as(breaking)
    done = run_here(folder, "exec", "gateway.toml", "--", "sh", "-c", ASKED)
    assert done.returncode == 70
    assert "ValueError: a bug" in done.stderr
    assert (folder.path / "asked").exists()


def test_a_second_signal_while_requests_end_cuts_them(folder, open_as, monkeypatch):
    """The first one is told while the address is written, the second one while it waits for them."""

    class Serving:
        base_url = "http://127.0.0.1:1/v1"

        async def finish(self, grace_s: float) -> bool:
            assert grace_s == 30.0
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep(BOUND_S)
            raise AssertionError("nothing has ended it")

    @asynccontextmanager
    async def opened(*_: object, **__: object) -> AsyncIterator[Serving]:
        yield Serving()

    open_as(opened)
    monkeypatch.setattr("scavenge.cli.serve.write_out", lambda text: signal.raise_signal(signal.SIGHUP))
    done = run_here(folder, "serve", "gateway.toml")
    assert done.returncode == 128 + signal.SIGHUP
