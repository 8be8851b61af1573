"""How a fleet is doing, for people and for programs: a table, the lines below it, JSON, and whether it can serve. Pure.

Knows no terminal and no fleet, only its status. Whoever shows a status redacts it whole first (:func:`redacted`): a
text that is cut afterwards cannot leave half a secret standing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import attrs

from scavenge.core.figures import duration, without_numbers
from scavenge.core.health_state import UNANSWERED_WHY, State
from scavenge.core.naming import one_line
from scavenge.core.progress_view import TAKES_WORK, WHY_CHARACTERS
from scavenge.core.summary import Table
from scavenge.status import EndpointStatus, FleetStatus, PoolStatus, SessionsStatus, SourceStatus
from scavenge.types import EndpointId

HEAD = (
    "pool",
    "endpoint",
    "state",
    "in flight",
    "gate",
    "queue",
    "goodput",
    "tokens/s",
    "requests",
    "failures",
    "heard",
    "source",
    "why",
)
SOURCE_CHARACTERS = 24
"""How much of a source's name the table shows, the end of it: it may be a long path. The lines below name it whole."""
WHY_AT_LEAST = 40
"""Characters that a narrow terminal has for the reasons, before it has the columns in :data:`LESS_NEEDED`."""
GATE_CHARACTERS = 16
"""How much of the reason of a gate's last move the table shows: the words may be a plugin's."""
LESS_NEEDED = ("goodput", "queue", "gate", "source", "requests", "failures", "heard", "tokens/s", "pool", "in flight")
UNKNOWN = "–"
NOTHING = {
    "gate": UNKNOWN,
    "queue": UNKNOWN,
    "goodput": UNKNOWN,
    "tokens/s": UNKNOWN,
    "requests": "0",
    "failures": "0",
    "heard": UNKNOWN,
    "source": UNKNOWN,
    "why": "",
}
"""What the cells of a column say where there is nothing to tell; ``in flight`` begins with 0 then."""
GAP_CHARACTERS = 2


def redacted(status: FleetStatus, redact: Callable[[str], str]) -> FleetStatus:
    """*status* with every text in it as *redact* leaves it."""
    shown: FleetStatus = _with_texts(status, redact)
    return shown


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_with_texts(item, change) for item in value)
    if not attrs.has(type(value)):
        return value
    changed = {field.name: _with_texts(getattr(value, field.name), change) for field in attrs.fields(type(value))}
    return attrs.evolve(value, **changed)


# --- what it comes to


def takes_work(endpoint: EndpointStatus) -> bool:
    """Whether an endpoint is given work."""
    return endpoint.state in TAKES_WORK


def can_serve(status: FleetStatus) -> bool:
    """Whether there is a pool, and every pool has an endpoint that takes work."""
    return bool(status.pools) and all(any(map(takes_work, pool.endpoints)) for pool in status.pools)


def is_settled(status: FleetStatus) -> bool:
    """Whether every source has said something, and every endpoint has answered or failed its first probe."""
    heard = all(source.listing_age_s is not None or source.trouble is not None for source in status.sources)
    return heard and not any(_is_unanswered(endpoint) for pool in status.pools for endpoint in pool.endpoints)


def _is_unanswered(endpoint: EndpointStatus) -> bool:
    return endpoint.state == State.PROBING.value and endpoint.why == UNANSWERED_WHY


def news(status: FleetStatus) -> FleetStatus:
    """*status* without its figures and the numbers in its reasons: it differs from the last one when there is news."""
    return attrs.evolve(
        status,
        pools=tuple(
            PoolStatus(pool.endpoint_id, tuple(map(_endpoint_news, pool.endpoints)), 0) for pool in status.pools
        ),
        sources=tuple(map(_source_news, status.sources)),
        network_down_s=_known(status.network_down_s),
    )


def _endpoint_news(endpoint: EndpointStatus) -> EndpointStatus:
    why = without_numbers(endpoint.why)
    return EndpointStatus(endpoint.url, endpoint.state, why, 0, 0, endpoint.max_concurrent, endpoint.source)


def _source_news(source: SourceStatus) -> SourceStatus:
    trouble = None if source.trouble is None else without_numbers(source.trouble)
    return attrs.evolve(source, listing_age_s=_known(source.listing_age_s), trouble=trouble)


def _known(age_s: float | None) -> float | None:
    return None if age_s is None else 0.0


# --- for people


def endpoint_table(status: FleetStatus, most: int | None = None) -> tuple[Table, str]:
    """One row an endpoint, and a line about the rows that are left out.

    Of more than *most* endpoints those that take no work come first, for they are what to look at.
    """
    every = [(pool, endpoint) for pool in status.pools for endpoint in pool.endpoints]
    if most is None or len(every) <= most:
        return Table("endpoints", HEAD, tuple(_row(*one) for one in every)), ""
    ordered = sorted(every, key=lambda one: takes_work(one[1]))
    left_out = ordered[most:]
    working = sum(takes_work(endpoint) for _, endpoint in left_out)
    rows = tuple(_row(*one) for one in ordered[:most])
    return Table("endpoints", HEAD, rows), f"… {len(left_out)} more, of which {working} take work"


def _row(pool: PoolStatus, endpoint: EndpointStatus) -> tuple[str, ...]:
    speed = endpoint.tokens_per_s
    return (
        pool.endpoint_id,
        endpoint.url,
        f"{endpoint.state} {duration(endpoint.state_s)}",
        f"{endpoint.in_flight}/{endpoint.limit}",
        *_gate_cells(endpoint),
        UNKNOWN if speed is None else f"{speed:.1f}",
        str(endpoint.requests),
        str(endpoint.failures),
        UNKNOWN if endpoint.heard_s is None else duration(endpoint.heard_s),
        source_cell(endpoint.source),
        "" if endpoint.state == State.LIVE.value else one_line(endpoint.why, WHY_CHARACTERS),
    )


def _gate_cells(endpoint: EndpointStatus) -> tuple[str, str, str]:
    """Why the gate's limit moved last, with that limit where something else binds; its queue; its tokens per second.

    A gate that has seen no request yet has nothing to tell.
    """
    gate = endpoint.gate
    if gate is None or not (endpoint.in_flight or endpoint.requests):
        return UNKNOWN, UNKNOWN, UNKNOWN
    reason = one_line(gate.reason, GATE_CHARACTERS)
    own_limit = "" if gate.limit == endpoint.limit else str(gate.limit)
    return (
        " ".join(filter(None, (reason, own_limit))) or UNKNOWN,
        UNKNOWN if gate.queue is None else f"{gate.queue:.0f}",
        UNKNOWN if gate.goodput is None else f"{gate.goodput:.0f}",
    )


def source_cell(name: str) -> str:
    """A source's name for a table, the end of a long one."""
    line = one_line(name) or UNKNOWN
    return line if len(line) <= SOURCE_CHARACTERS else "…" + line[1 - SOURCE_CHARACTERS :]


def filled(table: Table) -> Table:
    """*table* without the columns that tell nothing in any row."""
    return _without(
        table,
        [name for column, name in enumerate(table.head) if all(_is_nothing(name, row[column]) for row in table.rows)],
    )


def _is_nothing(name: str, cell: str) -> bool:
    return cell.startswith("0/") if name == "in flight" else cell == NOTHING.get(name)


def narrowed(table: Table, width: int) -> Table:
    """*table* without as many of its less needed columns as keep it from fitting into *width* characters."""
    for name in LESS_NEEDED:
        if _width(table) <= width:
            break
        table = _without(table, (name,))
    return table


def _width(table: Table) -> int:
    """How many characters a table needs: the reasons, which may be cut, no more than :data:`WHY_AT_LEAST`."""
    widths = {
        name: max(len(row[column]) for row in (table.head, *table.rows)) for column, name in enumerate(table.head)
    }
    widths["why"] = min(widths.get("why", 0), WHY_AT_LEAST)
    return sum(widths.values()) + GAP_CHARACTERS * (len(table.head) - 1)


def _without(table: Table, names: Collection[str]) -> Table:
    kept = [column for column, name in enumerate(table.head) if name not in names]
    rows = tuple(tuple(row[column] for column in kept) for row in table.rows)
    return Table(table.title, tuple(table.head[column] for column in kept), rows)


def notes(status: FleetStatus) -> list[str]:
    """The lines below the table: the network where it is down, each pool, each source."""
    return list(_notes(status))


def _notes(status: FleetStatus) -> Iterator[str]:
    if status.network_down_s is not None:
        yield f"this machine has had no network for {duration(status.network_down_s)}: nothing is held against anybody"
    nothing = (
        "no endpoint has this id" if any(source.endpoints for source in status.sources) else "no endpoint is listed"
    )
    for pool in status.pools:
        yield _pool_line(pool, nothing)
        if pool.sessions is not None:
            yield _sessions_line(pool.endpoint_id, pool.sessions)
    yield from map(_source_line, status.sources)


def _pool_line(pool: PoolStatus, nothing: str) -> str:
    working = sum(map(takes_work, pool.endpoints))
    line = f"pool {one_line(pool.endpoint_id)}: "
    line += f"{working} of {len(pool.endpoints)} take work" if pool.endpoints else nothing
    return f"{line}, waiting: {pool.waiting}" if pool.waiting else line


def _sessions_line(endpoint_id: EndpointId, sessions: SessionsStatus) -> str:
    bound = "" if sessions.limit is None else f" of at most {sessions.limit}"
    parts = [f"{sessions.live}{bound} live"]
    if sessions.budget_tokens is not None:
        parts.append(f"contexts {sessions.context_tokens:.0f} of {sessions.budget_tokens:.0f} tokens")
    if sessions.waiting:
        parts.append(f"waiting: {sessions.waiting}")
    if sessions.paused:
        parts.append(f"paused: {sessions.paused}")
    why = ": ".join(filter(None, (one_line(sessions.policy), one_line(sessions.reason, WHY_CHARACTERS))))
    return f"sessions of {one_line(endpoint_id)}: {', '.join(parts)} ({why})"


def _source_line(source: SourceStatus) -> str:
    age_s = source.listing_age_s
    line = f"source {one_line(source.name)}: "
    line += "no listing yet" if age_s is None else f"{source.endpoints} listed {duration(age_s)} ago"
    if source.trouble is not None:
        line += f"; now: {one_line(source.trouble.removeprefix(f'{source.name}: '), WHY_CHARACTERS)}"
    return f"{line}; restarts: {source.restarts}" if source.restarts else line


# --- for programs


def as_json(status: FleetStatus) -> dict[str, object]:
    """The fields of the status and of all in it by their names; numbers with a fraction have 3 digits of it."""
    return {name: _rounded(value) for name, value in attrs.asdict(status).items()}


def _rounded(value: object) -> object:
    match value:
        case float():
            return round(value, 3)
        case dict():
            return {name: _rounded(item) for name, item in value.items()}
        case list() | tuple():
            return [_rounded(item) for item in value]
        case _:
            return value
