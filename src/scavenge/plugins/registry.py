"""What each registered name stands for, and which plugin it comes from.

It decides between plugins that add the same name: neither has it. It must not know how plugins are found.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import attrs

from scavenge.core.naming import listed, shown, suggestion
from scavenge.environments.references import load_scorer
from scavenge.errors import ConfigError, PluginError, Problem
from scavenge.plugin import AdmissionPolicyType, EndpointSourceType, EnvironmentType, ImageStoreType, Scorer
from scavenge.plugins.collect import Collected

T = TypeVar("T", EndpointSourceType, AdmissionPolicyType, EnvironmentType, Scorer, ImageStoreType)


@attrs.frozen
class Plugin:
    """One plugin and what became of it. ``adds`` holds pairs of a kind and a name."""

    name: str
    distribution: str | None = None
    version: str | None = None
    adds: tuple[tuple[str, str], ...] = ()
    error: str | None = None
    disabled: bool = False

    @property
    def label(self) -> str:
        """The plugin as messages call it: its name, and the distribution where that is another."""
        return self.name if self.distribution in (None, self.name) else f"{self.name} ({self.distribution})"


@attrs.frozen
class Clash:
    """A name that several plugins add: it stands for nothing. ``owners`` are their labels, sorted."""

    kind: str
    name: str
    owners: tuple[str, ...]


class _Shelf(Generic[T]):
    """The descriptors of one kind. A name may have several owners; then it stands for nothing."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, list[tuple[T, str]]] = {}

    def put(self, owner: str, items: tuple[T, ...]) -> list[tuple[str, str]]:
        for item in items:
            self._items.setdefault(item.name, []).append((item, owner))
        return [(self.kind, item.name) for item in items]

    def every(self) -> Iterator[tuple[T, str]]:
        return itertools.chain.from_iterable(self._items.values())

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._items))

    def clashes(self) -> Iterator[Clash]:
        for name, found in self._items.items():
            if len(found) > 1:
                yield Clash(self.kind, name, tuple(sorted(owner for _, owner in found)))

    def find(self, name: str, suits: Callable[[T], bool] = lambda _: True) -> tuple[T, str] | None:
        found = [pair for pair in self._items.get(name, []) if suits(pair[0])]
        if len(found) > 1:
            owners = sorted(owner for _, owner in found)
            raise PluginError(
                " and ".join(owners),
                f"each adds the {self.kind} {shown(name)}; turn one off with SCAVENGE_DISABLE_PLUGINS, or remove it",
            )
        return found[0] if found else None


class Registry:
    """Everything that plugins add, by name. ``plugins`` are all that were found, those that failed included."""

    def __init__(self) -> None:
        self.plugins: tuple[Plugin, ...] = ()
        self.unknown_disabled: tuple[str, ...] = ()
        """What the user turned off and no installed plugin is called, as it was written."""
        self._sources: _Shelf[EndpointSourceType] = _Shelf("endpoint source")
        self._policies: _Shelf[AdmissionPolicyType] = _Shelf("admission policy")
        self._environments: _Shelf[EnvironmentType] = _Shelf("environment")
        self._scorers: _Shelf[Scorer] = _Shelf("scorer")
        self._stores: _Shelf[ImageStoreType] = _Shelf("image store")

    def add(self, plugin: Plugin, collected: Collected) -> None:
        """Take in what a plugin adds."""
        adds = [
            *self._sources.put(plugin.label, collected.sources),
            *self._policies.put(plugin.label, collected.policies),
            *self._environments.put(plugin.label, collected.environments),
            *self._scorers.put(plugin.label, collected.scorers),
            *self._stores.put(plugin.label, collected.stores),
        ]
        self.plugins += (attrs.evolve(plugin, adds=tuple(adds)),)

    def add_failure(self, plugin: Plugin) -> None:
        """Keep a plugin that takes no part; its ``error`` says why."""
        self.plugins += (plugin,)

    def source_type(self, name: str, where: str = "source.type") -> EndpointSourceType:
        """The endpoint source of that name.

        Raises :class:`scavenge.errors.ConfigError` at ``where`` for a name that nobody adds,
        :class:`scavenge.errors.PluginError` for one that several do. So do the other look-ups.
        """
        return self._look_up(self._sources, name, where)

    def policy(self, name: str, where: str = "admission.policy") -> AdmissionPolicyType:
        """The admission policy of that name."""
        return self._look_up(self._policies, name, where)

    def environment(self, name: str, where: str = "env_id") -> EnvironmentType:
        """The environment of that name, which may have an owner before it."""
        found = self.find_environment(name)
        return self._look_up(self._environments, name, where) if found is None else found[0]

    def scorer(self, name: str, where: str = "scorer") -> Scorer:
        """The scorer of that name, or the function that ``package.module:function`` refers to."""
        return load_scorer(name, where) if ":" in name else self._look_up(self._scorers, name, where)

    def image_store(self, name: str, where: str = "images.store.type") -> ImageStoreType:
        """The image store of that name."""
        return self._look_up(self._stores, name, where)

    def _look_up(self, shelf: _Shelf[T], name: str, where: str) -> T:
        if (found := shelf.find(name)) is None:
            what = f"unknown {shelf.kind} {shown(name)}; {suggestion(name, shelf.names())}{self.failures()}"
            raise ConfigError([Problem(where, what)])
        return found[0]

    def find_environment(self, name: str) -> tuple[EnvironmentType, str] | None:
        """The environment of that name with the plugin it comes from; ``None`` when nobody adds it.

        ``OWNER/NAME`` is the environment of that whole name, or else the one called ``NAME`` that any owner may stand
        before. Raises :class:`scavenge.errors.PluginError` for one that several plugins add.
        """
        owner, _, bare = name.partition("/")
        found = self._environments.find(name)
        return found if found or not owner else self._environments.find(bare, lambda kind: kind.with_owner)

    def environment_names(self, *, with_owner: bool = False) -> tuple[str, ...]:
        """The names of all environments, or of those alone that any owner may stand before; sorted."""
        names = {kind.name for kind, _ in self._environments.every() if kind.with_owner or not with_owner}
        return tuple(sorted(names))

    def owner(
        self, descriptor: EndpointSourceType | AdmissionPolicyType | EnvironmentType | Scorer | ImageStoreType
    ) -> str:
        """The plugin that a descriptor comes from, as messages call it.

        Raises ``LookupError`` for a descriptor that is not registered.
        """
        for shelf in self._shelves:
            for item, owner in shelf.every():
                if item is descriptor:
                    return owner
        raise LookupError(descriptor.name)

    def describe(self) -> tuple[Plugin, ...]:
        """Every plugin with what it adds or why it takes no part: scavenge's own first, the others by name."""
        return (*self.plugins[:1], *sorted(self.plugins[1:], key=lambda plugin: plugin.label))

    def clashes(self) -> tuple[Clash, ...]:
        """The names that several plugins add."""
        return tuple(clash for shelf in self._shelves for clash in shelf.clashes())

    @property
    def _shelves(
        self,
    ) -> tuple[
        _Shelf[EndpointSourceType],
        _Shelf[AdmissionPolicyType],
        _Shelf[EnvironmentType],
        _Shelf[Scorer],
        _Shelf[ImageStoreType],
    ]:
        return self._sources, self._policies, self._environments, self._scorers, self._stores

    def failures(self) -> str:
        """The plugins that take no part, as the end of a message; empty when there are none."""
        failed = [f"{plugin.label}: {plugin.error}" for plugin in self.plugins if plugin.error is not None]
        return f"; plugins not loaded: {listed(failed, most=5)}" if failed else ""
