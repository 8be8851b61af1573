"""Lines of an event log, as the report reads them."""

from __future__ import annotations

from scavenge.core.records import iso_time
from scavenge.core.report.contents import Read, Report, make_report
from scavenge.core.report.history import History

T0 = 1_893_499_200.0
A, B = "http://a/v1", "http://b/v1"
WHOLE = Read()


def event(name: str, at: float = 0.0, **keys: object) -> dict[str, object]:
    return {"time": iso_time(T0 + at), "event": name, **keys}


def began(at: float = 0.0, kept: int = 0) -> dict[str, object]:
    return event("RunStarted", at, run_dir="runs/x", evals=["e"], kept=kept)


def attempt(
    at: float, url: str = A, outcome: str = "ok", seconds: float = 2.0, tokens: int = 100, pool: str = "p"
) -> dict[str, object]:
    done = {"endpoint": url, "outcome": outcome, "started_time": T0 + at - seconds, "duration_s": seconds}
    return event("AttemptEnded", at, endpoint_id=pool, attempt=done, tokens=tokens)


def finished(at: float, name: str = "e", error: object = None, total: float = 3.0) -> dict[str, object]:
    timing = {"queued_s": 0.5, "model_s": 2.0, "total_s": total}
    return event("RolloutFinished", at, eval=name, example_id="1", rollout=0, error=error, timing=timing)


def of(name: str, at: float, url: str = A, pool: str = "p", **keys: object) -> dict[str, object]:
    """An event of an endpoint."""
    return event(name, at, endpoint_id=pool, url=url, **keys)


def joined(at: float, url: str = A, pool: str = "p") -> dict[str, object]:
    return of("EndpointJoined", at, url, pool, source="s")


def limit(at: float, new: int, url: str = A, pool: str = "p", reason: str = "gain") -> dict[str, object]:
    return of("LimitMoved", at, url, pool, old=None, new=new, reason=reason, in_flight=1)


def health(at: float, new: str, url: str = A, why: str = "answered") -> dict[str, object]:
    return of("HealthChanged", at, url, old="probing", new=new, why=why)


def sessions(
    at: float, live: int, limit: int | None = None, budget: float | None = None, pool: str = "p"
) -> dict[str, object]:
    return event("SessionsMoved", at, endpoint_id=pool, live=live, reason="start", limit=limit, budget_tokens=budget)


def history(*lines: dict[str, object]) -> History:
    found = History()
    for line in lines:
        found.observe(line)
    return found


def report(*lines: dict[str, object], read: Read = WHOLE, summary: dict[str, object] | None = None) -> Report:
    return make_report("run", history(*lines), read, summary)
