"""Where an environment lives: what an evaluation asks for rows and has its rollouts played by. In this process here.

A host hides whether the environment is an object of this process or is made in workers. It knows neither plan nor
results; what foreign code raises leaves it as a value (a rollout's failure) or as :class:`EnvironmentBroken`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from itertools import islice
from typing import Protocol, TypeAlias, cast

import attrs
import trio

from scavenge.core.codeplace import raised_at, raised_line
from scavenge.core.failure import FOREIGN, checked_result, checked_rows, failure_of
from scavenge.core.supervision import Ticket
from scavenge.errors import EnvironmentBroken
from scavenge.events import Observer, Warned
from scavenge.rollouts import Example, Failure, Rollout
from scavenge.runtime.ports import Environment, ModelSession, Threads

CANNOT_READ = "its dataset cannot be read on"


@attrs.frozen
class Displaced:
    """A rollout's worker is gone, and nothing is known of what came of it: it is to be played again, afresh."""

    why: str


PlayResult: TypeAlias = "Rollout | Failure | Displaced"


class Host(Protocol):
    """Where one evaluation's environment lives."""

    @property
    def multi_turn(self) -> bool:
        """Whether a rollout may call the model more than once. Known once the host is open."""
        ...

    @property
    def lease_first(self) -> bool:
        """Whether a rollout asks the model as soon as it is played, so that it is only started with a slot in hand."""
        ...

    @property
    def room(self) -> int | None:
        """How many rollouts can be under way at most; ``None``: it does not bound them."""
        ...

    async def open(self) -> None:
        """Wait until the environment is there. Raises :class:`EnvironmentBroken`."""
        ...

    async def read(self, count: int) -> Sequence[Example]:
        """The next examples, at most *count*; none: there are no more. Raises :class:`EnvironmentBroken`."""
        ...

    async def play(self, ticket: Ticket, example: Example, session: ModelSession) -> PlayResult:
        """Play an example out. *ticket* stands for the rollout however often it is played.

        Cancelled, it has told the environment so.
        """
        ...

    async def close(self) -> None:
        """Let the environment go. The caller bounds it; what goes wrong is told, not raised."""
        ...


@attrs.define(eq=False)
class LocalHost:
    """An environment in this process, played under Trio; its rows are read in a thread."""

    name: str
    """The evaluation's."""
    env_id: str
    environment: Environment
    threads: Threads
    emit: Observer = attrs.field(repr=False)
    room: int | None = attrs.field(default=None, init=False)
    _examples: Iterator[Example] | None = attrs.field(default=None, init=False)

    @property
    def multi_turn(self) -> bool:
        """As the environment says."""
        return self.environment.multi_turn

    @property
    def lease_first(self) -> bool:
        """True for one that asks the model once: it is played with a slot in hand."""
        return not self.environment.multi_turn

    async def open(self) -> None:
        """Open the environment. Raises :class:`EnvironmentBroken`."""
        try:
            await self.environment.open()
        except FOREIGN as exc:
            place = raised_at(exc, self.environment)
            raise EnvironmentBroken(self.name, "cannot be opened", exc, place) from exc

    async def read(self, count: int) -> Sequence[Example]:
        """The next examples, read in a thread. Raises :class:`EnvironmentBroken`."""
        try:
            return await self.threads.run(lambda: self._take(count), abandon_on_cancel=True)
        except FOREIGN as exc:
            place = raised_at(exc, self.environment)
            raise EnvironmentBroken(self.name, CANNOT_READ, exc, place) from exc

    def _take(self, count: int) -> list[Example]:
        if self._examples is None:
            self._examples = checked_rows(self.environment.examples(), self.environment)
        return list(islice(self._examples, count))

    async def play(self, ticket: Ticket, example: Example, session: ModelSession) -> PlayResult:
        """Play an example out; whatever the environment raises is this rollout's failure, never the run's."""
        try:
            rollout: object = await cast("Awaitable[Rollout]", self.environment.play(example, session))
        except FOREIGN as exc:
            return failure_of(exc, self.environment)
        return checked_result(rollout, self.env_id)

    async def close(self) -> None:
        """Close the environment; its results are there, so what it raises now is only told."""
        try:
            await self.environment.close()
        except FOREIGN as exc:
            self.emit(Warned(f"eval {self.name!r}: close() failed: {raised_line(exc, self.environment)}"))
        await trio.lowlevel.checkpoint()
