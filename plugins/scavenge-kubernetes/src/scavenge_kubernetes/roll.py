"""Which servers get a row, and which row. Pure.

A server that has never been ready gets none. One that was, and is not any more, is as Kubernetes treats it behind a
Service: no new work goes there, what runs there goes on; so its row drains. One that no object speaks of is gone.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from scavenge.plugin import EndpointSpec, EndpointTemplate
from scavenge_kubernetes.servers import Server


@attrs.define
class Roll:
    """Makes rows of servers, and remembers which of them have been ready.

    Invariant: ``_served`` holds servers of the latest :meth:`rows` only.
    """

    template: EndpointTemplate
    _served: frozenset[str] = frozenset()

    def rows(self, servers: Iterable[Server]) -> list[EndpointSpec]:
        """The rows of all the servers that there are now, in an order that does not depend on theirs."""
        present = _merged(servers)
        served = {one.identity for one in present if one.ready or one.identity in self._served}
        self._served = frozenset(served)
        return [self._row(one) for one in present if one.identity in served]

    def _row(self, server: Server) -> EndpointSpec:
        draining = server.leaving or not server.ready
        return self.template.row(server.facts, draining=draining, drain_deadline=server.gone_at)


def _merged(servers: Iterable[Server]) -> list[Server]:
    """One server an identity, though several slices may speak of it: for each family of addresses, and while it moves.

    Leaving is for good, so the slice that says so is the newer one.
    """
    groups: dict[str, list[Server]] = {}
    for server in servers:
        groups.setdefault(server.identity, []).append(server)
    return sorted(
        (
            attrs.evolve(
                min(group, key=_place),
                ready=any(one.ready for one in group),
                leaving=any(one.leaving for one in group),
            )
            for group in groups.values()
        ),
        key=_place,
    )


def _place(server: Server) -> tuple[str, str, bool, str, str]:
    names = (str(server.facts.get("namespace")), str(server.facts.get("name")))
    return (*names, server.family == 6, str(server.facts.get("address")), server.identity)
