"""results.jsonl on disk: whatever a kill or a full disk leaves, every sample is answered once."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.plan import OrderSettings, Plan, RolloutTask
from scavenge.core.records import encode, parse_line
from scavenge.core.tally import EvalTally, History, Tally
from scavenge.edge import results
from scavenge.edge.results import JsonlLog, mend, scan
from scavenge.errors import ResultsError
from scavenge.rollouts import ErrorInfo, Example, RolloutKey, RolloutRecord


def record(name: str, reward: float | None = 1.0, *, bad: bool = False, text: str = "") -> RolloutRecord:
    error = ErrorInfo("Boom", "why") if bad else None
    return RolloutRecord(RolloutKey("e", name, 0), "chat", None if bad else reward, completion=text, error=error)


def line(name: str, **options) -> bytes:
    return encode(record(name, **options))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


def scanned(path: Path):
    found = []
    return scan(path, found.append), [brief.key.example_id for brief in found]


# --- appending


def test_appended_lines_are_in_the_file_when_append_returns(path):
    log = JsonlLog(path)
    log.append([line("a"), line("b")])
    log.append([])
    log.append([line("c")])
    assert path.read_bytes() == line("a") + line("b") + line("c")
    log.close()
    log.close()


def test_each_append_reaches_the_disk_before_it_returns(path, monkeypatch):
    synced = []
    monkeypatch.setattr(results.os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    log = JsonlLog(path)
    folder_syncs = len(synced)
    log.append([line("a")])
    assert (folder_syncs, synced[folder_syncs:]) == (1, [len(line("a"))])
    JsonlLog(path.with_name("events"), durable=False).append([b"x\n"])
    assert len(synced) == folder_syncs + 1


def test_a_full_disk_leaves_whole_lines_only_and_a_later_append_works(path):
    """The system's own limit on the size of a file stands in for a full disk: it makes the write a short one."""
    first = line("a", text="x" * 500)
    log = JsonlLog(path)
    log.append([first])
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(first) + 100, old[1]))
    try:
        with pytest.raises(ResultsError) as caught:
            log.append([first])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    assert str(caught.value) == f"{path}: cannot be written: File too large; make room, then resume the run"
    assert path.read_bytes() == first
    log.append([line("b")])
    assert scanned(path)[1] == ["b", "a"]


def test_an_append_that_does_not_reach_the_disk_is_undone(path, monkeypatch):
    log = JsonlLog(path)
    log.append([line("a")])

    def fail(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(results.os, "fsync", fail)
    with pytest.raises(ResultsError):
        log.append([line("b")])
    assert path.read_bytes() == line("a")


def test_a_log_that_could_not_undo_a_failed_write_takes_no_more(path, monkeypatch):
    log = JsonlLog(path)

    def fail(*args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(results.os, "write", fail)
    monkeypatch.setattr(results.os, "ftruncate", fail)
    with pytest.raises(ResultsError):
        log.append([line("a")])
    monkeypatch.undo()
    with pytest.raises(ResultsError, match="could not be undone"):
        log.append([line("b")])


def test_a_log_that_cannot_be_opened_says_why(tmp_path):
    with pytest.raises(ResultsError, match=r"cannot be opened: Is a directory"):
        JsonlLog(tmp_path)
    with pytest.raises(ResultsError, match=r"cannot be opened: No such file"):
        JsonlLog(tmp_path / "no" / "file")
    with pytest.raises(ResultsError, match=r"cannot be put on disk"):
        results.sync_folder(tmp_path / "no")


def test_a_torn_line_that_nobody_mended_gets_its_newline_before_anything_is_appended(path):
    path.write_bytes(line("a") + b'{"half')
    JsonlLog(path).append([line("b")])
    scan_result, names = scanned(path)
    assert names == ["b", "a"]
    assert scan_result.broken_lines == (2,)


# --- mending


@pytest.mark.parametrize("content", [b"", b"\n", line("a"), line("a") + line("b"), line("a") + b"\n \n"])
def test_a_file_that_ends_well_is_left_alone(path, content):
    path.write_bytes(content)
    assert mend(path) is None
    assert path.read_bytes() == content
    assert [each.name for each in path.parent.iterdir()] == ["results.jsonl"]


def test_a_file_that_is_not_there_is_in_order(path):
    assert mend(path) is None
    assert scanned(path) == (results.Scanned(path), [])


@pytest.mark.parametrize("tail", [b"{", line("c")[:-1], b"garbage\n", bytes(5000), bytes(5000) + b"\n", b"x" * 200_000])
def test_a_torn_last_line_is_set_aside_and_named_by_its_number(path, tail):
    path.write_bytes(line("a") + line("b") + tail)
    said = mend(path)
    assert said == (
        f"{path}: line 3 was cut short ({len(tail)} bytes): moved to results.jsonl.torn-1, its sample is owed again"
    )
    assert path.read_bytes() == line("a") + line("b")
    assert path.with_name("results.jsonl.torn-1").read_bytes() == tail


def test_a_file_of_nothing_but_a_torn_line_becomes_empty(path):
    path.write_bytes(b"\xff" * 100)
    assert "line 1 was cut short" in mend(path)
    assert path.read_bytes() == b""


def test_torn_lines_of_several_kills_are_all_kept(path):
    for n in range(1, 4):
        path.write_bytes(line("a") + b"torn %d" % n)
        assert f"torn-{n}" in mend(path)
    assert path.with_name("results.jsonl.torn-2").read_bytes() == b"torn 2"


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ResultsError, match="cannot be mended: Is a directory"):
        mend(tmp_path)
    with pytest.raises(ResultsError, match="cannot be read: Is a directory"):
        scan(tmp_path, print)


# --- reading back


def test_lines_come_newest_first(path):
    path.write_bytes(line("a") + line("b") + line("a"))
    scan_result, names = scanned(path)
    assert names == ["a", "b", "a"]
    assert (scan_result.lines, scan_result.complaint()) == (3, None)


def test_broken_lines_in_the_middle_are_named_by_their_numbers(path):
    path.write_bytes(line("a") + b"junk\n" + line("b") + b"\n" + bytes(10) + b"\n" + line("c"))
    scan_result, names = scanned(path)
    assert names == ["c", "b", "a"]
    assert scan_result.complaint() == f"{path}: lines 2, 5 cannot be read; a sample without another line is owed again"


def test_one_broken_line_is_a_line_and_very_many_are_counted_but_not_all_named(path):
    path.write_bytes(b"junk\n")
    assert scanned(path)[0].complaint().startswith(f"{path}: line 1 cannot")
    path.write_bytes(b"junk\n" * 1000)
    scan_result, _ = scanned(path)
    assert (scan_result.broken, scan_result.broken_lines) == (1000, tuple(range(1, 101)))
    assert "99, 100, … cannot" in scan_result.complaint()


@pytest.mark.parametrize(
    "size", [results.BLOCK_BYTES + d for d in (-2, -1, 0, 1, 2)] + [3 * results.BLOCK_BYTES + 7, 10**7]
)
def test_lines_of_any_length_are_read_whole(path, size):
    long = line("long", text="x" * (size - len(line("long"))))
    assert len(long) == size
    path.write_bytes(line("a") + long + line("b"))
    assert scanned(path)[1] == ["b", "long", "a"]


@given(st.lists(st.binary(max_size=12), max_size=12), st.integers(1, 7))
def test_lines_read_backwards_are_the_lines_read_forwards(pieces, block):
    content = b"\n".join(pieces)
    old, results.BLOCK_BYTES = results.BLOCK_BYTES, block
    try:
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.flush()
            assert list(results._lines_backwards(file.fileno(), len(content)))[::-1] == content.split(b"\n")
    finally:
        results.BLOCK_BYTES = old


# --- killed, then resumed

RECORDS = [record(name, 0.5, bad=bad, text=text) for name, bad, text in (
    ("a", False, "plain"), ("b", True, ""), ("c", False, "\u2028 \ud800 \x00 \x85 " * 3), ("b", False, "again"),
    ("d", False, "𝄞" * 5), ("e", True, "x" * 50),
)]  # fmt: skip
EXAMPLES = [Example(name, {}) for name in "abcdef"]


def resume(path: Path) -> tuple[list[str], Tally]:
    """What a resumed run plays, after it has appended an ok record for each."""
    mend(path)
    history = History(Tally.of([EvalTally("e", "chat")]))
    scan(path, history.add)
    plan = Plan("e", "chat", done=history.done, settings=OrderSettings("file"))
    for example in EXAMPLES:
        plan.offer(example)
    plan.end()
    log, played = JsonlLog(path), []
    while isinstance(task := plan.next(), RolloutTask):
        played.append(task.key.example_id)
        log.append([encode(record(task.key.example_id, text="resumed"))])
    log.close()
    return played, history.tally


@given(st.data(), st.binary(max_size=40))
def test_killed_at_any_byte_then_resumed_every_sample_is_answered_exactly_once(data, garbage):
    whole = b"".join(map(encode, RECORDS))
    cut = data.draw(st.integers(0, len(whole)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.jsonl")
        path.write_bytes(whole[:cut] + garbage)
        kept = RECORDS[: whole[:cut].count(b"\n")]
        fine = {each.key.example_id for each in kept if each.error is None}
        played, tally = resume(path)
        assert sorted(played) == sorted({example.id for example in EXAMPLES} - fine)
        assert tally.evals["e"].ok == len(fine)
        last = {}
        for text in path.read_bytes().split(b"\n"):
            try:
                each = parse_line(text)
            except ValueError:
                continue
            last[each.key.example_id] = each
        assert {name for name, each in last.items() if each.error is None} == {example.id for example in EXAMPLES}
        assert {name for name, each in last.items() if each.completion != "resumed"} == fine
        assert resume(path)[0] == []


def test_the_bytes_of_a_line_are_the_documented_json(path):
    JsonlLog(path).append([encode(RECORDS[2])])
    assert json.loads(path.read_text(encoding="utf-8"))["completion"] == RECORDS[2].completion
