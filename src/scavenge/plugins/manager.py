"""Finds plugins and knows what they add. Nothing is loaded when this is imported; each call loads afresh.

It decides which plugins take part and what a name stands for. It must not know what a descriptor is used for.

Invariants: a plugin takes part as a whole or not at all; one that fails is kept with its error and harms nobody who
does not ask for what it would have added; the order in which plugins are found does not matter, since a name that two
of them add stands for nothing.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterable, Mapping
from functools import partial

import attrs

from scavenge.core.codeplace import raised_line
from scavenge.errors import PluginError
from scavenge.plugins.builtin import BuiltinPlugin
from scavenge.plugins.collect import collect
from scavenge.plugins.registry import Plugin, Registry

GROUP = "scavenge"
DISABLE_VARIABLE = "SCAVENGE_DISABLE_PLUGINS"


@attrs.frozen
class _Disabled:
    """Which plugins the user turned off."""

    every: bool = False
    names: Mapping[str, str] = attrs.field(factory=dict)
    """Names in normal form, each with how the user writes it."""

    @classmethod
    def from_text(cls, text: str) -> _Disabled:
        names = {_normal(name): name.strip() for name in text.split(",") if name.strip()}
        return cls(every=names.keys() == {"1"}, names=names)

    def covers(self, plugin: Plugin) -> bool:
        return self.every or not self.names.keys().isdisjoint(_names_of(plugin))

    def beyond(self, plugins: Iterable[Plugin]) -> tuple[str, ...]:
        """The names that fit none of these plugins."""
        known = {name for plugin in plugins for name in _names_of(plugin)}
        return () if self.every else tuple(text for name, text in self.names.items() if name not in known)


def _names_of(plugin: Plugin) -> set[str]:
    return {_normal(plugin.name), _normal(plugin.distribution or "")}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def load_plugins(
    environ: Mapping[str, str] | None = None,
    *,
    entry_points: Iterable[importlib.metadata.EntryPoint] | None = None,
    plugins: Mapping[str, object] | None = None,
) -> Registry:
    """Load scavenge's own plugin, the given ``plugins`` (name to module or object), and those that are installed.

    ``SCAVENGE_DISABLE_PLUGINS`` in ``environ`` (the process's own by default) turns installed ones off: ``1`` all of
    them, else a list of names of plugins or distributions with commas between.

    Raises nothing that a plugin raises: what fails is in :attr:`Registry.plugins` with its error.
    """
    environ = os.environ if environ is None else environ
    registry = Registry()
    builtin = BuiltinPlugin(find_scorer=partial(registry.scorer, where="scorer"))
    registry.add(Plugin("scavenge", "scavenge", _own_version()), collect("scavenge", builtin))
    for name, plugin in (plugins or {}).items():
        _add(registry, Plugin(name), plugin)
    found = importlib.metadata.entry_points(group=GROUP) if entry_points is None else entry_points
    disabled = _Disabled.from_text(environ.get(DISABLE_VARIABLE, ""))
    ordered = sorted(found, key=lambda entry_point: (entry_point.name, entry_point.value))
    for entry_point in ordered:
        _load_one(registry, entry_point, disabled)
    registry.unknown_disabled = disabled.beyond(map(_unloaded, ordered))
    return registry


def _own_version() -> str | None:
    try:
        return importlib.metadata.version("scavenge")
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return None


def _unloaded(entry_point: importlib.metadata.EntryPoint) -> Plugin:
    if (distribution := entry_point.dist) is None:
        return Plugin(entry_point.name)
    return Plugin(entry_point.name, distribution.name, distribution.version)


def _load_one(registry: Registry, entry_point: importlib.metadata.EntryPoint, disabled: _Disabled) -> None:
    plugin = _unloaded(entry_point)
    if disabled.covers(plugin):
        registry.add_failure(attrs.evolve(plugin, error=f"turned off by {DISABLE_VARIABLE}", disabled=True))
        return
    try:
        loaded = entry_point.load()
    except (Exception, SystemExit) as exc:
        registry.add_failure(attrs.evolve(plugin, error=f"cannot be imported: {raised_line(exc, entry_point.module)}"))
        return
    _add(registry, plugin, loaded)


def _add(registry: Registry, plugin: Plugin, loaded: object) -> None:
    try:
        registry.add(plugin, collect(plugin.label, loaded))
    except PluginError as exc:
        registry.add_failure(attrs.evolve(plugin, error=str(exc.args[1])))
