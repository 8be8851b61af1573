"""Puts :class:`RunSettings` together from a parsed document: which key belongs to whom, and who inherits what.

Keys above the first table are the run's, or defaults that every ``[[eval]]`` inherits. Faults have the path of the key
as the user wrote it, so a wrong default is reported once, where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from scavenge.config.converter import faults_of
from scavenge.config.evals import read_evals
from scavenge.config.fields import Reader, unknown_keys
from scavenge.config.problems import Fault, Mismatch, Where, Wrong
from scavenge.config.schema import (
    REQUEST_KEYS,
    EvalSettings,
    GatewaySettings,
    ImageSettings,
    PolicySettings,
    RunSettings,
    SourceSettings,
    StoreSettings,
    WorkerSettings,
)
from scavenge.core.health_settings import HealthSettings
from scavenge.core.plan import OrderSettings
from scavenge.core.urls import has_password
from scavenge.errors import Problem

RUN_KEYS = (
    "elastic",
    "elastic_poll_interval",
    "output_dir",
    "name",
    "stall_timeout",
    "max_consecutive_failures",
    "base_dir",
)
POLICY_TABLES = ("admission", "sessions")
PLAIN_TABLES: Mapping[str, type] = {
    "order": OrderSettings,
    "health": HealthSettings,
    "images": ImageSettings,
    "workers": WorkerSettings,
    "gateway": GatewaySettings,
}
_INHERITED = {"gateway": REQUEST_KEYS}
"""Keys above the first table that are defaults of a plain table, as they are of every ``[[eval]]``."""
_PATH_KEY = "endpoints_path"
_ARRAYS = ("eval", "source")
_STORES = ("images", "store")
_ARRAYS_WITHIN = (_STORES,)


def assemble(
    document: Mapping[str, Any], where: Where, base_dir: Path, *, need_evals: bool
) -> tuple[RunSettings | None, tuple[Problem, ...]]:
    """The settings in a document, or ``None`` and all that is wrong with it."""
    faults: list[Fault] = []
    base_dir = _base_dir(document, base_dir)
    assembly = _Assembly(document, where, Reader(base_dir), base_dir, faults)
    values = assembly.values(need_evals)
    if not faults:
        faults.extend(_unsourced(values))
    problems = where.problems(faults)
    return (None if problems else RunSettings(**values)), problems


@attrs.frozen
class _Assembly:
    """One reading of one document; each method reads its part and adds what is wrong to ``faults``."""

    document: Mapping[str, Any]
    where: Where
    reader: Reader
    base_dir: Path
    faults: list[Fault]

    def values(self, need_evals: bool) -> dict[str, Any]:
        eval_keys = [key for key in self.reader.keys(EvalSettings) if key != "name"]
        valid = {*RUN_KEYS, *eval_keys, *POLICY_TABLES, *PLAIN_TABLES, *_ARRAYS, _PATH_KEY}
        self.faults.extend(unknown_keys(self.document, valid))
        run = self._part(RUN_KEYS)
        found = self.reader.present(RunSettings, run)
        self.faults.extend(found.faults)
        evals = read_evals(self.reader, self._tables("eval"), self._part(eval_keys), (*RUN_KEYS, _PATH_KEY))
        self.faults.extend(evals.faults)
        if need_evals and not self.document.get("eval"):
            self.faults.append(Fault((), "nothing to evaluate; add an [[eval]] table with env_id and endpoint_id"))
        default = {"name": Path(self.where.file).stem or "run", "output_dir": self.base_dir / "runs"}
        values = {**default, **found.values, "base_dir": self.base_dir, "where": self.where}
        tables = {table: self._plain(table, cls) for table, cls in PLAIN_TABLES.items()}
        policies = {table: self._policy(table) for table in POLICY_TABLES}
        sources, stores = tuple(self._sources()), tuple(self._stores())
        return {**values, **tables, **policies, "evals": evals.settings, "sources": sources, "image_stores": stores}

    def _part(self, keys: tuple[str, ...] | list[str]) -> dict[str, Any]:
        return {key: self.document[key] for key in keys if key in self.document}

    def _tables(self, *path: str) -> list[Mapping[str, Any] | None]:
        """The tables of an array of tables; ``None`` holds the place of one that is none."""
        *outer, key = path
        within = self.document.get(outer[0], {}) if outer else self.document
        entries = within.get(key, []) if isinstance(within, Mapping) else []
        if not isinstance(entries, list):
            self.faults.append(Fault(path, f"expected a list of tables; begin each of them with [[{'.'.join(path)}]]"))
            return []
        for index, entry in enumerate(entries):
            if not isinstance(entry, Mapping):
                self.faults.extend(fault.below(*path, index) for fault in faults_of(Mismatch("a table", entry)))
        return [entry if isinstance(entry, Mapping) else None for entry in entries]

    def _table(self, key: str) -> Mapping[str, Any]:
        table = self.document.get(key, {})
        if isinstance(table, Mapping):
            return table
        self.faults.extend(fault.below(key) for fault in faults_of(Mismatch("a table", table)))
        return {}

    def _plain(self, key: str, cls: type) -> object:
        arrays = [path[1] for path in _ARRAYS_WITHIN if path[0] == key]
        own = {name: value for name, value in self._table(key).items() if name not in arrays}
        try:
            return self.reader.build(cls, {**self._inherited(key, cls), **own})
        except Wrong as exc:
            self.faults.extend(fault.below(key) for fault in exc.faults)
            return None

    def _inherited(self, key: str, cls: type) -> dict[str, Any]:
        """What a plain table inherits; a default that is wrong is reported where the evals' defaults are read."""
        above = self._part(_INHERITED.get(key, ()))
        sound = self.reader.present(cls, above).values
        return {name: value for name, value in above.items() if name in sound}

    def _policy(self, key: str) -> PolicySettings:
        keys = dict(self._table(key))
        found = self.reader.present(PolicySettings, {"policy": keys.pop("policy", None)})
        self.faults.extend(fault.below(key) for fault in found.faults)
        return PolicySettings(**found.values, keys=keys)

    def _sources(self) -> Iterator[SourceSettings]:
        if _PATH_KEY in self.document:
            yield from self._endpoints_path(self.document[_PATH_KEY])
        for index, table in enumerate(self._tables("source")):
            if table is not None:
                yield from self._source(index, dict(table))

    def _endpoints_path(self, value: object) -> Iterator[SourceSettings]:
        try:
            path: Path = self.reader.read(Path, value)
        except Mismatch as exc:
            self.faults.append(Fault((_PATH_KEY,), str(exc)))
            return
        file = path / "endpoints.toml" if path.is_dir() else path
        yield SourceSettings("file", {"path": str(file)}, self.where.at(_PATH_KEY))

    def _source(self, index: int, keys: dict[str, Any]) -> Iterator[SourceSettings]:
        if (kind := self._type_of(keys, "file", "source", index)) is None:
            return
        if kind == "file" and isinstance(keys.get("path"), str) and keys["path"]:
            keys["path"] = str(self.base_dir / keys["path"])
        yield SourceSettings(kind, keys, self.where.at("source", index))

    def _stores(self) -> Iterator[StoreSettings]:
        for index, table in enumerate(self._tables(*_STORES)):
            if table is not None:
                keys = dict(table)
                if (kind := self._type_of(keys, "folder", *_STORES, index)) is not None:
                    yield StoreSettings(kind, keys, self.where.at(*_STORES, index))

    def _type_of(self, keys: dict[str, Any], example: str, *path: str | int) -> str | None:
        """Take the ``type`` out of the keys of a plugin's object; ``None`` when they cannot be taken on."""
        found = self.reader.present(SourceSettings, {"type": keys.pop("type", None)})
        faults = [*found.faults, *_passwords(keys)]
        if "type" not in found.values and not found.faults:
            faults.append(Fault(("type",), f'this key is required, such as type = "{example}"'))
        self.faults.extend(fault.below(*path) for fault in faults)
        return None if faults else str(found.values["type"])


def _base_dir(document: Mapping[str, Any], folder: Path) -> Path:
    """The folder that ``base_dir`` names; one that is wrong is reported with the other keys of the run."""
    given = document.get("base_dir")
    return folder / given if isinstance(given, str) and "\0" not in given else folder


def _passwords(value: object) -> Iterator[Fault]:
    """The URLs with a password in what a source is given: it would be written into the run's folder."""
    items: Iterator[tuple[Any, object]] = iter(())
    if isinstance(value, Mapping):
        items = iter(value.items())
    elif isinstance(value, list):
        items = iter(enumerate(value))
    elif isinstance(value, str) and has_password(value):
        yield Fault((), "must not hold a password, which would be written to the run's folder; use a variable")
    for part, item in items:
        yield from (fault.below(part) for fault in _passwords(item))


def _unsourced(values: Mapping[str, Any]) -> Iterator[Fault]:
    if values["sources"]:
        return
    for index, settings in enumerate(values["evals"]):
        if settings.endpoint_id is not None:
            what = "names a pool, but no source lists endpoints; set endpoints_path or add a [[source]] table"
            yield Fault(("eval", index, "endpoint_id"), what)
