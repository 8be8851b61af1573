"""What pages tell in sentences and cells is what the code does: statuses, files, what a log line has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pages import blocks, keyed, read, section, words

from scavenge.app.report import PAGE
from scavenge.core.errorbody import Wording
from scavenge.core.outcome import outcome_of_status, while_leaving
from scavenge.edge import run_folder
from scavenge.edge.event_log import UNWRITTEN, EventLog
from scavenge.events import HealthChanged, RolloutFinished
from scavenge.rollouts import RolloutKey, RolloutRecord
from scavenge.runtime.poller import ANSWER_WITHIN_S
from scavenge.types import EndpointId, Failed, Url

WHEN = {name: cells[0] for name, cells in keyed(read("reference/outcomes.md")).items()}
STATUS = re.compile(r"\b[3-5]\d\d\b")


def outcome_by_the_page(status: int) -> str:
    """Which row a status belongs to: the one that names it, else what the page says of all others."""
    for name in ("busy", "failed", "misrouted"):
        if str(status) in STATUS.findall(WHEN[name]):
            return name
    return {3: "misrouted", 4: "rejected", 5: "failed"}[status // 100]


def test_each_status_is_the_outcome_that_the_page_says():
    outcomes = {status: outcome_of_status(status, {}, b"", Wording(), 0.0).name for status in range(300, 600)}
    assert outcomes == {status: outcome_by_the_page(status) for status in outcomes}


def test_the_page_has_the_words_for_all_statuses_that_it_does_not_name():
    assert "a redirect" in WHEN["misrouted"]
    assert WHEN["rejected"].startswith("other 4xx")
    assert WHEN["failed"].startswith("other 5xx")


def test_only_the_statuses_that_the_page_names_are_a_loss_while_an_endpoint_leaves():
    lost = {status for status in range(500, 600) if while_leaving(Failed("", status)).name == "lost"}
    assert lost == {int(status) for status in STATUS.findall(WHEN["lost"])}


@pytest.mark.parametrize(
    ("status", "error", "outcome"),
    [
        (400, {"code": "rate_limit_exceeded", "message": ""}, "busy"),
        (400, {"code": "model_not_found", "message": ""}, "misrouted"),
        (400, {"message": "the server is overloaded, rate limit"}, "rejected"),
        (500, {"message": "rate limit"}, "busy"),
    ],
)
def test_the_body_of_an_error_is_read_as_far_as_the_page_says(status, error, outcome):
    body = json.dumps({"error": error}).encode()
    assert outcome_of_status(status, {}, body, Wording(), 0.0).name == outcome
    if "code" in error:
        told = " ".join(read("reference/outcomes.md").split())
        assert f"`{error['code']}` is `{outcome}`" in told


def test_every_file_of_a_run_folder_is_on_its_page():
    names = ("CONFIG", "IDENTITY", "RESULTS", "EVENTS", "SUMMARY", "LOCK")
    files = {getattr(run_folder, name) for name in names} | {f"{run_folder.LOGS}/", PAGE}
    table = keyed(read("reference/run-folder.md").partition("\n## ")[0])
    assert files == {name for name in table if "torn" not in name}


def logged(folder: Path, *events: object) -> list[dict[str, object]]:
    log = EventLog(folder / "events.jsonl", pytest.fail, clock=lambda: 1893499204.25)
    for event in events:
        log(event)  # type: ignore[arg-type]  # each is an event
    log.close()
    return [json.loads(line) for line in log.path.read_bytes().splitlines()]


def test_the_example_of_a_line_of_the_event_log_is_one(tmp_path):
    (text,) = blocks(read("reference/events.md"), "json")
    url = Url("http://10.0.0.8:8000/v1")
    event = HealthChanged(EndpointId("my-model"), url, "live", "ejected", "the connection broke")
    assert logged(tmp_path, event) == [json.loads(text)]


def test_what_the_event_log_leaves_out_is_named():
    told = section(read("reference/events.md"), "In events.jsonl").partition("```")[0]
    assert set(words(told)) == {"time", "event"} | {kind.__name__ for kind in UNWRITTEN}


def test_the_line_of_a_finished_rollout_has_the_keys_that_the_page_lists(tmp_path):
    (line,) = logged(tmp_path, RolloutFinished(RolloutRecord(RolloutKey("e", "1", 0), "chat")))
    told = section(read("reference/events.md"), "In events.jsonl").partition("`RolloutFinished` has")[2]
    assert words(told.partition(", their number")[0]) == [key for key in line if key not in ("time", "event")]


def test_how_long_a_source_may_take_is_told():
    assert f"longer than {ANSWER_WITHIN_S:g} seconds" in read("how-to/write-an-endpoint-source.md")
