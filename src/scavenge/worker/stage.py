"""An environment that is made, and what every backend needs to play it. Knows no event loop."""

from __future__ import annotations

import traceback

import attrs

from scavenge.core.worker_messages import Ready, ToWorker
from scavenge.errors import ScavengeError
from scavenge.runtime.ports import Environment
from scavenge.worker.answers import Answers
from scavenge.worker.link import Link, note
from scavenge.worker.loading import broken
from scavenge.worker.rows import RowsThread

CLOSE_WITHIN_S = 2.0
"""How long an environment may take to close, as in the run's own process."""
TURN_EVERY_S = 1.0
"""How often an event loop shows that it turns."""
DONE, BROKEN = 0, 1
"""Exit statuses."""


def print_traceback(error: BaseException) -> None:
    """Put the traceback into the log; what scavenge raises on purpose, for a reason that is no error, has none."""
    if not isinstance(error, ScavengeError) or error.__cause__ is not None:
        traceback.print_exception(error)


@attrs.frozen(eq=False)
class Stage:
    """One environment, not open yet. ``facts`` is what is told once it is; ``where`` is its table in the file."""

    environment: Environment
    facts: Ready
    link: Link
    answers: Answers
    where: str

    def opened(self) -> RowsThread:
        """Tell that the environment is ready; its rows are read from now on."""
        rows = RowsThread(self.environment, self.link)
        self.link.send(self.facts)
        return rows

    def not_opened(self, error: BaseException) -> int:
        """Tell that it cannot be opened; the exit status that follows from it."""
        print_traceback(error)
        self.link.listen(_leave_alone)  # the event loop, which would take what comes, ends now
        self.link.send(broken(error, self.environment, "cannot be opened", f"{self.where}.env_args."))
        return BROKEN

    def close_failed(self, error: BaseException) -> None:
        """Note in the log that ``close`` failed: the results are there, so it harms none of them."""
        print_traceback(error)
        note("close() failed")


def _leave_alone(message: ToWorker) -> None:
    """Whatever the run says to a worker that ends anyway."""
