"""The source holds to what every source holds to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from scavenge_slurm.source import open_slurm
from slurm_kit import settings
from squeue_double import job

from scavenge.testing import SourceFault, check_endpoint_source

FAULTS = {
    "the controller is away": "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
    "the controller is away, and the exit code is 0": """echo '{"errors": [{"error": "gone"}], "jobs": []}'""",
    "squeue is killed in the middle": "head -c 60 answer.json; kill -9 $$",
    "the answer is cut": "head -c 60 answer.json",
    "nothing is printed": ":",
    "garbage is printed": "head -c 3000 /dev/urandom",
    "another shape": """echo '{"jobs": {}}'""",
    "the user is unknown": """echo 'squeue: error: Invalid user: alice' >&2; echo '{"jobs": []}'""",
}


@pytest.mark.parametrize("form", ["json", "text"])
async def test_the_source_passes_the_conformance_checks(cluster, form):
    sets = [[job(1), job(2)], [job(2), job(3), job(4, state=["PENDING"])]]

    async def change() -> None:
        sets.reverse()
        cluster.tell(sets[0])
        await trio.lowlevel.checkpoint()

    cluster.tell(sets[0])
    config = settings(command=[str(cluster.squeue)], interval_s=0.0, format=form)
    await check_endpoint_source(
        lambda: open_slurm(config),
        expect=lambda: [
            f"http://{one['nodes']}:{8000 + one['job_id']}/v1" for one in sets[0] if one["state"] == ["RUNNING"]
        ],
        change=change,
        faults=[SourceFault(name, lambda script=script: cluster.behaving(script)) for name, script in FAULTS.items()],
        max_steps=20,
    )


async def test_the_source_with_state_files_passes_the_conformance_checks(cluster, tmp_path):
    folder = tmp_path / "servers"
    folder.mkdir()
    for number in (1, 2, 3):
        (folder / f"{number}.json").write_text(f'{{"port": {9000 + number}}}')
    sets = [[1, 2], [2, 3]]

    async def change() -> None:
        sets.reverse()
        cluster.tell([job(number, comment="", start=0, limit=None, end=0) for number in sets[0]])
        await trio.lowlevel.checkpoint()

    await change()
    config = settings(command=[str(cluster.squeue)], interval_s=0.0, state_dir=folder)
    away = tmp_path / "away"

    @asynccontextmanager
    async def unmounted() -> AsyncIterator[None]:
        folder.rename(away)
        yield
        away.rename(folder)

    await check_endpoint_source(
        lambda: open_slurm(config),
        expect=lambda: [f"http://gpu{number:02d}:{9000 + number}/v1" for number in sets[0]],
        change=change,
        faults=[SourceFault("the folder is away", unmounted)],
        max_steps=20,
    )
