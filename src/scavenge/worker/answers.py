"""Answers a rollout: what it came to, as the message that says so. Knows no event loop."""

from __future__ import annotations

import attrs

from scavenge.core.failure import checked_result, failure_of
from scavenge.core.frames import FrameTooLong
from scavenge.core.worker_messages import Aborted, FromWorker, Played, PlayFailed
from scavenge.rollouts import ErrorInfo, Failure
from scavenge.worker.link import Link


@attrs.frozen(eq=False)
class Answers:
    """Answers the rollouts of one environment, each once."""

    env_id: str
    environment: object
    link: Link = attrs.field(repr=False)

    def result(self, rollout: int, result: object) -> None:
        """``play`` returned *result*."""
        checked = checked_result(result, self.env_id)
        if isinstance(checked, Failure):
            self.failed(rollout, checked)
        else:
            self._send(rollout, Played(rollout, checked))

    def error(self, rollout: int, error: BaseException) -> None:
        """``play`` raised *error*."""
        self.failed(rollout, failure_of(error, self.environment))

    def failed(self, rollout: int, failure: Failure) -> None:
        """The rollout came to nothing."""
        self._send(rollout, PlayFailed(rollout, failure))

    def aborted(self, rollout: int) -> None:
        """The rollout was cancelled."""
        self.link.send(Aborted(rollout))

    def _send(self, rollout: int, answer: FromWorker) -> None:
        try:
            self.link.send(answer)
        except FrameTooLong as exc:
            self.link.send(PlayFailed(rollout, Failure(ErrorInfo(type(exc).__name__, str(exc)), final=True)))
