"""What is noted of one rollout beside verifiers' own state: what the model's side said, and which rewards raised.

Everything that a rollout starts has its notes at hand by a context variable, so several play at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import attrs

from scavenge import InfrastructureError, ScavengeError
from scavenge_verifiers.failures import chain, is_of_the_network


@attrs.define
class Notes:
    """The notes of one rollout."""

    reply_error: ScavengeError | None = None
    """What the latest error reply of the model's side says."""
    reward_errors: list[str] = attrs.field(factory=list)
    """The reward functions that raised and so count as 0, each with its error."""
    reward_failure: InfrastructureError | None = None
    """A reward function that could not reach what it needs; then there is no reward."""

    def reward_raised(self, name: str, error: Exception) -> None:
        """A reward function raised."""
        text = f"{name}: {chain(error)}"
        self.reward_errors.append(text)
        if is_of_the_network(error):
            self.reward_failure = InfrastructureError(f"reward function {text}")


_NOTES: ContextVar[Notes | None] = ContextVar("scavenge_verifiers_notes", default=None)


@contextmanager
def noting() -> Iterator[Notes]:
    """Keep notes of what happens in the block, and of what it starts."""
    notes = Notes()
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


def notes_at_hand() -> Notes | None:
    """The notes of the rollout that this runs for."""
    return _NOTES.get()
