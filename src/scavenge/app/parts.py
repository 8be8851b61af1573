"""From settings to the things they name: plugins' objects, environments, the endpoints that are fixed.

Every name is looked up and every plugin's keys are read here, before anything starts, and all that is wrong is told at
once. Opens no source and asks no endpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from scavenge.app.guarded_policy import GuardedPolicy, blame
from scavenge.app.options import DEFAULT_POLICY, RunOptions, load
from scavenge.config.endpoint_rows import check_listing
from scavenge.config.plugin_keys import structure_arguments, structure_plugin
from scavenge.config.problems import Where
from scavenge.config.schema import EvalSettings, PolicySettings, RunSettings, SourceSettings, StoreSettings
from scavenge.core.naming import shown, suggestion
from scavenge.core.sessions.table import DEFAULT_POLICY as DEFAULT_SESSION_POLICY
from scavenge.core.sessions.table import DEFAULT_SESSIONS, SESSION_POLICIES, MakeSessions
from scavenge.edge.sources.file import FileSourceConfig, read_endpoints_file
from scavenge.environments.loader import EnvironmentLoader, Staged
from scavenge.environments.references import importable
from scavenge.errors import ConfigError, PluginError, Problem, SourceError
from scavenge.listings import EndpointSpec, Listing
from scavenge.plugin import EndpointSourceType, ImageStoreType
from scavenge.plugins.manager import load_plugins
from scavenge.plugins.registry import Registry
from scavenge.runtime.ports import AdmissionPolicy
from scavenge.runtime.sources import NamedSource
from scavenge.types import Endpoint


@attrs.frozen(eq=False)
class SourcePart:
    """A source that can be opened: its label in messages, its type and its configuration."""

    label: str
    owner: str
    """The plugin that it comes from."""
    kind: EndpointSourceType
    config: Any


@attrs.frozen(eq=False)
class StorePart:
    """An image store that can be opened: its label in messages, its type and its configuration."""

    label: str
    kind: ImageStoreType
    config: Any


@attrs.frozen(eq=False)
class Parts:
    """What a run is made of. ``staged`` has the environments, in the order of the settings' evals."""

    settings: RunSettings
    sources: tuple[SourcePart, ...]
    make_policy: Callable[[], AdmissionPolicy]
    make_sessions: MakeSessions
    staged: tuple[Staged, ...]
    fixed: tuple[Endpoint, ...]
    """The one server of each eval that names one."""
    stores: tuple[StorePart, ...] = ()

    @property
    def hosted(self) -> tuple[str, ...]:
        """The names of the evals whose environment is played in workers."""
        return tuple(one.name for one, staged in zip(self.settings.evals, self.staged, strict=True) if staged.hosted)


@attrs.define
class _Gatherer:
    """Collects problems instead of stopping at the first."""

    problems: list[Problem] = attrs.field(factory=list)

    @contextmanager
    def gathering(self, where: Where) -> Iterator[None]:
        try:
            yield
        except ConfigError as exc:
            self.problems.extend(exc.problems)
        except PluginError as exc:
            self.problems.append(Problem(str(where), str(exc)))


def resolve(path: Path | None, options: RunOptions) -> RunSettings:
    """The settings of a run, whole and checked: what ``--dry-run`` prints.

    Raises :class:`scavenge.errors.ConfigError` and :class:`scavenge.errors.UsageError`.
    """
    settings = load(path, options)
    make_parts(settings)
    return settings


def make_parts(settings: RunSettings, environ: Mapping[str, str] | None = None, *, playing: bool = True) -> Parts:
    """The parts of a run; those of one that is not played have no environments, which need not be installed then.

    Raises :class:`scavenge.errors.ConfigError` with every name that is unknown and every key that is wrong.
    """
    environ = os.environ if environ is None else environ
    gatherer, registry = _Gatherer(), load_plugins(environ)
    sources: list[SourcePart] = []
    policies: list[Callable[[], AdmissionPolicy]] = []
    sessions = DEFAULT_SESSIONS
    staged: list[Staged] = []
    fixed: dict[str, Endpoint] = {}
    stores: list[StorePart] = []
    with importable(settings.base_dir):
        for source in settings.sources:
            with gatherer.gathering(source.where):
                sources.append(_source(source, registry, settings, environ))
        for store in settings.image_stores:
            with gatherer.gathering(store.where):
                stores.append(store_part(store, registry, settings.base_dir))
        with gatherer.gathering(settings.where.at("admission")):
            where = settings.where.at("admission")
            policies.append(policy_maker(settings.admission, registry, where, settings.base_dir))
        with gatherer.gathering(settings.where.at("sessions")):
            sessions = session_maker(settings.sessions, settings.where.at("sessions"), settings.base_dir)
        loader = EnvironmentLoader(registry, structure_plugin, structure_arguments, settings.base_dir)
        for index, one in enumerate(settings.evals):
            where = settings.where.at("eval", index)
            if playing:
                with gatherer.gathering(where):
                    staged.append(_stage(one, where, loader, settings))
            with gatherer.gathering(where):
                if one.endpoint_id is None:
                    fixed[one.pool_id] = _fixed_endpoint(one, where, environ)
    if gatherer.problems:
        raise ConfigError(gatherer.problems)
    return Parts(settings, tuple(sources), policies[0], sessions, tuple(staged), tuple(fixed.values()), tuple(stores))


def _stage(one: EvalSettings, where: Where, loader: EnvironmentLoader, settings: RunSettings) -> Staged:
    enabled = settings.workers.enabled
    return loader.load(one.env_id, one.env_args, where=str(where), in_worker=one.in_worker, workers=enabled)


def named_sources(parts: Parts) -> tuple[NamedSource, ...]:
    """The sources of a run, for whoever opens them: their labels, and the plugins to blame."""
    return tuple(NamedSource(part.label, partial(part.kind.open, part.config), part.owner) for part in parts.sources)


def _source(
    source: SourceSettings, registry: Registry, settings: RunSettings, environ: Mapping[str, str]
) -> SourcePart:
    kind = registry.source_type(source.type, str(source.where.at("type")))
    config: Any = structure_plugin(kind.config, source.keys, source.where, settings.base_dir)
    label = str(source.where)
    if isinstance(config, FileSourceConfig):
        _check_file(config.path, source.where, settings, environ)
        label = str(config.path)
    return SourcePart(label, registry.owner(kind), kind, config)


def store_part(store: StoreSettings, registry: Registry, base_dir: Path) -> StorePart:
    """An image store by its type and keys. Raises :class:`scavenge.errors.ConfigError`."""
    kind = registry.image_store(store.type, str(store.where.at("type")))
    config: Any = structure_plugin(kind.config, store.keys, store.where, base_dir)
    return StorePart(f"store {store.type} {getattr(config, kind.address)}", kind, config)


def _check_file(path: Path, where: Where, settings: RunSettings, environ: Mapping[str, str]) -> None:
    """A file that is there at the start must be right in every row; one that is not there may be waited for."""
    if settings.elastic and not path.exists():
        return
    try:
        checked = check_listing(read_endpoints_file(path), environ)
    except SourceError as exc:
        raise ConfigError([Problem(str(where), str(exc))]) from exc
    if checked.bad:
        raise ConfigError(problem for row in checked.bad for problem in row.problems)


def policy_maker(
    admission: PolicySettings, registry: Registry, where: Where, base_dir: Path
) -> Callable[[], AdmissionPolicy]:
    """What makes the admission policy of an endpoint. Raises :class:`scavenge.errors.ConfigError`."""
    kind = registry.policy(admission.policy or DEFAULT_POLICY, str(where.at("policy")))
    config: Any = structure_plugin(kind.config, admission.keys, where, base_dir)
    owner = registry.owner(kind)

    def make_policy() -> AdmissionPolicy:
        with blame(owner, f"admission policy {kind.name!r}", kind.create):
            return GuardedPolicy(kind.create(config), owner, kind.name)

    return make_policy


def session_maker(sessions: PolicySettings, where: Where, base_dir: Path) -> MakeSessions:
    """What makes the session policy of a pool. Raises :class:`scavenge.errors.ConfigError`."""
    name = sessions.policy or DEFAULT_SESSION_POLICY
    kind = SESSION_POLICIES.get(name)
    if kind is None:
        what = f"unknown session policy {shown(name)}; {suggestion(name, SESSION_POLICIES)}"
        raise ConfigError([Problem(str(where.at("policy")), what)])
    config: Any = structure_plugin(kind.config, sessions.keys, where, base_dir)
    return MakeSessions(name, partial(kind.create, config))


def _fixed_endpoint(one: EvalSettings, where: Where, environ: Mapping[str, str]) -> Endpoint:
    row = EndpointSpec(endpoint_id=one.pool_id, model=one.model, url=one.api_base_url, key=one.api_key_var)
    checked = check_listing(Listing([row], str(where)), environ)
    if checked.bad:
        raise ConfigError(Problem(str(where), problem.what) for bad in checked.bad for problem in bad.problems)
    return checked.endpoints[0]
