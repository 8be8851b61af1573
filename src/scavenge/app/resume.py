"""What an earlier part of a run left in its folder, and whether the run can go on from there.

Reads the folder; the only thing it changes is a torn last line of the results, which it moves aside.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from scavenge.config.load import load_run_text
from scavenge.config.schema import RunSettings, identity
from scavenge.core.digests import DigestSet
from scavenge.core.naming import shown
from scavenge.core.tally import History, Tally
from scavenge.edge.results import mend, scan
from scavenge.edge.run_folder import RunFolder
from scavenge.errors import ConfigError, Problem


@attrs.frozen(eq=False)
class Earlier:
    """What is done already. ``complaints`` are sentences about lines that could not be used."""

    done: DigestSet = attrs.field(factory=DigestSet)
    kept: int = 0
    complaints: tuple[str, ...] = ()


def open_earlier(folder: RunFolder, settings: RunSettings, tally: Tally) -> Earlier:
    """Take the results in *folder* into *tally*. Blocks for about a second per 300 000 results.

    Raises :class:`ConfigError` that names the keys when the settings would give other results than those in the folder,
    :class:`scavenge.errors.ResultsError` when the folder cannot be read.
    """
    before = load_run_text(folder.read_config(), folder.path, str(folder.path / "config.toml"))
    _refuse_other_results(before, settings)
    torn = mend(folder.results)
    history = History(tally)
    complaint = scan(folder.results, history.add).complaint()
    tally.carry_over(folder.read_summary())
    foreign = f"{history.foreign} results are of evaluations that this run does not have" if history.foreign else None
    complaints = tuple(text for text in (torn, complaint, foreign) if text is not None)
    return Earlier(history.done, len(history.done), complaints)


def _refuse_other_results(before: RunSettings, now: RunSettings) -> None:
    wanted = {one.name: identity(one) for one in now.evals}
    problems: list[Problem] = []
    for one in before.evals:
        if one.name in wanted:
            problems.extend(_differences(one.name, identity(one), wanted[one.name]))
        else:
            problems.append(
                Problem(f"eval {one.name!r}", "is in the run folder and not in the settings; resume keeps it")
            )
    if problems:
        raise ConfigError(problems)


def _differences(name: str, before: Mapping[str, object], now: Mapping[str, object]) -> list[Problem]:
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return [
        Problem(
            f"eval {name!r}: {key}",
            f"the results in the run folder were made with {shown(before.get(key))}, not {shown(now.get(key))}; "
            "start a new run for other results",
        )
        for key in keys
    ]
