"""The keys of a ``[[source]]`` of type ``slurm``, and the command line that follows from them. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, ClassVar, Literal

import attrs

from scavenge.plugin import EndpointTemplate
from scavenge_slurm.text import FORMAT

ANY_USER = "*"

LONGEST_PAUSE_S = 15.0
LONGEST_COMMAND_S = 40.0
"""Together with the reading of state files they stay below the 60 seconds that a source has for an answer."""

_USER = re.compile(r"\*|[A-Za-z0-9_][A-Za-z0-9_.@+-]*")


def _check_command(config: SlurmConfig, field: attrs.Attribute[Any], value: Sequence[str]) -> None:
    if not value or not all(value) or any("\0" in word for word in value):
        raise ValueError('command must be a program and its arguments, such as ["ssh", "login1", "squeue"]')


def _check_user(config: SlurmConfig, field: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and not _USER.fullmatch(value):
        raise ValueError('user must be the name of one user of the cluster, or "*" for the jobs of everybody')


def _check_pattern(config: SlurmConfig, field: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and not value.strip():
        raise ValueError(f'{field.name} must not be empty; write a pattern such as "vllm-*", or remove this key')


def _between(least: float, most: float | None = None) -> Any:
    def check(config: SlurmConfig, field: attrs.Attribute[Any], value: float) -> None:
        if value < least or (most is not None and value > most):
            limits = f"at least {least:g}" if most is None else f"{least:g} to {most:g}"
            raise ValueError(f"{field.name} must be {limits} seconds, got {value:g}")

    return check


@attrs.frozen(kw_only=True)
class SlurmConfig(EndpointTemplate):
    """Which jobs are servers, how ``squeue`` is called, and what a row is made of."""

    FACTS: ClassVar[tuple[str, ...]] = (
        "url",
        "host",
        "port",
        "node",
        "job_id",
        "array_job_id",
        "array_task_id",
        "name",
        "user",
        "account",
        "partition",
        "comment.",
        "file.",
    )

    url: str = attrs.field(default="{url}", validator=attrs.fields(EndpointTemplate).url.validator)
    job_name: str | None = attrs.field(default=None, validator=_check_pattern)
    """A pattern that the job's name fits."""
    comment: str | None = attrs.field(default=None, validator=_check_pattern)
    """A pattern that a word of the job's comment fits."""
    user: str | None = attrs.field(default=None, validator=_check_user)
    """Whose jobs: the one who runs this, where ``squeue`` runs on this machine; ``*`` is everybody."""
    state_dir: Path | None = None
    """Where the jobs write what they tell of themselves."""
    every_node: bool = False
    """Whether there is a server on each node of a job, not only on the first."""
    drain_before_s: float = attrs.field(default=120.0, validator=_between(0.0))
    """How long before its end a job takes no new work."""
    command: list[str] = attrs.field(factory=lambda: ["squeue"], validator=_check_command)
    format: Literal["json", "text"] = "json"
    interval_s: float = attrs.field(default=15.0, validator=_between(0.0, LONGEST_PAUSE_S))
    """The least time between two calls of ``squeue``."""
    timeout_s: float = attrs.field(default=30.0, validator=_between(0.1, LONGEST_COMMAND_S))
    """How long ``squeue`` may take."""

    def __attrs_post_init__(self) -> None:
        """Check what binds several keys."""
        if self.job_name is None and self.comment is None:
            raise ValueError("set job_name, comment or both, or every job would be taken for a server")
        if self.user is None and not self.is_local:
            raise ValueError("set user to your name on the cluster, since command does not run squeue on this machine")

    @property
    def is_local(self) -> bool:
        """Whether the command is ``squeue`` itself."""
        return PurePath(self.command[0]).name == "squeue"


def squeue_command(config: SlurmConfig, user: str) -> list[str]:
    """What to run. The words mean the same to a shell, through which ``ssh`` puts them.

    With ``-M``, a header stands before the JSON too, unless it is told not to.
    """
    output = ["--json", "--noheader"] if config.format == "json" else [f"--format={FORMAT}", "--array"]
    whose = [] if user == ANY_USER else [f"--user={user}"]
    return [*config.command, *output, *whose, "--states=RUNNING,COMPLETING"]


def squeue_environment(environ: dict[str, str]) -> dict[str, str]:
    """The environment without what would narrow or reorder an answer of ``squeue``."""
    kept = {name: value for name, value in environ.items() if not name.startswith("SQUEUE_")}
    return {**kept, "LC_ALL": "C"}
