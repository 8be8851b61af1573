"""A dataset that is read in workers, and what they tell of their environment, over processes in memory."""

from __future__ import annotations

import pytest
import trio
from worker_kit import Diligent, FakeProcess, open_kit, serve, settings

from scavenge.core.worker_messages import ReadRows, Rows, RowsFailed
from scavenge.errors import EnvironmentBroken
from scavenge.rollouts import Example
from scavenge.runtime.workerhost import WorkerHost

ROWS = tuple(Example(str(number), {}) for number in range(10))


async def read_all(host: WorkerHost) -> list[str]:
    ids: list[str] = []
    while rows := await host.read(3):
        ids += [row.id for row in rows]
    return ids


async def test_the_dataset_is_read_from_a_worker_and_after_its_death_from_another_without_loss(autojump_clock):
    diligent = Diligent(loading_s=1, rows=ROWS)
    async with open_kit(diligent, settings(min=2)) as kit:
        host = WorkerHost(kit.pool, lambda told: None)
        await host.open()
        some = [row.id for row in await host.read(3)]
        kit.launcher.processes[0].die("SIGKILL")
        assert some + await read_all(host) == [row.id for row in ROWS]


async def test_rows_over_which_every_worker_dies_break_the_environment(autojump_clock):
    async def script(process: FakeProcess) -> None:
        await serve(process)
        while not isinstance(asked := await process.next(), ReadRows):
            pass
        if asked.skip == 0:
            process.say(Rows(0, ROWS[:2], last=False))
            await process.next()
        process.die("SIGSEGV")

    async with open_kit(script) as kit:
        host = WorkerHost(kit.pool, lambda told: None)
        await host.open()
        await host.read(2)
        with pytest.raises(EnvironmentBroken, match="3 workers died over what follows row 2, the last by SIGSEGV"):
            await host.read(2)


async def test_what_a_dataset_raises_in_a_worker_is_told(autojump_clock):
    async def script(process: FakeProcess) -> None:
        await serve(process)
        await process.next()
        process.say(RowsFailed(0, "OSError: disk gone (mine.py, line 9)"))

    async with open_kit(script) as kit:
        host = WorkerHost(kit.pool, lambda told: None)
        await host.open()
        with pytest.raises(EnvironmentBroken, match=r"cannot be read on: OSError: disk gone \(mine.py, line 9\)"):
            await host.read(2)


async def test_reading_gives_up_when_no_worker_comes_back(autojump_clock):
    async with open_kit(Diligent(rows=ROWS), settings(request_deadline_s=20)) as kit:
        host = WorkerHost(kit.pool, lambda told: None)
        await host.open()
        kit.launcher.refuse += ["no more processes"] * 1000
        kit.launcher.processes[0].die("SIGKILL")
        await trio.sleep(0.1)
        with pytest.raises(EnvironmentBroken, match=r"within request_deadline = 20 s.*no more pro"):
            await host.read(2)


async def test_the_host_learns_what_results_depend_on_before_anything_is_played(autojump_clock):
    told: list[object] = []
    async with open_kit(Diligent()) as kit:
        await WorkerHost(kit.pool, told.append).open()
    assert told == [{"data": "1"}]
