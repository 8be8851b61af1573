"""Every exception of scavenge and the exit code it stands for. Imports nothing of ours.

What may go wrong with one request is an :data:`scavenge.types.Outcome`, a value; an exception says that somebody's
call, file, plugin or run cannot go on. The data is in attributes, the sentence in ``__str__``: lower case, no full
stop, naming the thing and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import attrs


@attrs.frozen
class Problem:
    """One thing that is wrong in what the user wrote: *where* (``eval.toml: eval[1].max_retries``) and *what*."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class ScavengeError(Exception):
    """The base of every error that scavenge raises on purpose."""

    exit_code: int = 1


class ConfigError(ScavengeError):
    """A file or an option is wrong; ``problems`` has all that is wrong, not only the first."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class UsageError(ScavengeError):
    """scavenge was called in a way that cannot work."""

    exit_code = 2


class PluginError(ScavengeError):
    """A plugin failed; ``plugin`` names it."""

    exit_code = 2

    def __init__(self, plugin: str, message: str) -> None:
        self.plugin = plugin
        super().__init__(plugin, message)

    def __str__(self) -> str:
        return f"plugin {self.plugin}: {self.args[1]}"


class SourceError(ScavengeError):
    """An endpoint source cannot say which endpoints there are; the last listing stands."""


class InfrastructureError(ScavengeError):
    """A rollout failed through no fault of the model: its result is missing, not wrong."""


class ImageMissing(InfrastructureError):
    """A container image turned out not to be on this machine when it was used.

    An environment raises it from ``play``; scavenge then has the image delivered, and plays the rollout again.

    versionadded: 0.1
    """

    def __init__(self, image: str) -> None:
        super().__init__(f"container image {image} is not there")
        self.image = image


class ImageUnavailable(InfrastructureError):
    """No source gives the container image that a sample needs; the text tells what each of them said."""


class EngineError(InfrastructureError):
    """The container engine cannot do what it was asked, or does not answer. ``silent``: it did not answer at all."""

    def __init__(self, text: str, *, silent: bool = False) -> None:
        super().__init__(text)
        self.silent = silent


class StoreError(InfrastructureError):
    """A place with image archives cannot say or do what it was asked. What a store raises is told by its text.

    With ``retry_after_s`` it is left alone for that time: it has too much to do, and says so.

    versionadded: 0.1
    """

    def __init__(self, text: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class EnvironmentBroken(ScavengeError):
    """An environment cannot be made or opened, or its dataset cannot be read on; ``eval`` names the evaluation.

    *place* ends the message: where in the environment's code it happened. *cause* is ``None`` where *what* says all.
    """

    def __init__(self, eval_name: str, what: str, cause: BaseException | None = None, place: str = "") -> None:
        self.eval = eval_name
        super().__init__(eval_name, what, cause, place)

    def __str__(self) -> str:
        _, what, cause, place = self.args
        said = "" if cause is None else f": {type(cause).__name__}: {cause}".removesuffix(": ")
        return f"eval {self.eval!r}: {what}{said}{place}"


class PoisonRequest(ScavengeError):
    """A request was lost more often than ``max_lost`` allows: it is likely to be what kills the servers."""


class PoisonRollout(ScavengeError):
    """A rollout whose worker died each time it was played, at last alone: it is likely to be what kills the workers."""


class NoWorkersError(ScavengeError):
    """No worker became ready for a rollout within ``request_deadline``."""


class CannotSpawn(ScavengeError):
    """A worker process cannot be started; the message says why, most often that the machine has no room for it."""


class UnknownSession(ScavengeError):
    """A request names a session that is not open: its rollout is over, or there never was one."""


class UnknownModel(ScavengeError):
    """A request names a model that no pool has; the message names those that are there."""


class LeaseRevoked(ScavengeError):
    """The endpoint of a lease was lost while the lease was held; take another lease and start again."""


class NoEndpointsError(ScavengeError):
    """No usable endpoint within ``stall_timeout``; a run can be resumed, a request sent again."""

    exit_code = 4


class Stopping(ScavengeError):
    """A gateway that is about to end takes no more requests."""


class CircuitBroken(ScavengeError):
    """Too many samples in a row failed for good; the run can be resumed."""

    exit_code = 3


class Interrupted(ScavengeError):
    """A signal ended the run; the run can be resumed. ``exit_code`` is 128 and the signal's number (POSIX shells)."""

    def __init__(self, signal_name: str, signal_number: int) -> None:
        super().__init__(signal_name, signal_number)
        self.exit_code = 128 + signal_number

    def __str__(self) -> str:
        return f"ended by {self.args[0]}"


class ResultsError(ScavengeError):
    """The run folder cannot be read or written; ``path`` names the file."""

    def __init__(self, path: object, message: str) -> None:
        self.path = path
        super().__init__(path, message)

    def __str__(self) -> str:
        return f"{self.path}: {self.args[1]}"


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside nested exception groups, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def exit_code_of(error: BaseException) -> int:
    """The exit status an error stands for: a bug of ours is 70, several errors count as the gravest."""
    found = list(leaves(error))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in found):
        return 130
    codes = [leaf.exit_code for leaf in found if isinstance(leaf, ScavengeError)]
    return max(codes) if len(codes) == len(found) else 70


@contextmanager
def single_error() -> Iterator[None]:
    """Let an error that is alone in a nursery's exception group out bare, so that callers need no ``except*``.

    Cancellation passes through; several errors stay a group.
    """
    lone: BaseException | None = None
    try:
        yield
    except BaseExceptionGroup as group:
        found = [leaf for leaf in leaves(group) if isinstance(leaf, Exception)]
        if len(found) != 1 or any(not isinstance(leaf, Exception) for leaf in leaves(group)):
            raise
        lone = found[0]
    if lone is not None:
        raise lone from lone.__cause__  # the group it came in says nothing more
