"""The source: asks ``squeue``, reads state files, and remembers what they said last. The rows are made elsewhere."""

from __future__ import annotations

import logging
import math
import os
import pwd
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import trio

from scavenge.plugin import Listing, SourceError
from scavenge_slurm.command import Ended, run_command
from scavenge_slurm.config import SlurmConfig, squeue_command, squeue_environment
from scavenge_slurm.jobs import Job, UnknownOutput, jobs_in_json
from scavenge_slurm.memory import Memory
from scavenge_slurm.rows import rows_of, servers
from scavenge_slurm.statefiles import FileSays, read_state_files
from scavenge_slurm.text import jobs_in_text
from scavenge_slurm.trouble import remedy, said_by

MOST_BYTES = 32 * 1024 * 1024
"""About 5 000 jobs in JSON, with everything that ``squeue`` tells of each."""

FILES_WITHIN_S = 3.0
"""How long the reading of the state files may take."""

_log = logging.getLogger("scavenge.slurm")


@asynccontextmanager
async def open_slurm(config: SlurmConfig) -> AsyncIterator[SlurmSource]:
    """The source of a configuration. Raises :class:`SourceError` when whose jobs it is about cannot be told."""
    yield SlurmSource(config, config.user or _own_name())
    await trio.lowlevel.checkpoint()


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise SourceError(f"the user with the number {os.geteuid()} has no name here; set `user`") from None


class SlurmSource:
    """Lists the servers in the jobs of a Slurm cluster.

    A read of state files that hangs (a dead network mount) is left behind in its thread when it is cancelled, and the
    next one waits until it is over, so no more than one thread ever hangs.
    """

    def __init__(self, config: SlurmConfig, user: str) -> None:
        self.config = config
        self.user = user
        self._memory = Memory()
        self._limiter = trio.CapacityLimiter(1)
        self._next_at = -math.inf

    async def list_endpoints(self) -> Listing:
        """The servers that run now, not sooner than ``interval_s`` after the last call began.

        Raises :class:`SourceError` when ``squeue`` or the folder of the state files cannot tell. Cancelled, it ends
        ``squeue`` and leaves at most a read behind that nobody waits for.
        """
        await trio.sleep_until(self._next_at)
        self._next_at = trio.current_time() + self.config.interval_s
        jobs = self._memory.see(servers(await self._ask(), self.config, self.user))
        files = await self._read_files(jobs)
        rows = rows_of(jobs, self._memory.kept(jobs, files), self.config, time.time())
        for line in self._memory.news(jobs, rows.left_out, files):
            _log.info(line)
        return Listing(rows.specs, where="squeue")

    async def _ask(self) -> list[Job]:
        command = squeue_command(self.config, self.user)
        name = " ".join(" ".join(self.config.command).split())
        try:
            with trio.fail_after(self.config.timeout_s):
                ended = await run_command(command, squeue_environment(dict(os.environ)), MOST_BYTES)
        except OSError as exc:
            where = "correct `command`, or run this where squeue is"
            raise SourceError(f"{name} cannot be started: {exc.strerror or exc}; {where}") from None
        except trio.TooSlowError:
            raise SourceError(f"{name}: no answer within {self.config.timeout_s:g} s; it was ended") from None
        try:
            return self._jobs(ended)
        except UnknownOutput as exc:
            raise SourceError(f"{name}: {exc}{remedy(self.config, str(exc))}") from None

    def _jobs(self, ended: Ended) -> list[Job]:
        if ended.code is None:
            raise UnknownOutput(f"it printed more than {MOST_BYTES // 1024 // 1024} MiB")
        if ended.code != 0 or b"invalid user" in ended.error.lower():  # whose exit code is 0
            raise UnknownOutput(said_by(ended))
        if self.config.format == "json":
            return jobs_in_json(ended.output)
        return jobs_in_text(ended.output, time.time())

    async def _read_files(self, jobs: Iterable[Job]) -> Mapping[int, FileSays]:
        if self.config.state_dir is None:
            await trio.lowlevel.checkpoint()
            return {}
        read = partial(read_state_files, self.config.state_dir, list(jobs))
        with trio.move_on_after(FILES_WITHIN_S):
            return await trio.to_thread.run_sync(read, limiter=self._limiter, abandon_on_cancel=True)
        raise SourceError(f"state_dir {self.config.state_dir}: not read within {FILES_WITHIN_S:g} s; is it mounted?")
