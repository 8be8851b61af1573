"""Which container images a file needs: an evaluation file's environments say it row by row, a list has one a line.

Plays nothing and asks no endpoint; environments that live in workers are asked there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import attrs
import trio

from scavenge.app.hosts import HostPorts, make_hosts, worker_pools
from scavenge.app.options import RunOptions, load
from scavenge.app.parts import Parts, make_parts
from scavenge.config.schema import EvalSettings
from scavenge.core.images.reference import BadReference, canonical
from scavenge.edge.threads import LimitedThreads
from scavenge.environments.references import importable
from scavenge.errors import ConfigError, Problem, UsageError
from scavenge.events import Event, Observer, Warned
from scavenge.rollouts import Example
from scavenge.runtime.hosting import Host
from scavenge.runtime.runner import CLOSE_WITHIN_S
from scavenge.runtime.workerhost import open_workers
from scavenge.types import Json

ROWS_AT_ONCE = 1000
READING_THREADS = 4


def evaluation_in(file: Path) -> Parts | None:
    """The parts of an evaluation file, by its ending ``.toml``; ``None`` for a list of references.

    Raises :class:`scavenge.errors.ConfigError` and :class:`scavenge.errors.UsageError`.
    """
    return make_parts(load(file, RunOptions())) if file.suffix == ".toml" else None


def references_in(file: Path) -> list[str]:
    """The canonical names of the references in a text file, one a line; ``#`` begins a comment.

    Raises :class:`scavenge.errors.ConfigError` with every line that has none, and :class:`scavenge.errors.UsageError`.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{file}: cannot be read: {exc}; name an evaluation file, or a list of references") from exc
    found, problems = [], []
    for number, line in enumerate(lines, 1):
        if text := line.partition("#")[0].strip():
            try:
                found.append(canonical(text))
            except BadReference as exc:
                problems.append(Problem(f"{file}: line {number}", str(exc)))
    if problems:
        raise ConfigError(problems)
    return list(dict.fromkeys(found))


@attrs.define
class Needs:
    """The images that are needed, in their order, each once."""

    images: dict[str, None] = attrs.field(factory=dict)
    unknown: int = 0
    """How many rows cannot be played, so that nobody knows what they need."""

    def add(self, rows: Sequence[Example]) -> None:
        """Take in what rows need."""
        self.images.update(dict.fromkeys(image for row in rows for image in row.images))
        self.unknown += sum(row.error is not None for row in rows)


async def needs_of(parts: Parts, say: Callable[[str], None]) -> Needs:
    """What the rows of the evaluations need.

    Raises :class:`scavenge.errors.EnvironmentBroken`. *say* is told of rows that cannot be played, and of what else is
    wrong. Cancelled, it leaves nothing.
    """

    def emit(event: Event) -> None:
        if isinstance(event, Warned):
            say(event.message)

    needs = Needs()
    with tempfile.TemporaryDirectory() as logs, importable(parts.settings.base_dir):
        ports = HostPorts(Path(logs), LimitedThreads(READING_THREADS), Random(), emit, _unheard)  # noqa: S311 - for jitter
        hosts = make_hosts(parts, ports)
        async with open_workers(worker_pools(hosts)):
            for one, host in zip(parts.settings.evals, hosts, strict=True):
                await _read_rows(host, one, needs, emit)
    return needs


async def _read_rows(host: Host, one: EvalSettings, needs: Needs, emit: Observer) -> None:
    read = 0
    await host.open()
    try:
        while (left := _left(one.num_examples, read)) and (rows := await host.read(left)):
            read += len(rows)
            needs.add(rows)
            for row in rows:
                if row.error is not None:
                    emit(Warned(f"eval {one.name!r}: example {row.id!r} cannot be played: {row.error}"))
    finally:
        with trio.move_on_after(CLOSE_WITHIN_S, shield=True):
            await host.close()


def _unheard(eval_name: str, identity: Json) -> None:
    """What results depend on is of no use here."""


def _left(wanted: int, read: int) -> int:
    return ROWS_AT_ONCE if wanted < 0 else min(ROWS_AT_ONCE, wanted - read)
