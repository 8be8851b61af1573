"""Which of a fleet's pools a call names, and the wait for one that may still be listed.

Knows no sessions and no slots. What it waits for no pool can tell of, so it does that itself.

Invariant: a name that some pool has is found at once; one that none has is refused as soon as all that are there have
told their models' names, and waited for until then, for ``timeout_s`` seconds at most.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from scavenge.calls import ModelCard
from scavenge.core.calling import model_names
from scavenge.core.naming import listed, shown, suggestion
from scavenge.errors import NoEndpointsError, UnknownModel
from scavenge.events import EndpointChanged, EndpointJoined, Event, Observer, Warned
from scavenge.runtime.fleet import Fleet
from scavenge.runtime.pool import Pool
from scavenge.types import EndpointId

TELL_AFTER_S = 2.0
"""A shorter wait is not worth telling."""
TELL_AGAIN_AFTER_S = 60.0
"""How soon another wait is told."""


@attrs.frozen(eq=False)
class _Seeking:
    """A call that waits for a pool with a name."""

    name: str
    since: float


@attrs.define(eq=False)
class PoolFinder:
    """Finds pools by name. ``timeout_s``: 0 waits for ever."""

    fleet: Fleet
    timeout_s: float
    emit: Observer = attrs.field(repr=False)
    _listed: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set and replaced when an endpoint was listed or has another model."""
    _seeking: dict[_Seeking, None] = attrs.field(factory=dict, init=False)
    """The calls that wait, the longest here first."""
    _told_at: float = attrs.field(default=float("-inf"), init=False)

    def hear(self, event: Event) -> None:
        """Hear of an event: it may be what calls wait for."""
        if isinstance(event, EndpointJoined | EndpointChanged):
            self._listed.set()
            self._listed = trio.Event()

    def models(self) -> Sequence[ModelCard]:
        """The names by which calls find a pool."""
        names = model_names((pool.endpoint_id, pool.model) for pool in self.fleet.pools.values())
        return tuple(ModelCard(name, self.fleet.pools[endpoint_id].model) for name, endpoint_id in names.items())

    async def find(self, name: str, came_at: float) -> Pool:
        """The pool that a call names; one that may still be listed is waited for.

        Raises :class:`UnknownModel`, and :class:`NoEndpointsError` when that takes too long.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        pool = self._present(name)
        return pool if pool is not None else await self._listed_later(name, came_at)

    async def _listed_later(self, name: str, came_at: float) -> Pool:
        seeking = _Seeking(name, trio.current_time())
        self._seeking[seeking] = None
        try:
            with trio.move_on_at(came_at + (self.timeout_s or float("inf"))):
                while True:
                    await self._listed.wait()
                    if (pool := self._present(name)) is not None:
                        return pool
        finally:
            del self._seeking[seeking]
        raise NoEndpointsError(f"no endpoint is listed for the model {shown(name)}; {self._there()}")

    def _present(self, name: str) -> Pool | None:
        """The pool with that name. ``None``: not all pools have told their model's name yet, or there is none at all.

        Raises :class:`UnknownModel`.
        """
        pools = self.fleet.pools
        if (pool := pools.get(EndpointId(name))) is not None:
            return pool
        found = [pool for pool in pools.values() if name in ("", pool.model)]
        if len(found) == 1:
            return found[0]
        if len(found) > 1:
            which = listed(sorted(shown(pool.endpoint_id) for pool in found))
            what = f"model {shown(name)} is that of several pools" if name else "the request names no model"
            raise UnknownModel(f"{what}: name one of the pools: {which}")
        if pools and all(pool.model for pool in pools.values()):
            names = [card.id for card in self.models()]
            raise UnknownModel(f"unknown model {shown(name)}; {suggestion(name, names)}")
        return None

    def _there(self) -> str:
        return f"pools: {listed(sorted(map(shown, self.fleet.pools))) or 'none'}"

    def look(self, now: float) -> None:
        """Tell of calls that wait, once in a while."""
        first = next(iter(self._seeking), None)
        if first is None or now - first.since < TELL_AFTER_S or now - self._told_at < TELL_AGAIN_AFTER_S:
            return
        self._told_at = now
        what = f"a request waits for the model {shown(first.name)}, which no endpoint is listed for"
        more = len(self._seeking) - 1
        others = f", and {more} more wait{'s' * (more == 1)} like that" if more else ""
        self.emit(Warned(f"{what}{others}; {self._there()}"))
