"""What an environment gave or raised, as far as it is of the right kind, and as a failure where it is not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from scavenge.core.codeplace import error_text, raised_at, raised_line
from scavenge.errors import PoisonRequest, leaves
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
    return Failure(ErrorInfo(type(lone).__name__, said, counts=not too_long, misrouted=misrouted), final)


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


def checked_rows(rows: Iterable[object]) -> Iterator[Example]:
    """What ``examples`` yields, one after the other. Raises ``TypeError`` for what is no example."""
    for row in rows:
        if not isinstance(row, Example):
            raise TypeError(f"examples() yields {type(row).__name__}, not scavenge.Example")
        yield row
