"""From an evaluation file to :class:`RunSettings`, or to every problem of the file at once.

Reads the file and looks whether ``endpoints_path`` is a folder; opens nothing else, and does not look at the
environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from scavenge.config.assemble import assemble
from scavenge.config.override import Override, apply_overrides, parse_override
from scavenge.config.problems import Where
from scavenge.config.schema import RunSettings
from scavenge.core.documents import DocumentError, parse_toml
from scavenge.errors import ConfigError, Problem


def load_run(path: str | os.PathLike[str], overrides: Iterable[str] = (), *, need_evals: bool = True) -> RunSettings:
    """The settings in an evaluation file, changed by *overrides* (``KEY=VALUE`` each).

    With *need_evals* a file without ``[[eval]]`` is an error. Raises :class:`ConfigError`.
    """
    place = Path(path)
    return parse_run(_read(place), place.absolute().parent, str(place), overrides, need_evals=need_evals)


def parse_run(
    data: bytes, base_dir: Path, name: str, overrides: Iterable[str] = (), *, need_evals: bool = True
) -> RunSettings:
    """The settings in the content of an evaluation file called *name*, with relative paths below *base_dir*.

    Raises :class:`ConfigError`.
    """
    try:
        document = parse_toml(data)
    except DocumentError as exc:
        raise ConfigError([Problem(name, str(exc))]) from None
    parsed: list[Override] = []
    misread: list[Problem] = []
    for text in overrides:
        try:
            parsed.append(parse_override(text))
        except ConfigError as exc:
            misread.extend(exc.problems)
    written, misplaced = apply_overrides(document, parsed)
    settings, problems = assemble(document, Where(name, (), written), base_dir, need_evals=need_evals)
    if settings is None or misread or misplaced:
        raise ConfigError([*misread, *misplaced, *problems])
    return settings


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        what = "no such file; name an evaluation file in TOML"
    except IsADirectoryError:
        what = "this is a folder; name the evaluation file in it"
    except PermissionError:
        what = "not readable for this user; change its permissions"
    except (OSError, ValueError) as exc:
        what = f"cannot be read: {exc}"
    raise ConfigError([Problem(str(path), what)])
