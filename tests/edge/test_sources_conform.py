"""Our own sources hold to what the kit asks of every source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path

import pytest
import trio

from scavenge.edge.sources.file import FileSource
from scavenge.runtime import sources
from scavenge.testing import (
    EngineSettings,
    SimulatedConfig,
    SimulatedFleet,
    SimulatedServer,
    SourceFault,
    check_endpoint_source,
    open_simulated,
    source_answers,
)
from scavenge.testing import faults as happenings

URLS = ["http://10.0.0.1:8000/v1", "http://10.0.0.2:8000/v1"]


class EndpointsFile:
    """An ``endpoints.toml``, and what may happen to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listed = list(URLS)
        self.write()

    def write(self) -> None:
        rows = [f'[[endpoint]]\nendpoint_id = "pool"\nmodel = "m"\nurl = "{url}"\n' for url in self.listed]
        new = self.path.with_suffix(".new")
        new.write_text("\n".join(rows))
        new.replace(self.path)

    async def change(self) -> None:
        self.listed = URLS[:1] if self.listed == URLS else list(URLS)
        self.write()

    def fault(self, spoil: Callable[[Path], object]) -> Callable[[], AbstractAsyncContextManager[None]]:
        @asynccontextmanager
        async def apply() -> AsyncIterator[None]:
            spoil(self.path)
            yield
            if self.path.is_dir():
                self.path.rmdir()
            self.write()

        return apply


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


SPOILT: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_text(""),
    "half": lambda path: path.write_text(path.read_text()[:-20]),
    "something else": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "a folder": make_a_folder,
}


async def test_the_file_source_is_one(tmp_path):
    file = EndpointsFile(tmp_path / "endpoints.toml")

    @asynccontextmanager
    async def open_source() -> AsyncIterator[FileSource]:
        yield FileSource(file.path)

    faults = [SourceFault(name, file.fault(spoil)) for name, spoil in SPOILT.items()]
    await check_endpoint_source(open_source, expect=lambda: file.listed, change=file.change, faults=faults)


async def test_the_simulated_source_is_one():
    await check_endpoint_source(lambda: open_simulated(SimulatedConfig(servers=2)))


async def test_a_simulated_fleet_is_one_and_its_empty_listing_is_found(autojump_clock):
    fleet = SimulatedFleet([SimulatedServer(name, EngineSettings(0.01, 0.0, 8)) for name in ("ep1", "ep2")])
    listed = ["http://ep1.sim/v1", "http://ep2.sim/v1"]

    async def change() -> None:
        await trio.lowlevel.checkpoint()
        leaves = len(listed) == 2
        fleet.nodes["ep2"].apply(happenings.Leave() if leaves else happenings.Join())
        listed[1:] = [] if leaves else ["http://ep2.sim/v1"]

    def fault(happening: happenings.Outage | happenings.Hang | happenings.Empty) -> SourceFault:
        @asynccontextmanager
        async def apply() -> AsyncIterator[None]:
            fleet.lister.apply(happening)
            yield
            fleet.lister.apply(happenings.Heal())

        return SourceFault(type(happening).__name__, apply)

    faults = [fault(happenings.Outage()), fault(happenings.Hang())]
    async with fleet.open():
        await check_endpoint_source(lambda: nullcontext(fleet), expect=lambda: listed, change=change, faults=faults)
        with pytest.raises(AssertionError, match='"Empty", asked in it: an empty listing came'):
            await check_endpoint_source(
                lambda: nullcontext(fleet), expect=lambda: listed, faults=[fault(happenings.Empty())]
            )


def test_a_source_has_the_time_for_closing_that_scavenge_gives_it():
    assert source_answers.CLOSED_WITHIN_S == sources.CLOSED_WITHIN_S
