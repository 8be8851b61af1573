"""events.jsonl: complete when it can be, silent when it cannot, never in the way."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from scavenge.edge import event_log
from scavenge.edge.event_log import EventLog
from scavenge.events import (
    AttemptEnded,
    CallEnded,
    EndpointJoined,
    HealthChanged,
    ImagesChanged,
    LimitMoved,
    RolloutFinished,
    RunStarted,
    SessionsMoved,
    SourceChanged,
    Stalled,
    WorkerEnded,
    WorkerReady,
    WorkersChanged,
    WorkerStarting,
)
from scavenge.rollouts import ErrorInfo, RolloutKey, RolloutRecord
from scavenge.signals import GateView
from scavenge.status import (
    DeliveryStatus,
    EndpointStatus,
    ImagesStatus,
    LeaseStatus,
    Picture,
    PoolPicture,
    PoolStatus,
    SessionsStatus,
    SourceStatus,
    TaskStatus,
    WaitingStatus,
    WorkersStatus,
)
from scavenge.types import Attempt, EndpointId, Url, Usage

POOL, URL = EndpointId("glm"), Url("http://a/v1")
JOINED = EndpointJoined(POOL, URL)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.jsonl"


def make(path, **options):
    warnings: list[str] = []
    return EventLog(path, warnings.append, clock=lambda: 1_700_000_000.5, **options), warnings


def lines(path):
    return [json.loads(text) for text in path.read_bytes().splitlines()]


def test_an_event_is_a_line_with_its_time_its_name_and_its_fields(path):
    log, warnings = make(path)
    log(JOINED)
    log(AttemptEnded(POOL, Attempt(URL, "lost", 1.0, 2.0, message="reset"), 0))
    log.close()
    first, second = lines(path)
    assert first == {
        "time": "2023-11-14T22:13:20.500000Z", "event": "EndpointJoined", "endpoint_id": "glm", "url": URL,
        "source": "",
    }  # fmt: skip
    assert second["attempt"]["outcome"] == "lost"
    assert warnings == []


def test_a_call_of_a_foreign_client_is_a_line_too(path):
    log, _ = make(path)
    log(CallEnded(POOL, "ok", True, 2.5, 1, 0.25, Usage(10, 3)))
    log.close()
    (line,) = lines(path)
    assert line == {
        "time": "2023-11-14T22:13:20.500000Z", "event": "CallEnded", "endpoint_id": "glm", "outcome": "ok",
        "streamed": True, "duration_s": 2.5, "attempts": 1, "first_byte_s": 0.25,
        "usage": {"prompt_tokens": 10, "completion_tokens": 3, "cached_tokens": None},
    }  # fmt: skip


def test_a_finished_rollout_is_logged_without_its_texts(path):
    record = RolloutRecord(
        RolloutKey("e", "a", 2), "chat", 0.5, prompt="SECRET PROMPT", completion="LONG REPLY", answer="42",
        info={"x": "INFO"}, usage=Usage(1, 2), error=ErrorInfo("Boom", "why"),
    )  # fmt: skip
    log, _ = make(path)
    log(RolloutFinished(record))
    log.close()
    [line] = lines(path)
    assert (line["example_id"], line["rollout"], line["reward"], line["error"]["type"]) == ("a", 2, 0.5, "Boom")
    assert not any(word in path.read_text() for word in ("SECRET", "LONG", "INFO"))


def test_secrets_are_taken_out_of_every_text(path):
    log, _ = make(path, redact=lambda text: text.replace("sk-123", "***"))
    log(SourceChanged("file sk-123", False, "401 for sk-123"))
    log(AttemptEnded(POOL, Attempt(URL, "misrouted", 1.0, 2.0, message="bad key sk-123"), 0))
    log(LimitMoved(POOL, URL, 8, 16, "gain sk-123", 7))
    log(SessionsMoved(POOL, 3, "hits sk-123", limit=9))
    log.close()
    assert "sk-123" not in path.read_text()
    assert path.read_text().count("***") == 5


def picture(words: str) -> Picture:
    """A picture with these words wherever words of others may be."""
    pool = PoolPicture(
        PoolStatus(
            POOL,
            (EndpointStatus(URL, "ejected", words, 1, 8, source=words, gate=GateView(8, words)),),
            1,
            SessionsStatus(words, 1, 0, reason=words),
        ),
        leases=(LeaseStatus(URL, 1, 20.0),),
        leases_in_all=1,
        waiting=(WaitingStatus(1, 2.0, (URL,)),),
        places=0,
        places_waiting=0,
        stalled_s=30.0,
        why=words,
    )
    tasks = (TaskStatus(words, ("scavenge/app.py:7 run", "trio/_timeouts.py:9 sleep")),)
    workers = (WorkersStatus("math", "degraded", 1, 0, 2, 9, 3, words),)
    return Picture((pool,), (SourceStatus(words, 2, None, words),), None, tasks, 1, workers)


def test_the_picture_of_a_quiet_run_is_written_whole(path):
    log, _ = make(path)
    log(Stalled(300.0, picture("none listed")))
    log.close()
    [line] = lines(path)
    assert line["quiet_s"] == 300.0
    shown = line["picture"]
    (pool,) = shown["pools"]
    assert pool["status"]["endpoints"][0]["why"] == "none listed"
    assert pool["leases"] == [{"url": URL, "slots": 1, "age_s": 20.0, "revoked": False}]
    assert pool["waiting"] == [{"slots": 1, "age_s": 2.0, "avoid": [URL]}]
    assert shown["sources"][0]["trouble"] == "none listed"
    assert shown["tasks"] == [{"name": "none listed", "stack": ["scavenge/app.py:7 run", "trio/_timeouts.py:9 sleep"]}]
    assert (shown["tasks_in_all"], shown["network_down_s"]) == (1, None)
    assert shown["workers"] == [
        {"eval": "math", "state": "degraded", "ready": 1, "starting": 0, "wanted": 2, "playing": 9, "parked": 3,
         "why": "none listed"}
    ]  # fmt: skip


def test_secrets_are_taken_out_of_every_text_of_a_picture(path):
    log, _ = make(path, redact=lambda text: text.replace("sk-123", "***"))
    log(Stalled(300.0, picture("token sk-123")))
    log.close()
    assert "sk-123" not in path.read_text()
    assert path.read_text().count("***") == 10


def test_the_lives_of_workers_are_written_and_secrets_taken_out_of_the_reasons(path):
    log, _ = make(path, redact=lambda text: text.replace("sk-123", "***"))
    log(WorkerStarting("math", 1))
    log(WorkerReady("math", 1, 4711, 2.5))
    log(WorkerEnded("math", 1, "died serving", "exit code 1 sk-123", 4, "logs/math-worker-0.log"))
    log(WorkersChanged(WorkersStatus("math", "empty", 0, 0, 1, 0, 4, "sk-123")))
    log.close()
    told = [{key: value for key, value in line.items() if key != "time"} for line in lines(path)]
    assert told == [
        {"event": "WorkerStarting", "eval": "math", "worker": 1},
        {"event": "WorkerReady", "eval": "math", "worker": 1, "pid": 4711, "loading_s": 2.5},
        {"event": "WorkerEnded", "eval": "math", "worker": 1, "how": "died serving", "why": "exit code 1 ***",
         "displaced": 4, "log": "logs/math-worker-0.log"},
        {"event": "WorkersChanged", "status": {
            "eval": "math", "state": "empty", "ready": 0, "starting": 0, "wanted": 1, "playing": 0, "parked": 4,
            "why": "***"}},
    ]  # fmt: skip


def test_a_limit_that_moves_is_written_with_what_the_gate_saw(path):
    log, _ = make(path)
    log(LimitMoved(POOL, URL, 8, 16, "gain", 7, goodput=812.5, queue=float("nan"), elasticity=0.4))
    log(SessionsMoved(POOL, 3, "hits fell", budget_tokens=60_000.0))
    log.close()
    gate, sessions = ({key: line[key] for key in line if key not in ("time", "endpoint_id")} for line in lines(path))
    assert gate == {
        "event": "LimitMoved", "url": URL, "old": 8, "new": 16, "reason": "gain", "in_flight": 7, "goodput": 812.5,
        "queue": None, "elasticity": 0.4,
    }  # fmt: skip
    assert sessions == {
        "event": "SessionsMoved", "live": 3, "reason": "hits fell", "limit": None, "budget_tokens": 60_000.0,
    }  # fmt: skip


def test_a_list_of_names_stays_a_list(path):
    log, _ = make(path)
    log(RunStarted("runs/x", ("math", "code")))
    log.close()
    assert lines(path)[0]["evals"] == ["math", "code"]


def test_nothing_is_written_and_no_file_made_where_nothing_happened(path):
    log, _ = make(path)
    log.flush()
    log.close()
    log.close()
    assert not path.exists()


def test_what_does_not_fit_in_memory_is_dropped_and_counted(path, monkeypatch):
    monkeypatch.setattr(event_log, "LINES_MAX", 3)
    log, warnings = make(path)
    for _ in range(5):
        log(JOINED)
    log.flush()
    log(JOINED)
    log.close()
    assert [line["event"] for line in lines(path)] == ["EndpointJoined"] * 3 + ["EventsDropped", "EndpointJoined"]
    assert lines(path)[3]["count"] == 2
    assert warnings == []


def test_a_disk_that_cannot_be_written_is_warned_of_once_and_what_was_lost_is_said_when_it_can(path):
    path.mkdir()
    log, warnings = make(path)
    for _ in range(2):
        log(JOINED)
        log.flush()
    assert len(warnings) == 1
    assert warnings[0].startswith(f"events are not recorded: {path}: cannot be opened")
    path.rmdir()
    log(HealthChanged(POOL, URL, "live", "ejected", "reset"))
    log.close()
    assert [line["event"] for line in lines(path)] == ["HealthChanged", "EventsDropped"]
    assert lines(path)[1]["count"] == 2


def test_a_line_that_a_kill_cut_short_does_not_spoil_the_next(path):
    path.write_bytes(b'{"time": "20')
    log, _ = make(path)
    log(JOINED)
    log.close()
    torn, line = path.read_bytes().splitlines()
    assert torn == b'{"time": "20'
    assert json.loads(line)["event"] == "EndpointJoined"


async def test_the_service_writes_as_time_passes_and_once_more_when_it_is_cancelled(path, monkeypatch):
    monkeypatch.setattr(event_log, "FLUSH_EVERY_S", 0.01)
    log, _ = make(path)
    async with trio.open_nursery() as nursery:
        await nursery.start(log.run_event_log)
        log(JOINED)
        while not path.exists() or not path.read_bytes():  # noqa: ASYNC110  # a file tells nobody that it was written
            await trio.sleep(0.005)
        log(HealthChanged(POOL, URL, "live", "ejected", "reset"))
        nursery.cancel_scope.cancel()
    assert [line["event"] for line in lines(path)] == ["EndpointJoined", "HealthChanged"]
    log.close()


def test_cancelled_at_any_step_it_writes_each_event_once(path, monkeypatch):
    monkeypatch.setattr(event_log, "FLUSH_EVERY_S", 0.0)
    for steps in range(1, 30):
        log, _ = make(path.with_name(f"{steps}.jsonl"))
        _cancelled_after(log, steps)
        log.close()
        assert [line["url"] for line in lines(log.path)] == [str(n) for n in range(5)]


def _cancelled_after(log: EventLog, steps: int) -> None:
    class Knife(trio.abc.Instrument):
        left = steps

        def before_task_step(self, task):
            self.left -= 1
            if self.left == 0:
                scope.cancel()

    scope = trio.CancelScope()

    async def emit():
        for n in range(5):
            log(EndpointJoined(POOL, Url(str(n))))
            await trio.lowlevel.checkpoint()

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(emit)
            with scope:
                await log.run_event_log()

    trio.run(main, instruments=[Knife()])


def test_how_images_get_on_is_written_every_ten_seconds_and_each_other_state_at_once(path):
    now = 1_700_000_000.0
    log = EventLog(path, pytest.fail, clock=lambda: now)
    for second in range(25):
        now = 1_700_000_000.0 + second
        coming = DeliveryStatus("docker.io/library/python:3", "docker.io", 100 * second, None, second)
        state = "silent" if second == 15 else "delivering"
        log(ImagesChanged(ImagesStatus(state, 5, 1, 0, 2, (coming,), why="opal")))
    log.close()
    written = [line["status"] for line in lines(path)]
    assert [(one["state"], one["deliveries"][0]["done_bytes"]) for one in written] == [
        ("delivering", 0), ("delivering", 1000), ("silent", 1500), ("delivering", 1600),
    ]  # fmt: skip
    image = "docker.io/library/python:3"
    coming = {"image": image, "source": "docker.io", "done_bytes": 0, "total_bytes": None, "age_s": 0}
    assert written[0] == {
        "state": "delivering", "wanted": 5, "present": 1, "failed": 0, "waiting": 2, "why": "opal", "free_bytes": None,
        "brought": 0, "deliveries": [coming],
    }  # fmt: skip


def test_what_an_image_is_held_up_by_is_redacted(path):
    log, _ = make(path, redact=lambda text: text.replace("opal", "[secret]"))
    log(ImagesChanged(ImagesStatus("waiting", 5, 1, 0, 2, why="password opal")))
    log.close()
    assert lines(path)[0]["status"]["why"] == "password [secret]"
