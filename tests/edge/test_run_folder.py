"""The folder of a run: made whole, owned by one process, found again."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from scavenge.edge import run_folder
from scavenge.edge.run_folder import create_run_folder, open_run_folder, safe_name, write_whole
from scavenge.errors import ResultsError, UsageError

NOW = datetime(2025, 1, 31, 13, 0, 5, tzinfo=timezone(timedelta(hours=1)))


def create(tmp_path, name="math", config="elastic = true\n"):
    return create_run_folder(tmp_path / "runs", name, config, NOW)


def test_a_new_folder_has_the_documented_name_and_content(tmp_path):
    with create(tmp_path) as folder:
        assert re.fullmatch(r"math-20250131T120005Z-[0-9a-f]{4}", folder.path.name)
        assert folder.path.parent == tmp_path / "runs"
        assert (folder.path / "config.toml").read_text() == "elastic = true\n"
        assert sorted(each.name for each in folder.path.iterdir()) == ["config.toml", "lock", "logs"]
        assert (folder.results.name, folder.events.name) == ("results.jsonl", "events.jsonl")
        assert folder.logs.is_dir()


def test_runs_of_one_second_get_folders_of_their_own(tmp_path, monkeypatch):
    drawn = iter([b"\0\1", b"\0\1", b"\0\2"])
    monkeypatch.setattr(run_folder.os, "urandom", lambda size: next(drawn))
    with create(tmp_path) as one, create(tmp_path) as two:
        assert (one.path.name[-4:], two.path.name[-4:]) == ("0001", "0002")


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("math", "math"),
        ("a/b\\c d", "a-b-c-d"),
        ("../../etc", "etc"),
        (".hidden", "hidden"),
        ("", "run"),
        ("日本", "run"),
        ("x\n\0y", "x-y"),
        ("n" * 300, "n" * 80),
    ],
)
def test_a_name_is_made_safe(name, safe):
    assert safe_name(name) == safe


def test_a_folder_can_be_opened_again_when_its_owner_gave_it_up(tmp_path):
    with create(tmp_path) as folder:
        pass
    with open_run_folder(folder.path) as again:
        assert (again.path / "config.toml").read_text() == "elastic = true\n"
    again.close()


def test_a_second_owner_is_refused_and_told_who_the_first_is(tmp_path):
    with create(tmp_path) as folder, pytest.raises(UsageError) as caught:
        open_run_folder(folder.path)
    assert re.search(
        rf"another process owns this run \(pid \d+ on {re.escape(socket.gethostname())}\)", str(caught.value)
    )


def test_a_refusal_leaves_no_descriptor_open(tmp_path):
    with create(tmp_path) as folder:
        before = os.listdir("/proc/self/fd")
        with pytest.raises(UsageError):
            open_run_folder(folder.path)
        assert os.listdir("/proc/self/fd") == before


OWNER = """
import sys, pathlib
from scavenge.edge.run_folder import open_run_folder
folder = open_run_folder(pathlib.Path(sys.argv[1]))
print("owned", flush=True)
sys.stdin.read()
"""


def test_another_process_keeps_its_folder_until_it_dies_by_whatever_way(tmp_path):
    with create(tmp_path) as folder:
        pass
    command = [sys.executable, "-c", OWNER, str(folder.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout.readline() == b"owned\n"
        with pytest.raises(UsageError, match=f"pid {owner.pid} on"):
            open_run_folder(folder.path)
        owner.kill()
    with open_run_folder(folder.path):
        assert "pid" in (folder.path / "lock").read_text()


def test_what_is_no_run_folder_is_refused_with_the_reason(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match="no such folder; --resume takes a run folder"):
        open_run_folder(tmp_path / "gone")
    with pytest.raises(UsageError, match="not a folder"):
        open_run_folder(tmp_path / "file")
    with pytest.raises(UsageError, match=r"has no config\.toml: not a run folder"):
        open_run_folder(tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []
    (tmp_path / "other" / "lock").write_text("")
    with pytest.raises(UsageError, match="killed before it began"):
        open_run_folder(tmp_path / "other")


def test_an_output_folder_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(ResultsError, match="cannot be made: File exists; choose another output_dir"):
        create(tmp_path)


def test_a_folder_whose_configuration_cannot_be_written_is_given_up(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder.os, "replace", fail)
    with pytest.raises(ResultsError, match="No space left on device"):
        create(tmp_path)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_folder_that_was_killed_before_it_began_cannot_be_resumed(tmp_path):
    (tmp_path / "lock").touch()
    with pytest.raises(UsageError, match="killed before it began"):
        open_run_folder(tmp_path)


def test_a_run_that_never_began_leaves_no_folder(tmp_path):
    with create(tmp_path) as folder:
        folder.results.touch()
        folder.discard()
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_folder_with_results_is_never_discarded(tmp_path):
    folder = create(tmp_path)
    folder.results.write_bytes(b"{}\n")
    folder.discard()
    assert folder.results.read_bytes() == b"{}\n"
    open_run_folder(folder.path).close()


def test_a_file_system_without_locks_is_refused_with_a_remedy(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(run_folder.fcntl, "flock", fail)
    with pytest.raises(ResultsError, match="cannot be locked: Operation not supported; choose another output_dir"):
        create(tmp_path)


def test_a_lock_that_cannot_be_opened_is_an_error(tmp_path):
    with create(tmp_path) as folder:
        pass
    (folder.path / "lock").unlink()
    (folder.path / "lock").mkdir()
    with pytest.raises(ResultsError, match="cannot be opened: Is a directory"):
        open_run_folder(folder.path)


def test_the_summary_is_replaced_in_one_step_and_read_back(tmp_path):
    with create(tmp_path) as folder:
        assert folder.read_summary() == {}
        folder.write_summary({"retries": 1})
        folder.write_summary({"retries": 2})
        assert folder.read_summary() == {"retries": 2}
        assert not list(folder.path.glob(".*"))


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
def test_a_summary_that_was_spoilt_counts_as_none(tmp_path, content):
    with create(tmp_path) as folder:
        (folder.path / "summary.json").write_bytes(content)
        assert folder.read_summary() == {}


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail(fd):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(run_folder.os, "fsync", fail)
    with pytest.raises(ResultsError, match="Input/output error"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_folder_in_the_way_of_a_draft_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / ".summary.json.new").mkdir()
    with pytest.raises(ResultsError, match=r"summary\.json"):
        write_whole(tmp_path / "summary.json", b"new")
