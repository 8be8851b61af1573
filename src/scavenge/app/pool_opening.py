"""From what a program hands over to what is opened as a pool: its sources, its settings and its name.

Settings of a run are taken as the run takes them; a file of endpoints, or a source, has the defaults of the package.
Asks a source only to learn which pool there is. What one said that is open already is not asked for again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import attrs
import trio

from scavenge.app.parts import make_parts, named_sources, policy_maker, session_maker
from scavenge.config.endpoint_rows import check_listing
from scavenge.config.problems import Where
from scavenge.config.schema import PolicySettings, RunSettings
from scavenge.core.sessions.table import DEFAULT_SESSIONS, MakeSessions
from scavenge.edge.sources.file import FileSource
from scavenge.errors import ConfigError, SourceError, UsageError, single_error
from scavenge.listings import Listing, placed
from scavenge.plugins.manager import load_plugins
from scavenge.runtime.fleet import FleetSettings
from scavenge.runtime.ports import AdmissionPolicy, EndpointSource
from scavenge.runtime.sources import NamedSource, check_source, lent
from scavenge.types import Endpoint, EndpointId

SHORTEST_INTERVAL_S = 0.1
"""As short as ``elastic_poll_interval`` may be."""


@attrs.frozen(eq=False)
class Opening:
    """What is opened. ``fixed`` is the pool's one server, where an eval names it, and then there is no source."""

    endpoint_id: EndpointId
    sources: Sequence[NamedSource]
    settings: FleetSettings
    make_policy: Callable[[], AdmissionPolicy]
    fixed: tuple[Endpoint, ...] = ()
    make_sessions: MakeSessions = DEFAULT_SESSIONS

    def changed(
        self,
        elastic: bool,
        poll_interval_s: float | None,
        admission: str | Mapping[str, object] | None,
        sessions: str | Mapping[str, object] | None,
    ) -> Opening:
        """The same with what is given in place of what it has."""
        settings, make_policy = attrs.evolve(self.settings, elastic=elastic), self.make_policy
        make_sessions = self.make_sessions
        if poll_interval_s is not None:
            if not poll_interval_s >= SHORTEST_INTERVAL_S:
                raise UsageError(f"poll_interval: expected seconds ≥ {SHORTEST_INTERVAL_S:g}, got {poll_interval_s!r}")
            settings = attrs.evolve(settings, poll_interval_s=poll_interval_s)
        if admission is not None:
            make_policy = _policy_maker(admission)
        if sessions is not None:
            make_sessions = session_maker(_table(sessions, "sessions"), _where("sessions"), Path.cwd())
        return attrs.evolve(self, settings=settings, make_policy=make_policy, make_sessions=make_sessions)


async def opening_of_settings(settings: RunSettings, endpoint_id: str | None) -> Opening:
    """The pool of a run's settings that is named, or the one that their evals use; without evals, the one listed.

    Raises :class:`ConfigError` and :class:`UsageError`, and what a source raises that has to say which pool there is.
    """
    await trio.lowlevel.checkpoint()
    parts = make_parts(settings)
    if endpoint_id is not None:
        wanted = EndpointId(endpoint_id)
    elif settings.evals:
        wanted = _only({one.pool_id for one in settings.evals}, "the evals use")
    else:
        wanted = _listed_in([await _asked(source) for source in named_sources(parts)])
    fixed = tuple(endpoint for endpoint in parts.fixed if endpoint.endpoint_id == wanted)
    return Opening(
        wanted,
        () if fixed else named_sources(parts),
        FleetSettings(settings.elastic, settings.elastic_poll_interval, settings.health),
        parts.make_policy,
        fixed,
        parts.make_sessions,
    )


async def _asked(named: NamedSource) -> Listing:
    """What a source lists in an opening of its own: what it lists may be gone with it, but for the pool's name."""
    with single_error():
        async with named.open() as source:
            check_source(source)
            listing = await _listing_of(source)
    return placed(listing, named.name)


async def opening_of_source(source: str | os.PathLike[str] | EndpointSource, endpoint_id: str | None) -> Opening:
    """The pool of a source, or of an endpoints file or its folder, that is named, or the one that is listed.

    Raises :class:`ConfigError` and :class:`UsageError`, and what the source raises when it has to say which pool there
    is.
    """
    name, opened = _named(source)
    if endpoint_id is not None:
        return Opening(EndpointId(endpoint_id), [lent(name, opened)], FleetSettings(), _policy_maker({}))
    heard = _Heard(opened)
    wanted = _listed_in([placed(await heard.hear(), name)])
    return Opening(wanted, [lent(name, heard, opened)], FleetSettings(), _policy_maker({}))


def _named(source: str | os.PathLike[str] | EndpointSource) -> tuple[str, EndpointSource]:
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        file = path / "endpoints.toml" if path.is_dir() else path
        return str(file), FileSource(file)
    return type(source).__name__, source


def _policy_maker(admission: str | Mapping[str, object]) -> Callable[[], AdmissionPolicy]:
    return policy_maker(_table(admission, "admission"), load_plugins(), _where("admission"), Path.cwd())


def _table(given: str | Mapping[str, object], argument: str) -> PolicySettings:
    """The table that an argument stands for: a policy's name, or a table with its keys."""
    keys = {"policy": given} if isinstance(given, str) else dict(given)
    name = keys.pop("policy", None)
    if name is not None and not isinstance(name, str):
        raise UsageError(f"{argument}: policy must be a name, got {name!r}")
    return PolicySettings(name, keys)


def _where(argument: str) -> Where:
    return Where("open_pool", (argument,))


@attrs.define(eq=False)
class _Heard:
    """A source that was asked once before it is used: it says that again first, since one that polls long has no more.

    Invariant: each of the source's listings is handed on by :meth:`list_endpoints` once.
    """

    _source: EndpointSource
    _kept: Listing | None = None

    @property
    def long_poll(self) -> bool:
        """As the source is."""
        return bool(getattr(self._source, "long_poll", False))

    async def hear(self) -> Listing:
        """Ask the source, and keep what it says."""
        with single_error():
            self._kept = await _listing_of(self._source)
        return self._kept

    async def list_endpoints(self) -> Listing:
        """What was kept, else what the source says now."""
        if self._kept is None:
            return await self._source.list_endpoints()
        await trio.lowlevel.checkpoint()
        listing, self._kept = self._kept, None
        return listing


async def _listing_of(source: EndpointSource) -> Listing:
    listing: object = await source.list_endpoints()
    if not isinstance(listing, Listing):
        raise SourceError(f"list_endpoints() returned {type(listing).__name__}, not a Listing")
    return listing


def _listed_in(listings: Sequence[Listing]) -> EndpointId:
    """The one pool in some listings."""
    checked = [check_listing(listing, os.environ) for listing in listings]
    if problems := [problem for one in checked for row in one.bad for problem in row.problems]:
        raise ConfigError(problems)
    return _only({endpoint.endpoint_id for one in checked for endpoint in one.endpoints}, "listed are")


def _only(pools: Collection[EndpointId], told: str) -> EndpointId:
    if len(pools) != 1:
        raise UsageError(f"name the pool with endpoint_id: {told} {', '.join(sorted(pools)) or 'none'}")
    return next(iter(pools))
