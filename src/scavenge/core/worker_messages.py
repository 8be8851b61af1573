"""What the run and a worker process say to each other. Values only; :mod:`scavenge.core.frames` has their bytes.

The run speaks first: ``Load``. The worker answers ``Ready`` or ``Broken``, and from then on is asked to read rows and
to play rollouts, several at once; each question has one answer, in any order. ``Beat`` comes in between, from outside
the worker's event loop, so that a busy worker is told from one that hangs.

Numbers of rollouts are the run's: a worker repeats them and never makes one up.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from scavenge.errors import Problem
from scavenge.rollouts import Example, Failure, Rollout
from scavenge.types import Json, ModelAddress

# --- to the worker


@attrs.frozen
class Load:
    """Make the environment ``env_id`` and open it. ``env_args`` is a TOML document, so that dates come through.

    Modules beside the evaluation file, in ``base_dir``, are importable, and so is what is on the ``path`` of the run;
    ``where`` is the place of the ``[[eval]]`` table for messages.
    """

    env_id: str
    env_args: str
    base_dir: str
    where: str
    path: tuple[str, ...] = ()


@attrs.frozen
class ReadRows:
    """Tell the examples from number ``skip`` (from 0) on, at most ``count``. The dataset is read anew if need be."""

    skip: int
    count: int


@attrs.frozen
class Play:
    """Play an example out; the model is at ``model``."""

    rollout: int
    example: Example
    model: ModelAddress


@attrs.frozen
class Abort:
    """Cancel a rollout. It is answered all the same."""

    rollout: int


@attrs.frozen
class Stop:
    """Cancel what is under way, close the environment and end."""


ToWorker: TypeAlias = "Load | ReadRows | Play | Abort | Stop"

# --- from the worker


@attrs.frozen
class Ready:
    """The environment is loaded and open. ``identity`` is what its results depend on beside its arguments."""

    backend: str
    multi_turn: bool
    identity: Json = attrs.field(factory=dict)


@attrs.frozen
class Broken:
    """The environment cannot be loaded; the process ends after this.

    ``problems`` are those of the evaluation file, where it is the file's fault; ``message`` says all in one line.
    """

    message: str
    problems: tuple[Problem, ...] = ()


@attrs.frozen
class Rows:
    """Examples from number ``skip`` on; ``last``: there are none after them. None at all always is the last."""

    skip: int
    examples: tuple[Example, ...]
    last: bool


@attrs.frozen
class RowsFailed:
    """The dataset cannot be read on from ``skip``."""

    skip: int
    message: str


@attrs.frozen
class Played:
    """A rollout's result."""

    rollout: int
    result: Rollout


@attrs.frozen
class PlayFailed:
    """A rollout came to nothing."""

    rollout: int
    failure: Failure


@attrs.frozen
class Aborted:
    """A rollout was cancelled, and nothing of it is under way any more."""

    rollout: int


@attrs.frozen
class Beat:
    """The process is alive; its event loop last turned ``loop_late_s`` seconds ago (0 for one that has none)."""

    loop_late_s: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))


FromWorker: TypeAlias = "Ready | Broken | Rows | RowsFailed | Played | PlayFailed | Aborted | Beat"
