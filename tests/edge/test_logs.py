from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator

import attrs
import pytest

from scavenge.edge.console import Screen
from scavenge.edge.logs import FIRST_FAILURE_CHARACTERS, LogEvents, set_up_logs
from scavenge.events import (
    AttemptEnded,
    AttemptStarted,
    CallEnded,
    EndpointChanged,
    EndpointDraining,
    EndpointJoined,
    EndpointLeft,
    EvalGaveUp,
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
    RolloutStarted,
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
from scavenge.rollouts import ErrorInfo, RolloutKey, RolloutRecord
from scavenge.status import ImagesStatus, Picture, WorkersStatus
from scavenge.types import Attempt, EndpointId, Url

GLM, URL = EndpointId("glm"), Url("http://a/v1")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is logged; the process's logging is as it was afterwards."""
    root, names = logging.getLogger(), ("scavenge", "httpx", "httpcore")
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in (None, *names)}
    yield io.StringIO()
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=False)


def set_up(stream: io.StringIO, level: str | None = None, **environ: str) -> None:
    set_up_logs(Screen.on(stream, environ), level)


def workers(state: str, ready: int = 0, starting: int = 0, why: str = "") -> WorkersStatus:
    return WorkersStatus("math", state, ready, starting, wanted=2, playing=3, parked=1, why=why)


def failed(message: str = "boom", example: str = "7") -> RolloutFinished:
    attempts = (Attempt(URL, "rejected", 0.0, 1.0), Attempt(Url("http://b/v1"), "rejected", 0.0, 1.0))
    record = RolloutRecord(RolloutKey("math", example, 1), "chat", error=ErrorInfo("ValueError", message))
    return RolloutFinished(record if example == "no attempt" else attempts_of(record, attempts))


def attempts_of(record: RolloutRecord, attempts: tuple[Attempt, ...]) -> RolloutRecord:
    return RolloutRecord(record.key, record.env_id, error=record.error, attempts=attempts)


def test_by_default_libraries_are_heard_from_warnings_on_and_scavenge_from_info_on(stream):
    set_up(stream)
    for name in ("scavenge", "some.library"):
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            logging.getLogger(name).log(level, "%s from %s", logging.getLevelName(level), name)
    said = [line.split(" ", 3)[3] for line in stream.getvalue().splitlines()]
    assert said == ["INFO from scavenge", "WARNING from scavenge", "WARNING from some.library"]


@pytest.mark.parametrize("level", [None, "debug", "info", "warning", "error"])
def test_libraries_that_tell_each_request_are_never_heard_below_warnings(stream, level):
    set_up(stream, level)
    for name in ("httpx", "httpcore", "httpcore.connection"):
        logging.getLogger(name).info("GET http://a/v1?token=x")
        logging.getLogger(name).debug("headers")
    assert stream.getvalue() == ""


def test_a_level_holds_for_everything(stream):
    set_up(stream, "error")
    logging.getLogger("scavenge").warning("one")
    logging.getLogger("some.library").error("two")
    assert stream.getvalue().endswith("ERROR two\n")
    assert "one" not in stream.getvalue()


def test_setting_up_twice_says_each_line_once(stream):
    set_up(stream)
    set_up(stream)
    logging.getLogger("scavenge").info("one")
    assert stream.getvalue().count("one") == 1


def test_a_traceback_is_redacted_too(stream):
    set_up(stream, GLM_KEY="opal-zebra")
    try:
        raise ValueError("key opal-zebra")
    except ValueError:
        logging.getLogger("x").exception("Authorization: Bearer %s", "abc12345")
    assert "Traceback" in stream.getvalue()
    assert "opal-zebra" not in stream.getvalue()
    assert "abc12345" not in stream.getvalue()


def test_a_log_call_with_wrong_arguments_is_told_and_raises_nothing(stream):
    set_up(stream)
    logging.getLogger("x").warning("%d", "opal")
    assert "a log call in" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


def test_python_warnings_become_log_lines(stream):
    set_up(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert "WARNING" in stream.getvalue()
    assert "DeprecationWarning: old" in stream.getvalue()


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (RunStarted("runs/x", ("math",)), "INFO results go to runs/x"),
        (RunStarted("runs/x", ("math",), 3), "INFO results go to runs/x; 3 results are there already"),
        (RunStopping("SIGINT"), "WARNING stopping: SIGINT"),
        (EndpointJoined(GLM, URL), "INFO glm: http://a/v1 joined"),
        (EndpointChanged(GLM, URL, "key"), "INFO glm: http://a/v1 has new settings: key"),
        (EndpointDraining(GLM, URL, "it says so"), "INFO glm: http://a/v1 takes no new work: it says so"),
        (EndpointLeft(GLM, URL), "INFO glm: http://a/v1 left"),
        (LeasesRevoked(GLM, URL, 1, "dead"), "INFO glm: http://a/v1 is lost, 1 request goes elsewhere: dead"),
        (LeasesRevoked(GLM, URL, 2, "dead"), "INFO glm: http://a/v1 is lost, 2 requests go elsewhere: dead"),
        (
            HealthChanged(GLM, URL, "live", "ejected", "refused\nhard"),
            "WARNING glm: http://a/v1 is ejected: refused hard",
        ),
        (HealthChanged(GLM, URL, "live", "misconfigured", "401"), "WARNING glm: http://a/v1 is misconfigured: 401"),
        (HealthChanged(GLM, URL, "probing", "live", "answers"), "INFO glm: http://a/v1 is live: answers"),
        (HealthChanged(GLM, URL, "paused", "live", "the pause has passed"), ""),
        (HealthChanged(GLM, URL, "live", "paused", "busy"), ""),
        (SourceChanged("e.toml", ok=False, message="no such file"), "WARNING source e.toml: no such file"),
        (SourceChanged("e.toml", ok=False, message="e.toml: is a folder"), "WARNING source e.toml: is a folder"),
        (SourceChanged("e.toml", ok=True, message="readable again"), "INFO source e.toml: readable again"),
        (PoolWaiting(GLM, 0.0, "none listed"), "WARNING glm is waiting for an endpoint: none listed"),
        (PoolWaiting(GLM, 0.0, ""), "INFO glm goes on"),
        (EvalGaveUp("math", "600 s"), "WARNING eval 'math' has given up: 600 s"),
        (Warned("line 7 is broken"), "WARNING line 7 is broken"),
        (
            NetworkLost(3, "no route\nto host"),
            "WARNING this machine's network is lost: no word from any of 3 hosts: no route to host",
        ),
        (NetworkLost(1, "unreachable"), "WARNING this machine's network is lost: no word from 1 host: unreachable"),
        (NetworkBack(75.2), "INFO this machine's network is back after 1:15"),
        (
            Stalled(300.0, Picture((), (), None, (), 0)),
            (
                "WARNING nothing has come back for 5:00: 0 wait for slots, 0 leases, endpoints: none; "
                "the full picture is in events.jsonl"
            ),
        ),
        (WorkerStarting("math", 3), ""),
        (WorkerReady("math", 3, 4711, 2.25), "INFO eval 'math': worker 3 is ready after 2.2 s (process 4711)"),
        (
            WorkerEnded("math", 3, "died serving", "SIGSEGV", 4, "logs/math-worker-0.log"),
            (
                "WARNING eval 'math': worker 3 died serving (SIGSEGV), 4 rollouts are played elsewhere; "
                "see logs/math-worker-0.log"
            ),
        ),
        (
            WorkerEnded("math", 3, "not spawned", "no\nmemory"),
            "WARNING eval 'math': worker 3 cannot be started (no memory)",
        ),
        (WorkerEnded("math", 3, "retired", ""), "INFO eval 'math': worker 3 is retired"),
        (WorkersChanged(workers("starting", starting=1)), "INFO eval 'math': no worker is ready, one is loading"),
        (WorkersChanged(workers("ready", 1, 1)), "INFO eval 'math': 1 of 2 workers ready, 1 starting"),
        (
            WorkersChanged(workers("degraded", 1, why="died loading: exit code 1")),
            "WARNING eval 'math': 1 of 2 workers ready: died loading: exit code 1",
        ),
        (WorkersChanged(workers("empty", why="out of\nmemory")), "WARNING eval 'math': no worker: out of memory"),
        (ImageFetching("docker.io/library/python:3", "docker.io"), ""),
        (ImageReady("docker.io/library/python:3", "docker.io", 2.0, 5), ""),
        (ImageReleased("docker.io/library/python:3"), ""),
        (
            ImageTrouble("docker.io/library/python:3", "quay.io", "broken", "cut\noff", 2.0),
            "INFO image python:3: quay.io: broken (cut off), again in 0:02",
        ),
        (
            ImageTrouble("docker.io/library/python:3", "quay.io", "denied", "401"),
            "WARNING image python:3: quay.io: denied (401), not asked for it again",
        ),
        (
            ImageFailed("docker.io/library/python:3", "quay.io: denied"),
            "WARNING image python:3 is not to be had, samples that need it are errors: quay.io: denied",
        ),
        (ImagesChanged(ImagesStatus("delivering", 5, 1, 0, 2)), ""),
        (
            ImagesChanged(ImagesStatus("silent", 5, 1, 0, 2, why="the container engine does not answer: refused")),
            "WARNING the container engine does not answer: refused",
        ),
        (AttemptStarted(GLM, URL), ""),
        (AttemptEnded(GLM, Attempt(URL, "lost", 0.0, 1.0, message="reset"), 0), ""),
        (RolloutStarted("math"), ""),
        (RolloutFinished(RolloutRecord(RolloutKey("math", "1", 0), "chat")), ""),
    ],
)
def test_an_event_that_matters_is_one_line(stream, event, line):
    set_up(stream)
    LogEvents()(event)
    said = stream.getvalue()
    assert said[20:].rstrip("\n") == line
    assert said.count("\n") == bool(line)


def test_the_state_of_workers_is_told_when_it_changes_and_not_with_each_count(stream):
    set_up(stream)
    observer = LogEvents()
    for status in (workers("starting", 0, 1), workers("ready", 1, 1), workers("ready", 2), workers("empty", why="x")):
        observer(WorkersChanged(status))
    observer(WorkersChanged(attrs.evolve(workers("ready", 1), eval="code")))
    observer(WorkersChanged(attrs.evolve(workers("closed"), eval="code", wanted=0)))
    assert [line[20:] for line in stream.getvalue().splitlines()] == [
        "INFO eval 'math': no worker is ready, one is loading",
        "INFO eval 'math': 1 of 2 workers ready, 1 starting",
        "WARNING eval 'math': no worker: x",
        "INFO eval 'code': 1 of 2 workers ready",
    ]


def test_a_worker_that_starts_is_told_at_debug(stream):
    set_up(stream, "debug")
    LogEvents()(WorkerStarting("math", 3))
    assert stream.getvalue()[20:] == "DEBUG eval 'math': worker 3 is starting\n"


def test_images_that_fail_alike_are_told_a_few_times_and_each_at_debug(stream):
    events = [ImageFailed(f"docker.io/a/b:{number}", "docker.io: denied") for number in range(20)]
    set_up(stream)
    observer = LogEvents()
    for event in events:
        observer(event)
    assert len(stream.getvalue().splitlines()) == 5
    set_up(stream, "debug")
    observer = LogEvents()
    for event in events:
        observer(event)
    assert len(stream.getvalue().splitlines()) == 25


def test_failed_attempts_are_told_at_debug(stream):
    set_up(stream, "debug")
    observer = LogEvents()
    observer(AttemptEnded(GLM, Attempt(URL, "lost", 0.0, 1.0, message="reset"), 0))
    observer(AttemptEnded(GLM, Attempt(URL, "ok", 0.0, 1.0), 5))
    assert stream.getvalue()[20:] == "DEBUG glm: http://a/v1: lost: reset\n"


def test_waits_are_left_to_the_progress_where_it_tells_of_them(stream):
    set_up(stream)
    LogEvents(tell_waits=False)(PoolWaiting(GLM, 0.0, "none listed"))
    assert stream.getvalue() == ""


def test_the_first_failure_is_told_whole_and_later_ones_are_only_counted(stream):
    set_up(stream)
    observer = LogEvents()
    observer(failed("first line\nsecond line"))
    observer(failed("other"))
    assert observer.failures == 2
    assert stream.getvalue()[20:] == (
        "WARNING first failure (later ones are counted): eval 'math', example '7', rollout 1: "
        "ValueError: first line\nsecond line\n  last endpoint: http://b/v1\n"
    )


def test_later_failures_are_told_at_debug(stream):
    set_up(stream, "debug")
    observer = LogEvents()
    observer(failed(example="no attempt"))
    assert "endpoint" not in stream.getvalue()
    observer(failed("two\nlines"))
    assert (
        stream.getvalue()
        .splitlines()[-1]
        .endswith("DEBUG failure 2: eval 'math', example '7', rollout 1: ValueError: two lines")
    )


def test_an_endless_message_is_cut(stream):
    set_up(stream)
    LogEvents()(failed("x" * 100_000))
    assert len(stream.getvalue()) < FIRST_FAILURE_CHARACTERS + 200
    assert "the whole text is in results.jsonl" in stream.getvalue()


def test_calls_are_told_at_debug_and_of_those_that_are_given_up_one_a_minute_as_a_warning(stream, caplog):
    set_up(stream, "debug")
    root = logging.getLogger()
    root.addHandler(caplog.handler)
    times = iter([0.0, 1.0, 2.0, 61.5])
    observer = LogEvents(clock=lambda: next(times))
    for outcome in ("ok", "lost", "lost", "stalled"):
        observer(CallEnded(GLM, outcome, True, 2.0, 3))
    told = [(record.levelname, record.getMessage().rpartition(": ")[2]) for record in caplog.records]
    assert told == [
        ("DEBUG", "a call was answered after 2.0s, sent 3 times"),
        ("WARNING", "lost"),
        ("DEBUG", "lost"),
        ("WARNING", "stalled (1 more since this was last told)"),
    ]
