"""The settings of a file that leads to pools, of evaluations or of endpoints, for commands that play nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scavenge.app.check import is_endpoints_file
from scavenge.app.options import RunOptions, adapted
from scavenge.config.load import load_run
from scavenge.config.problems import Where
from scavenge.config.schema import RunSettings, SourceSettings
from scavenge.core.documents import DocumentError
from scavenge.errors import ConfigError, Problem, UsageError


def pool_settings(path: Path, overrides: Sequence[str], *, need_evals: bool) -> RunSettings:
    """The settings of a file, changed by *overrides* (``KEY=VALUE`` each); *need_evals* is for one of evaluations.

    An endpoints file is like an elastic evaluation file that has it as a source, and has no keys to change. Raises
    :class:`ConfigError` and :class:`UsageError`.
    """
    try:
        of_endpoints = is_endpoints_file(path)
    except DocumentError as exc:
        raise ConfigError([Problem(str(path), str(exc))]) from None
    if not of_endpoints:
        return adapted(load_run(path, overrides, need_evals=need_evals), RunOptions())
    if overrides:
        raise UsageError(f"--set: {path} is an endpoints file, which has no such keys; name an evaluation file")
    folder = path.absolute().parent
    source = SourceSettings("file", {"path": str(path.absolute())}, Where(str(path)))
    settings = RunSettings(path.stem or "endpoints", folder, folder, sources=(source,), elastic=True)
    return adapted(settings, RunOptions())
