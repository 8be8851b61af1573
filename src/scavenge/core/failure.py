"""What an environment gave or raised, as far as it is of the right kind, and as a failure where it is not. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from scavenge.core.codeplace import error_text, raised_at, raised_line
from scavenge.core.images.reference import BadReference, canonical
from scavenge.core.naming import shown
from scavenge.errors import ImageMissing, PoisonRequest, leaves
from scavenge.rollouts import ErrorInfo, Example, Failure, Rollout
from scavenge.types import Json, Misrouted, Rejected, RequestFailed

FOREIGN = (Exception, SystemExit)
"""What the code of an environment may raise without ending the run: some libraries call ``sys.exit``."""
OF_THE_MODEL = (RequestFailed, PoisonRequest)
"""Errors of the model's side: ``rollout_retries`` is for those of the environment."""


def failure_of(exc: BaseException, environment: object) -> Failure:
    """What an exception says; one that is alone in its groups stands for them."""
    final = isinstance(exc, OF_THE_MODEL)
    found = list(leaves(exc))
    if len(found) > 1:
        said = "; ".join(raised_line(leaf, environment) for leaf in found)
        return Failure(ErrorInfo(type(exc).__name__, said), final)
    lone = found[0]
    outcome = lone.outcome if isinstance(lone, RequestFailed) else None
    too_long = isinstance(outcome, Rejected) and outcome.context_length
    text, place = error_text(lone), raised_at(lone, environment)
    said = f"{text}{place}" if text else place.lstrip()
    misrouted = isinstance(outcome, Misrouted)
    missing_image = lone.image if isinstance(lone, ImageMissing) else ""
    error = ErrorInfo(type(lone).__name__, said, counts=not too_long, misrouted=misrouted)
    return Failure(error, final, missing_image)


def checked_result(returned: object, env_id: str) -> Rollout | Failure:
    """What ``play`` returned, if it is a rollout."""
    if isinstance(returned, Rollout):
        return returned
    said = f"play() of {env_id!r} returned {type(returned).__name__}, not a scavenge.Rollout"
    return Failure(ErrorInfo("TypeError", said))


def checked_identity(told: object) -> Json:
    """What ``identity`` returned. Raises ``TypeError`` for what has no keys and values."""
    if not isinstance(told, Mapping):
        raise TypeError(f"identity() returned {type(told).__name__}, not a dict")
    return dict(told)


def checked_rows(rows: Iterable[object], environment: object) -> Iterator[Example]:
    """What ``examples`` yields, one after the other, each with the images that *environment* says it needs.

    Raises ``TypeError`` for what is no example. Images that cannot be told, or are no references, are that row's error.
    """
    images_of = getattr(environment, "images", None)
    for row in rows:
        if not isinstance(row, Example):
            raise TypeError(f"examples() yields {type(row).__name__}, not scavenge.Example")
        yield row if row.error is not None else _with_images(row, images_of, environment)


def _with_images(row: Example, images_of: Callable[[Example], object] | None, environment: object) -> Example:
    try:
        named = images_of(row) if images_of is not None else ()
        if isinstance(named, str) or not isinstance(named, Iterable):
            return _without_images(row, f"images() returned {shown(named)}, not a list of image references")
        images = tuple(dict.fromkeys(canonical(one) for one in (*row.images, *named)))
    except BadReference as exc:
        return _without_images(row, f"its images: {exc}")
    except FOREIGN as exc:
        return _without_images(row, f"images() failed: {raised_line(exc, environment)}")
    return attrs.evolve(row, images=images) if images else row


def _without_images(row: Example, error: str) -> Example:
    return attrs.evolve(row, images=(), error=error)
