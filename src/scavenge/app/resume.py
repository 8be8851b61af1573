"""What an earlier part of a run left in its folder, and whether the run can go on from there.

What results depend on is kept in the folder as ``identity.json``: for each evaluation, what its settings and its
environment say (an environment in workers, once one has loaded it), and the model of its pool once an endpoint was
listed. A later part that differs in any of it is refused, since its results would be others; endpoints, limits and
timeouts may differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

import attrs
import orjson
import trio

from scavenge.app.parts import Parts
from scavenge.config.endpoint_rows import pool_modes
from scavenge.config.schema import identity
from scavenge.core.codeplace import raised_at
from scavenge.core.digests import DigestSet
from scavenge.core.failure import FOREIGN, checked_identity
from scavenge.core.naming import shown
from scavenge.core.tally import History, Tally
from scavenge.edge.results import mend, scan
from scavenge.edge.run_folder import RunFolder
from scavenge.errors import ConfigError, EnvironmentBroken, Problem, ResultsError
from scavenge.listings import PoolMode
from scavenge.runtime.ports import Threads
from scavenge.types import Endpoint, EndpointId, Json

MODEL, DATA = "model", "data"
TOLD = "told"
"""Under :data:`DATA`, once the environment has said what its results depend on, were it nothing."""
Identity = dict[str, dict[str, object]]
"""By evaluation and key."""


@attrs.frozen(eq=False)
class Earlier:
    """What is done already. ``complaints`` are sentences about lines that could not be used."""

    done: DigestSet = attrs.field(factory=DigestSet)
    kept: int = 0
    complaints: tuple[str, ...] = ()


def identity_of(parts: Parts) -> Identity:
    """What the results of a run depend on, as far as that is known before it starts. Blocks: data is read.

    Raises :class:`scavenge.errors.EnvironmentBroken` when an environment cannot say.
    """
    found: Identity = {}
    for one, staged in zip(parts.settings.evals, parts.staged, strict=True):
        told = {} if staged.hosted else _of_data(_told_by(staged.environment, one.name))
        found[one.name] = _plain({**identity(one), **told})
    return found


def _told_by(environment: object, name: str) -> Json:
    try:
        return checked_identity(getattr(environment, "identity", dict)())
    except FOREIGN as exc:
        what, place = "cannot say what its results depend on", raised_at(exc, environment)
        raise EnvironmentBroken(name, what, exc, place) from exc


def _of_data(told: Json) -> dict[str, object]:
    return {DATA: TOLD, **{f"{DATA}.{key}": value for key, value in told.items()}}


def _plain(table: Mapping[str, object]) -> dict[str, object]:
    """The table as it reads back from the folder, so that both compare."""
    plain: dict[str, object] = orjson.loads(orjson.dumps(dict(table), default=str))
    return plain


def open_earlier(folder: RunFolder, tally: Tally) -> Earlier:
    """Take the results in *folder* into *tally*. Blocks for about a second per 100 000 results.

    Raises :class:`scavenge.errors.ResultsError` when the folder cannot be read.
    """
    torn = mend(folder.results)
    history = History(tally)
    complaint = scan(folder.results, history.add).complaint()
    tally.carry_over(folder.read_summary())
    foreign = f"{history.foreign} results are of evaluations that this run does not have" if history.foreign else None
    complaints = tuple(text for text in (torn, complaint, foreign) if text is not None)
    return Earlier(history.done, len(history.done), complaints)


def refuse_other_results(before: Mapping[str, object], now: Identity) -> None:
    """Raise :class:`ConfigError` that names every key in which two parts of a run differ.

    A key that only one of them can know yet (the model of a pool that had no endpoint) does not count.
    """
    problems = [problem for name, table in before.items() for problem in _differences(name, table, now.get(name))]
    if problems:
        raise ConfigError(problems)


def _differences(name: str, before: object, now: Mapping[str, object] | None) -> Iterator[Problem]:
    if now is None:
        yield Problem(f"eval {name!r}", "is in the run folder and not in the settings; start a new run without it")
    elif isinstance(before, dict):
        for key in {**before, **now}:
            if _comparable(key, before, now) and before.get(key) != now.get(key):
                made = f"the results in the run folder were made with {_said(before, key)}, not {_said(now, key)}"
                yield Problem(f"eval {name!r}: {key}", f"{made}; start a new run for other results")


def _comparable(key: str, before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Whether both parts had heard what *key* is about."""
    about = key.partition(".")[0]
    return about not in (MODEL, DATA) or (about in before and about in now)


def _said(table: Mapping[str, object], key: str) -> str:
    return shown(table[key]) if key in table else "none"


def _data_in(table: object) -> dict[str, object]:
    """What of a table the environment said."""
    if not isinstance(table, dict):
        return {}
    return {key: value for key, value in table.items() if key.partition(".")[0] == DATA}


@attrs.define(eq=False)
class RunIdentity:
    """What the results of a run depend on, kept in its folder as it becomes known. ``pools`` has each evaluation's.

    What environments in workers say, those of the evaluations named in ``hosted``, is taken from earlier parts until
    they are loaded.
    """

    folder: RunFolder
    pools: Mapping[str, EndpointId]
    tables: Identity
    hosted: Collection[str] = ()
    _kept: bool = False
    _news: trio.Event = attrs.field(factory=trio.Event)

    def take_over(self) -> None:
        """Take what earlier parts knew. Raises :class:`ConfigError` when it is something else."""
        before = self.folder.read_identity()
        refuse_other_results(before, self.tables)
        for name in self.hosted:
            self.tables[name].update(_data_in(before.get(name)))
        for name, table in self.tables.items():
            known = before.get(name)
            if isinstance(known, dict) and MODEL in known:
                table.setdefault(MODEL, known[MODEL])

    def modes(self, present: Sequence[Endpoint]) -> Mapping[EndpointId, PoolMode]:
        """What the pools have in common: a model that gave results stays the pool's, whoever comes and goes."""
        known = {
            pool: PoolMode(str(self.tables[name][MODEL]), None)
            for name, pool in self.pools.items()
            if MODEL in self.tables[name]
        }
        return {**known, **pool_modes(present)}

    def learn(self, endpoints: Sequence[Endpoint]) -> None:
        """Note the models of pools that had none."""
        models = {endpoint.endpoint_id: endpoint.model for endpoint in endpoints}
        for name, pool in self.pools.items():
            if pool in models and MODEL not in self.tables[name]:
                self.tables[name][MODEL] = models[pool]
                self._kept = False
                self._news.set()

    def learn_environment(self, name: str, told: Json) -> None:
        """Note what an environment in a worker says. Raises :class:`ConfigError` when earlier parts heard otherwise."""
        said = _plain(_of_data(told))
        before = _data_in(self.tables[name])
        if problems := list(_differences(name, before, said)):
            raise ConfigError(problems)
        if said != before:
            self.tables[name].update(said)
            self._kept = False
            self._news.set()

    async def run_keeping(self, threads: Threads) -> None:
        """Write what is learnt, in a thread, until cancelled."""
        while True:
            await self._news.wait()
            self._news = trio.Event()
            await threads.run(self.keep)

    def keep(self) -> None:
        """Write what is known, if that is news. Where it cannot be written now, the next call tries again."""
        if not self._kept:
            with suppress(ResultsError):
                self.folder.write_identity(self.tables)
                self._kept = True
