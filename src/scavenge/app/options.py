"""What a run can be told beside its evaluation file, and what comes of it: the settings, whole and checked.

Starts nothing and writes nothing; what is read is the evaluation file, a run folder's configuration, the endpoints
files, and the beginning of the datasets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from scavenge.config.load import load_run
from scavenge.config.schema import EvalSettings, PolicySettings, RunSettings, identity
from scavenge.core.redaction import looks_secret
from scavenge.errors import UsageError

DEFAULT_POLICY = "tide"
"""The admission policy of a run that names none."""


@attrs.frozen
class RunOptions:
    """The options of ``scavenge run``. ``overrides`` are texts ``KEY=VALUE``; ``resume`` is a run folder."""

    overrides: tuple[str, ...] = ()
    output_dir: Path | None = None
    name: str | None = None
    resume: Path | None = None
    limit: int | None = None
    allow_empty: bool = False


def load(path: Path | None, options: RunOptions) -> RunSettings:
    """The settings of the evaluation file at *path*, or of the run folder to resume, as *options* change them.

    Raises :class:`scavenge.errors.ConfigError` with all that is wrong, :class:`scavenge.errors.UsageError` when there
    is nothing to load or two things.
    """
    if (path is None) == (options.resume is None):
        raise UsageError("name an evaluation file, or a run folder to resume, and not both")
    source = path if path is not None else _config_of(options.resume)
    return adapted(load_run(source, options.overrides), options)


def _config_of(folder: Path | None) -> Path:
    if folder is None or not (folder / "config.toml").is_file():
        raise UsageError(f"{folder}: not a run folder: it has no config.toml")
    return folder / "config.toml"


def adapted(settings: RunSettings, options: RunOptions) -> RunSettings:
    """*settings* with what *options* say, and with the default policy named."""
    if settings.admission.policy is None:
        settings = attrs.evolve(settings, admission=PolicySettings(DEFAULT_POLICY, settings.admission.keys))
    if options.output_dir is not None:
        settings = attrs.evolve(settings, output_dir=options.output_dir.absolute())
    if options.name is not None:
        settings = attrs.evolve(settings, name=options.name)
    if options.limit is not None:
        settings = attrs.evolve(settings, evals=tuple(_limited(one, options.limit) for one in settings.evals))
    return settings


def _limited(one: EvalSettings, limit: int) -> EvalSettings:
    kept = limit if one.num_examples < 0 else min(limit, one.num_examples)
    return attrs.evolve(one, num_examples=kept)


def odd_settings(settings: RunSettings) -> Iterator[str]:
    """Sentences about settings that are right and hardly meant."""
    if settings.elastic and not settings.sources:
        yield "elastic has no effect: every eval names one fixed server; add a source and endpoint_id for more"
    for index, one in enumerate(settings.evals):
        for key, value in identity(one).items():
            if isinstance(value, str) and looks_secret(value):
                yield f"eval[{index}].{key} looks like a secret and stands in config.toml; let it name a variable"
