"""Log lines: where they go, at what level, and which events are worth one. Redaction is the screen's.

Level of a line: ``warning`` for what somebody may have to look at, ``info`` for endpoints and workers that come and go,
``debug`` for the rest, the images that come and go among them: the progress counts these. Each state is told when it
changes, not while it lasts.

Invariant: the first failed rollout of a run is told whole; the later ones, which may be thousands, only at ``debug``.
Of images that fail alike a few are told, and of calls that are given up one a minute, and the others at ``debug``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import attrs

from scavenge.core.call_lines import CallLines
from scavenge.core.figures import duration
from scavenge.core.image_lines import ImageEvent, ImageLines
from scavenge.core.naming import one_line
from scavenge.core.stalled_text import stalled_line
from scavenge.core.workers_view import FAILURES, ended_text, state_text
from scavenge.edge.console import Screen
from scavenge.events import (
    AttemptEnded,
    CallEnded,
    EndpointChanged,
    EndpointDraining,
    EndpointJoined,
    EndpointLeft,
    EvalGaveUp,
    Event,
    HealthChanged,
    ImageFailed,
    ImageFetching,
    ImageReady,
    ImageReleased,
    ImagesChanged,
    ImageTrouble,
    LeasesRevoked,
    NetworkBack,
    NetworkLost,
    PoolWaiting,
    RolloutFinished,
    RunStarted,
    RunStopping,
    SourceChanged,
    Stalled,
    Warned,
    WorkerEnded,
    WorkerReady,
    WorkersChanged,
    WorkerStarting,
)
from scavenge.rollouts import RolloutRecord
from scavenge.status import WorkersStatus

LEVELS = ("debug", "info", "warning", "error")
LEVEL_NUMBERS = {level: logging.getLevelNamesMapping()[level.upper()] for level in LEVELS}
TALKATIVE = ("httpx", "httpcore")
"""Libraries whose ``info`` lines name every request with its whole URL."""
FIRST_FAILURE_CHARACTERS = 4000

_log = logging.getLogger("scavenge")


class ScreenHandler(logging.Handler):
    """Says log records on a screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        """Say a record; one that cannot be put into words is told as that."""
        try:
            text = self.format(record)
        except Exception as exc:  # arguments that do not fit the text, or whose __str__ fails
            text = f"a log call in {record.pathname}:{record.lineno} is wrong: {type(exc).__name__}"
        self._screen.say(text)


def set_up_logs(screen: Screen, level: str | None = None) -> None:
    """Send the log lines of the whole process to a screen, and nowhere else.

    *level* is one of :data:`LEVELS` and holds for everything; without it, libraries are heard from ``warning`` on and
    scavenge from ``info`` on.
    """
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.addHandler(ScreenHandler(screen))
    root.setLevel((level or "warning").upper())
    _log.setLevel((level or "info").upper())
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    logging.captureWarnings(capture=True)


@attrs.define(eq=False)
class LogEvents:
    """An observer that turns events into log lines. ``tell_waits`` is false where the progress tells of them."""

    tell_waits: bool = True
    failures: int = 0
    clock: Callable[[], float] = time.monotonic
    _workers: dict[str, str] = attrs.field(factory=dict, init=False)
    """The state of each evaluation's workers that was told last."""
    _images: ImageLines = attrs.field(factory=ImageLines, init=False)
    _calls: CallLines = attrs.field(factory=CallLines, init=False)

    def __call__(self, event: Event) -> None:
        """Write the line of an event that is worth one."""
        match event:
            case RolloutFinished():
                self._on_finished(event.record)
            case PoolWaiting() if self.tell_waits:
                _log.log(*_waiting(event))
            case RunStarted() | RunStopping() | EvalGaveUp() | SourceChanged() | Warned():
                _log.log(*_run_line(event))
            case NetworkLost() | NetworkBack() | Stalled():
                _log.log(*_outage_line(event))
            case AttemptEnded() | CallEnded():
                self._on_asked(event)
            case HealthChanged() | EndpointJoined() | EndpointChanged() | EndpointDraining() | EndpointLeft():
                _log.log(_endpoint_level(event), "%s: %s %s", event.endpoint_id, event.url, _endpoint_text(event))
            case LeasesRevoked():
                _log.info("%s: %s %s", event.endpoint_id, event.url, _endpoint_text(event))
            case WorkerStarting() | WorkerReady() | WorkerEnded() | WorkersChanged():
                self._on_worker(event)
            case ImageFetching() | ImageReady() | ImageTrouble() | ImageFailed() | ImageReleased() | ImagesChanged():
                self._on_images(event)
            case _:
                pass

    def _on_worker(self, event: WorkerStarting | WorkerReady | WorkerEnded | WorkersChanged) -> None:
        """Tell of a worker, or of another state of all of an evaluation's, as long as it wants any."""
        if not isinstance(event, WorkersChanged):
            _log.log(*_worker_line(event))
        elif event.status.wanted and self._workers.get(event.status.eval) != event.status.state:
            self._workers[event.status.eval] = event.status.state
            _log.log(*_workers_line(event.status))

    def _on_images(self, event: ImageEvent) -> None:
        if (line := self._images.line(event)) is not None:
            _log.log(LEVEL_NUMBERS[line.level], "%s", line.text)

    def _on_asked(self, event: AttemptEnded | CallEnded) -> None:
        if isinstance(event, AttemptEnded):
            _tell_failed(event)
        else:
            line = self._calls.line(event, self.clock())
            _log.log(LEVEL_NUMBERS[line.level], "%s", line.text)

    def _on_finished(self, record: RolloutRecord) -> None:
        if record.error is None:
            return
        self.failures += 1
        if self.failures == 1:
            _log.warning("%s", first_failure(record))
        else:
            _log.debug("failure %d: %s", self.failures, one_line(_failure(record)))


def _tell_failed(event: AttemptEnded) -> None:
    attempt = event.attempt
    if attempt.outcome != "ok" and _log.isEnabledFor(logging.DEBUG):
        said = one_line(attempt.message or "")
        _log.debug("%s: %s: %s: %s", event.endpoint_id, attempt.endpoint, attempt.outcome, said)


def first_failure(record: RolloutRecord) -> str:
    """All there is to say about a failed rollout."""
    place = f"\n  last endpoint: {record.attempts[-1].endpoint}" if record.attempts else ""
    shown = _failure(record)
    if len(shown) > FIRST_FAILURE_CHARACTERS:
        shown = shown[:FIRST_FAILURE_CHARACTERS] + " … (the whole text is in results.jsonl)"
    return f"first failure (later ones are counted): {shown}{place}"


def _failure(record: RolloutRecord) -> str:
    key = record.key
    error = "" if record.error is None else f"{record.error.type}: {record.error.message}"
    return f"eval {key.eval!r}, example {key.example_id!r}, rollout {key.rollout}: {error}"


def _waiting(event: PoolWaiting) -> tuple[int, str, str, str]:
    if event.why:
        return logging.WARNING, "%s is waiting for an endpoint: %s", event.endpoint_id, one_line(event.why)
    return logging.INFO, "%s goes on%s", event.endpoint_id, ""


def _run_line(event: RunStarted | RunStopping | EvalGaveUp | SourceChanged | Warned) -> tuple[int, str, str, str]:
    match event:
        case RunStarted():
            kept = f"; {event.kept} results are there already" if event.kept else ""
            return logging.INFO, "results go to %s%s", event.run_dir, kept
        case RunStopping():
            return logging.WARNING, "%s: %s", "stopping", event.why
        case Warned():
            return logging.WARNING, "%s%s", "", event.message
        case EvalGaveUp():
            return logging.WARNING, "eval %r has given up: %s", event.eval, one_line(event.why)
        case _:
            level = logging.INFO if event.ok else logging.WARNING
            return level, "source %s: %s", event.source, one_line(event.message.removeprefix(f"{event.source}: "))


def _outage_line(event: NetworkLost | NetworkBack | Stalled) -> tuple[int, str, str]:
    match event:
        case NetworkLost():
            hosts = f"no word from {'any of ' * (event.hosts != 1)}{event.hosts} host{'s' * (event.hosts != 1)}"
            return logging.WARNING, "this machine's network is lost: %s", f"{hosts}: {one_line(event.why)}"
        case NetworkBack():
            return logging.INFO, "this machine's network is back after %s", duration(event.lost_s)
        case _:
            line = stalled_line(event.quiet_s, event.picture)
            return logging.WARNING, "%s; the full picture is in events.jsonl", line


def _worker_line(event: WorkerStarting | WorkerReady | WorkerEnded) -> tuple[int, str, str, str]:
    match event:
        case WorkerStarting():
            return logging.DEBUG, "eval %r: %s", event.eval, f"worker {event.worker} is starting"
        case WorkerReady():
            said = f"worker {event.worker} is ready after {event.loading_s:.1f} s (process {event.pid})"
            return logging.INFO, "eval %r: %s", event.eval, said
        case _:
            level = logging.WARNING if event.how in FAILURES else logging.INFO
            return level, "eval %r: %s", event.eval, ended_text(event)


def _workers_line(status: WorkersStatus) -> tuple[int, str, str, str]:
    level = logging.WARNING if status.state in ("degraded", "empty") else logging.INFO
    return level, "eval %r: %s", status.eval, state_text(status)


def _endpoint_level(event: HealthChanged | EndpointJoined | EndpointChanged | EndpointDraining | EndpointLeft) -> int:
    if not isinstance(event, HealthChanged):
        return logging.INFO
    if event.new in ("ejected", "misconfigured"):
        return logging.WARNING
    return logging.INFO if event.new == "live" and event.old != "paused" else logging.DEBUG


def _endpoint_text(
    event: HealthChanged | EndpointJoined | EndpointChanged | EndpointDraining | EndpointLeft | LeasesRevoked,
) -> str:
    match event:
        case HealthChanged():
            return f"is {event.new}: {one_line(event.why)}"
        case EndpointJoined():
            return "joined"
        case EndpointChanged():
            return f"has new settings: {event.what}"
        case EndpointDraining():
            return f"takes no new work: {event.why}"
        case EndpointLeft():
            return "left"
        case _:
            plural = "s go" if event.leases != 1 else " goes"
            return f"is lost, {event.leases} request{plural} elsewhere: {one_line(event.why)}"
