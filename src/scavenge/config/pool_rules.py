"""What the rows of one pool owe each other: one model, caps in all or in none, and no URL twice.

What a pool is now decides; a pool that is new is what its rows that are right by themselves say, the first of them for
the model. Rows that are wrong already are compared too, so that their errors are told together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from scavenge.config.problems import Fault
from scavenge.core.naming import listed, shown
from scavenge.listings import PoolMode
from scavenge.types import EndpointId, Url


@attrs.frozen
class Row:
    """One row as far as it could be read: the values that are right, and the faults so far."""

    index: int
    values: Mapping[str, Any]
    faults: list[Fault]
    used: Mapping[str, str] = attrs.field(factory=dict)
    """The key that the row uses for a value: its name or its alias."""
    incomplete: bool = False
    """Whether it lacks what its source does not know of this server."""

    def fault(self, key: str, what: str) -> Fault:
        """A fault of the value that *key* names, at the key that the row uses."""
        return Fault((self.used.get(key, key),), what)

    @property
    def capped(self) -> bool:
        return self.values.get("max_concurrent") is not None

    @property
    def cap_unknown(self) -> bool:
        """Whether the row sets a cap that is wrong, or is no table at all."""
        return not self.values or any(fault.path[:1] == ("max_concurrent",) for fault in self.faults)


def check_pools(rows: Sequence[Row], present: Mapping[EndpointId, PoolMode]) -> None:
    """Add a fault to each row that does not fit its pool."""
    pools: dict[EndpointId, list[Row]] = {}
    for row in rows:
        if (endpoint_id := row.values.get("endpoint_id")) is not None:
            pools.setdefault(endpoint_id, []).append(row)
    for endpoint_id, pool in pools.items():
        mode = present.get(endpoint_id)
        _add(_other_models(endpoint_id, pool, mode))
        _add(_repeated(pool))
        _add(_other_caps(endpoint_id, pool, mode))


def _add(found: Iterator[tuple[Row, Fault]]) -> None:
    """Note the faults of one rule: a row that has one has no say in the next rule."""
    for row, fault in list(found):
        row.faults.append(fault)


def _other_models(endpoint_id: EndpointId, pool: Sequence[Row], mode: PoolMode | None) -> Iterator[tuple[Row, Fault]]:
    named = [row for row in pool if "model" in row.values]
    first = next((row for row in named if not row.faults), named[0] if named else None)
    if first is None:
        return
    model = first.values["model"] if mode is None else mode.model
    for row in named:
        if row.values["model"] != model:
            what = f"pool {shown(endpoint_id)} has the model {shown(model)}, got {shown(row.values['model'])}"
            yield row, row.fault("model", f"{what}; give the endpoints of another model another endpoint_id")


def _other_caps(endpoint_id: EndpointId, pool: Sequence[Row], mode: PoolMode | None) -> Iterator[tuple[Row, Fault]]:
    known = [row for row in pool if not row.cap_unknown]
    good = [row for row in known if not row.faults] or known
    capped = any(row.capped for row in good) if mode is None or mode.capped is None else mode.capped
    lacking = listed(f"endpoint[{row.index}]" for row in known if not row.capped)
    for row in known:
        if row.capped and not capped:
            rows = f" (it is missing in {lacking})" if lacking else ""
            what = f"pool {shown(endpoint_id)} has no caps{rows}; in a pool every row sets it or none does"
            yield row, row.fault("max_concurrent", what)
        elif capped and not row.capped:
            what = f"missing; in pool {shown(endpoint_id)} every row sets it or none does: it is missing in {lacking}"
            yield row, row.fault("max_concurrent", what)


def _repeated(pool: Sequence[Row]) -> Iterator[tuple[Row, Fault]]:
    first: dict[Url, int] = {}
    for row in pool:
        if (url := row.values.get("url")) is None:
            continue
        if (earlier := first.setdefault(url, row.index)) != row.index:
            yield row, row.fault("url", f"the same URL as endpoint[{earlier}] of this pool; list each server once")
