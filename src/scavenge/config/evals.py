"""The ``[[eval]]`` tables: what they inherit from the top of the file, and how each gets a name of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from scavenge.config.fields import Reader
from scavenge.config.problems import Fault, Wrong
from scavenge.config.schema import EvalSettings
from scavenge.core.naming import shown

Table = Mapping[str, Any]

_ONE_SERVER = ("model", "api_base_url", "api_key_var")


@attrs.frozen
class Evals:
    """What the tables came to: all settings in the order of the file when there is no fault."""

    settings: tuple[EvalSettings, ...]
    faults: tuple[Fault, ...]


def read_evals(reader: Reader, tables: Sequence[Table | None], defaults: Table, run_keys: Collection[str]) -> Evals:
    """Read the tables, of which ``None`` is one that has been reported already; *run_keys* cannot stand in them."""
    inherited = reader.present(EvalSettings, defaults)
    faults = list(inherited.faults)
    sound = not faults
    settings: list[EvalSettings] = []
    for index, table in enumerate(tables):
        if table is None:
            continue
        try:
            settings.extend(_read(reader, table, defaults, run_keys, sound))
        except Wrong as exc:
            faults.extend(fault.below("eval", index) for fault in exc.faults)
    if faults or len(settings) < len(tables):
        return Evals((), tuple(faults))
    own_names = ["name" in table for table in tables if table is not None]
    named = tuple(_named(settings, own_names))
    return Evals(named, tuple(_clashes(named)))


def _read(
    reader: Reader, table: Table, defaults: Table, run_keys: Collection[str], sound: bool
) -> Iterator[EvalSettings]:
    """The settings of one table; where the defaults are not sound, its own keys are checked all the same."""
    misplaced = [key for key in table if key in run_keys and key != "name"]
    if sound and not misplaced:
        yield reader.build(EvalSettings, _inherit(defaults, table))
        return
    own = {key: value for key, value in table.items() if key not in misplaced}
    faults = [Fault((key,), "this key is the run's; move it above the first table") for key in misplaced]
    faults += [*reader.unknown(EvalSettings, own), *reader.present(EvalSettings, own).faults]
    faults += reader.missing(EvalSettings, {**defaults, **own})
    if faults:
        raise Wrong(faults)


def _inherit(defaults: Table, own: Table) -> Table:
    """The eval's keys over the defaults; one way to name the pool replaces the other way, instead of meeting it."""
    replaced: tuple[str, ...] = ()
    if "endpoint_id" in own:
        replaced = _ONE_SERVER
    elif "model" in own or "api_base_url" in own:
        replaced = ("endpoint_id",)
    return {**{key: value for key, value in defaults.items() if key not in replaced}, **own}


def _named(settings: Sequence[EvalSettings], own_names: Sequence[bool]) -> Iterator[EvalSettings]:
    """Evals that were not given a name, and whose name is not unique, are named for their pool as well."""
    taken = Counter(one.name for one in settings)
    for one, own_name in zip(settings, own_names, strict=True):
        if own_name or taken[one.name] == 1:
            yield one
        else:
            yield attrs.evolve(one, name=f"{one.env_id}@{one.endpoint_id or one.model}")


def _clashes(settings: Sequence[EvalSettings]) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for index, one in enumerate(settings):
        if (earlier := first.setdefault(one.name, index)) != index:
            what = f"{shown(one.name)} is already the name of eval[{earlier}]; give one of them another name"
            yield Fault(("eval", index, "name"), what)
