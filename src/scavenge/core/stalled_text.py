"""The one line that says of a quiet run what it waits for, taken from its full picture. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from scavenge.core.figures import duration
from scavenge.core.images_view import wait_text as images_text
from scavenge.core.naming import listed, one_line
from scavenge.core.workers_view import wait_text
from scavenge.status import ImagesStatus, LeaseStatus, Picture, PoolPicture, SourceStatus, WorkersStatus

SHOWN_MOST = 3
WHY_CHARACTERS = 160


def stalled_line(quiet_s: float, picture: Picture) -> str:
    """What is known of a run that has been quiet for ``quiet_s``, the numbers first, then the waits that are meant."""
    parts = [_waiting(picture.pools), _leases(picture.pools), *_sessions(picture.pools), _endpoints(picture.pools)]
    parts += [*_workers(picture.workers), *_images(picture.images), *_reasons(picture)]
    return f"nothing has come back for {duration(quiet_s)}: {', '.join(parts)}"


def _waiting(pools: tuple[PoolPicture, ...]) -> str:
    count = sum(pool.status.waiting for pool in pools)
    ages = [one.age_s for pool in pools for one in pool.waiting]
    return f"{count} wait{'s' * (count == 1)} for slots" + (f" (oldest {duration(max(ages))})" if ages else "")


def _leases(pools: tuple[PoolPicture, ...]) -> str:
    count = sum(pool.leases_in_all for pool in pools)
    oldest = max((lease for pool in pools for lease in pool.leases), key=_age_s, default=None)
    shown = "" if oldest is None else f" (oldest {duration(oldest.age_s)}, {oldest.url})"
    return f"{count} lease{'s' * (count != 1)}{shown}"


def _age_s(lease: LeaseStatus) -> float:
    return lease.age_s


def _sessions(pools: tuple[PoolPicture, ...]) -> Iterator[str]:
    if count := sum(pool.places for pool in pools):
        yield f"{count} session{'s' * (count != 1)} under way"


def _endpoints(pools: tuple[PoolPicture, ...]) -> str:
    states = Counter(endpoint.state for pool in pools for endpoint in pool.status.endpoints)
    counts = sorted(states.items(), key=lambda entry: (-entry[1], entry[0]))
    return f"endpoints: {', '.join(f'{count} {state}' for state, count in counts) or 'none'}"


def _workers(workers: tuple[WorkersStatus, ...]) -> Iterator[str]:
    told = [wait_text(status) for status in workers if status.wanted]
    if told:
        more = f"; and {len(told) - SHOWN_MOST} more evals" if len(told) > SHOWN_MOST else ""
        yield f"workers: {'; '.join(told[:SHOWN_MOST])}{more}"


def _images(images: ImagesStatus | None) -> Iterator[str]:
    if images is not None and images.wanted:
        yield f"images: {images_text(images)}"


def _reasons(picture: Picture) -> Iterator[str]:
    """What of it is known already, and told as such."""
    if picture.network_down_s is not None:
        yield f"this machine's network has been lost for {duration(picture.network_down_s)}"
    waits = [_wait(pool) for pool in picture.pools if pool.why]
    troubles = [_trouble(source, source.trouble) for source in picture.sources if source.trouble is not None]
    yield from (listed(told, SHOWN_MOST) for told in (waits, troubles) if told)


def _wait(pool: PoolPicture) -> str:
    why = one_line(pool.why, WHY_CHARACTERS)
    return f"{pool.status.endpoint_id} has been waiting for an endpoint for {duration(pool.stalled_s)}: {why}"


def _trouble(source: SourceStatus, trouble: str) -> str:
    return f"source {source.name}: {one_line(trouble.removeprefix(f'{source.name}: '), WHY_CHARACTERS)}"
