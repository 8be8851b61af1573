"""The source against a cluster's ``squeue``: what it lists, what it raises, what it remembers."""

from __future__ import annotations

import logging
import os
import pwd
import threading
import time
from pathlib import Path

import pytest
import scavenge_slurm.source as source_module
import trio
from scavenge_slurm.config import squeue_command
from scavenge_slurm.source import open_slurm
from slurm_kit import settings
from squeue_double import SHAPES, Cluster, job, lines

from scavenge.plugin import SourceError


def config(cluster, **keys):
    return settings(**{"command": [str(cluster.squeue)], "interval_s": 0.0, "timeout_s": 5.0, **keys})


async def listed(source):
    return [spec.url for spec in (await source.list_endpoints()).endpoints]


async def trouble(cluster, **keys):
    """The one line that a source says."""
    async with open_slurm(config(cluster, **keys)) as source:
        with pytest.raises(SourceError) as raised:
            await source.list_endpoints()
    assert len(str(raised.value).splitlines()) == 1
    return str(raised.value)


# --- what it lists


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_jobs_of_the_user_are_listed(tmp_path, shape, form):
    cluster = Cluster(tmp_path, shape)
    cluster.tell([job(1), job(2, user="mallory"), job(3, name="other"), job(4, state=["PENDING"]), job(5)])
    async with open_slurm(config(cluster, format=form)) as source:
        listing = await source.list_endpoints()
    assert [spec.url for spec in listing.endpoints] == ["http://gpu01:8001/v1", "http://gpu05:8005/v1"]
    assert listing.where == "squeue"


async def test_no_job_is_an_empty_listing(cluster):
    for form in ("json", "text"):
        async with open_slurm(config(cluster, format=form)) as source:
            assert await listed(source) == []


async def test_squeue_is_called_for_the_user_without_variables_that_narrow_it(cluster, monkeypatch):
    monkeypatch.setenv("SQUEUE_PARTITION", "debug")
    async with open_slurm(config(cluster)) as source:
        await source.list_endpoints()
    assert cluster.arguments == [["--json", "--noheader", "--user=alice", "--states=RUNNING,COMPLETING"]]
    assert "SQUEUE_PARTITION" not in cluster.environment()


async def test_the_user_is_who_runs_this(cluster):
    name = pwd.getpwuid(os.geteuid()).pw_name
    cluster.tell([job(1), job(2, user=name)])
    async with open_slurm(config(cluster, user=None)) as source:
        assert await listed(source) == ["http://gpu02:8002/v1"]


async def test_a_user_without_a_name_has_to_be_told(cluster, monkeypatch):
    def unknown(number):
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(SourceError, match="has no name here; set `user`"):
        async with open_slurm(config(cluster, user=None)):
            pytest.fail("it opened")


@pytest.mark.parametrize("form", ["json", "text"])
async def test_squeue_may_run_elsewhere_behind_a_shell(cluster, tmp_path, form):
    """As ssh does it: the words become one text, which a shell takes apart."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    cluster.tell([job(1), job(2, user="mallory")])
    async with open_slurm(config(cluster, command=[str(ssh), "login1", str(cluster.squeue)], format=form)) as source:
        assert await listed(source) == ["http://gpu01:8001/v1"]
    (direct,) = cluster.arguments
    assert direct == squeue_command(settings(format=form), "alice")[1:]


async def test_squeue_is_not_called_more_often_than_it_may_be(cluster):
    async with open_slurm(config(cluster, interval_s=0.3)) as source:
        began_at = trio.current_time()
        for _ in range(3):
            await source.list_endpoints()
        assert trio.current_time() >= began_at + 0.6


# --- what it raises


@pytest.mark.parametrize(
    ("behaviour", "keys", "what"),
    [
        (
            "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
            {},
            "exit code 1: slurm_load_jobs error: Unable to contact slurm controller (connect failure); slurmctld",
        ),
        (
            """echo '{"errors": [{"error": "Unspecified error", "source": "slurm_load_jobs"}], "jobs": []}'""",
            {},
            "Unspecified error: slurm_load_jobs; slurmctld does not answer",
        ),
        ("echo 'squeue: error: Invalid user: alice' >&2; cat answer.json", {}, "Invalid user: alice; correct `user`"),
        ("echo 'squeue: error: Invalid user: alice' >&2; cat answer.txt", {"format": "text"}, "correct `user`"),
        ("echo \"squeue: unrecognized option '--json'\" >&2; exit 1", {}, '; set format = "text"'),
        ("echo 'Permission denied (publickey).' >&2; exit 255", {}, "ssh has to work there without asking"),
        ("echo Welcome; cat answer.json", {}, "let nothing else print there"),
        ("echo Welcome; cat answer.txt", {"format": "text"}, 'begins with "Welcome"'),
        ("head -c 40 answer.json", {}, "no JSON"),
        ("head -c 40 answer.txt", {"format": "text"}, "is cut"),
        ("cat answer.json; exit 3", {}, "exit code 3, and it said nothing"),
        ("cat answer.json; kill -9 $$", {}, "ended by signal 9"),
        (":", {}, "printed nothing"),
        (":", {"format": "text"}, "no header"),
        ("sleep 77", {"timeout_s": 0.2}, "no answer within 0.2 s; it was ended"),
        ("cat answer.json; sleep 77", {"timeout_s": 0.2}, "no answer within 0.2 s"),
        ("i=0; while [ $i -lt 999 ]; do echo noise >&2; i=$((i+1)); done; exit 1", {}, "noise noise"),
    ],
)
async def test_an_answer_of_one_who_may_not_know_is_an_error_with_the_remedy(cluster, behaviour, keys, what):
    cluster.tell([job()])
    cluster.behave(behaviour)
    said = await trouble(cluster, **keys)
    assert said.startswith(f"{cluster.squeue}: ")
    assert what in said
    assert len(said) < 700


async def test_more_than_is_kept_is_an_error_with_the_remedy(cluster, monkeypatch):
    monkeypatch.setattr(source_module, "MOST_BYTES", 1024 * 1024)
    cluster.behave("yes")
    assert 'it printed more than 1 MiB; set format = "text"' in await trouble(cluster)


async def test_a_program_that_is_not_there_is_an_error_with_the_remedy(cluster):
    said = await trouble(cluster, command=["/no/such/squeue"])
    assert said == (
        "/no/such/squeue cannot be started: No such file or directory; correct `command`, or run this where squeue is"
    )


# --- state files


@pytest.fixture
def state_dir(tmp_path) -> Path:
    folder = tmp_path / "servers"
    folder.mkdir()
    return folder


def running(number=1, **changes):
    """A job that began now, and says nothing in its comment."""
    now = int(time.time())
    return job(number, **{"comment": "", "start": now, "end": now + 36_000, **changes})


async def test_the_file_of_a_job_tells_its_port(cluster, state_dir):
    cluster.tell([running(1), running(2), running(3)])
    (state_dir / "1.json").write_text('{"port": 9001}')
    (state_dir / "2.toml").write_text('port = 9002\nhost = "ib2"\n')
    async with open_slurm(config(cluster, state_dir=state_dir)) as source:
        assert await listed(source) == ["http://gpu01:9001/v1", "http://ib2:9002/v1"]


async def test_what_a_file_said_stands_until_it_says_something_else_or_the_job_ends(cluster, state_dir):
    cluster.tell([running()])
    path = state_dir / "1.json"
    async with open_slurm(config(cluster, state_dir=state_dir)) as source:
        for text, port in [('{"port": 1}', 1), ('{"po', 1), ("", 1), ('{"port": 2}', 2)]:
            path.write_text(text)
            assert await listed(source) == [f"http://gpu01:{port}/v1"]
        path.unlink()
        assert await listed(source) == ["http://gpu01:2/v1"]
        cluster.tell([])
        assert await listed(source) == []
        cluster.tell([running()])
        assert await listed(source) == []


async def test_a_file_of_an_earlier_run_of_the_job_says_nothing(cluster, state_dir):
    cluster.tell([running()])
    (state_dir / "1.json").write_text('{"port": 1}')
    async with open_slurm(config(cluster, state_dir=state_dir)) as source:
        assert await listed(source) == ["http://gpu01:1/v1"]
        cluster.tell([running(start=int(time.time()) + 120)])
        assert await listed(source) == []
        os.utime(state_dir / "1.json", (0, time.time() + 121))
        assert await listed(source) == ["http://gpu01:1/v1"]


async def test_files_that_are_no_files_cost_their_job_only(cluster, state_dir):
    cluster.tell([running(number) for number in range(1, 6)])
    os.mkfifo(state_dir / "1.json")
    (state_dir / "2.json").mkdir()
    (state_dir / "3.json").write_text("{" + " " * 70_000 + '"port": 1}')
    (state_dir / "4.json").symlink_to(state_dir / "4.json")
    (state_dir / "5.json").write_text('{"port": 5}')
    descriptors = len(os.listdir("/proc/self/fd"))
    with trio.fail_after(5):
        async with open_slurm(config(cluster, state_dir=state_dir)) as source:
            assert await listed(source) == ["http://gpu05:5/v1"]
    assert len(os.listdir("/proc/self/fd")) == descriptors


async def test_a_folder_that_cannot_be_read_is_no_listing(cluster, state_dir):
    cluster.tell([running()])
    state_dir.rmdir()
    assert "cannot be read: No such file or directory; create it" in await trouble(cluster, state_dir=state_dir)


async def test_a_folder_that_hangs_is_no_listing(cluster, state_dir, monkeypatch):
    monkeypatch.setattr(source_module, "FILES_WITHIN_S", 0.1)
    cluster.tell([running()])
    release = threading.Event()

    def hang(folder, jobs):
        release.wait()
        return {}

    monkeypatch.setattr(source_module, "read_state_files", hang)
    try:
        assert "not read within 0.1 s; is it mounted?" in await trouble(cluster, state_dir=state_dir)
    finally:
        release.set()


# --- what it remembers and tells


async def test_a_job_without_a_row_is_told_of_once_for_each_reason(cluster, state_dir, caplog):
    caplog.set_level(logging.INFO)
    cluster.tell([running(1), running(2, comment="port=2")])
    async with open_slurm(config(cluster, state_dir=state_dir)) as source:
        await listed(source)
        await listed(source)
        (state_dir / "1.json").write_text('{"port"')
        await listed(source)
        (state_dir / "1.json").write_text('{"port": 1}')
        assert len(await listed(source)) == 2
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("job 1 ('vllm') has no row: url needs a text with {url} in it")
    assert f"{state_dir}/1.json: no JSON" in second


async def test_an_end_that_is_counted_from_the_time_left_stands_still(cluster):
    async with open_slurm(config(cluster, format="text", drain_before_s=1e6)) as source:

        async def deadline(left_s):
            cluster._replace("answer.txt", lines([job(end=1_000_000)], now=1_000_000 - left_s))
            (spec,) = (await source.list_endpoints()).endpoints
            return spec.drain_deadline

        first = await deadline(500)
        assert await deadline(490) == first
        assert await deadline(505) == first
        assert (first - await deadline(300)).total_seconds() == pytest.approx(200, abs=30)


async def test_an_end_that_is_told_exactly_is_followed_exactly(cluster):
    async with open_slurm(config(cluster, drain_before_s=1e9)) as source:
        for end in (1_900_000_000, 1_900_000_005):
            cluster.tell([job(end=end)])
            (spec,) = (await source.list_endpoints()).endpoints
            assert spec.drain_deadline.timestamp() == end
