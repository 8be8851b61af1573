"""The output of ``squeue --format`` becomes jobs, or is an error of the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scavenge_slurm.jobs import UnknownOutput
from scavenge_slurm.text import FORMAT, jobs_in_text
from slurm_kit import RECORDINGS
from squeue_double import NOW, START, job, lines

HEADER = lines([]).encode()


def test_the_lines_say_what_the_json_says():
    text = lines([job(7, array=(5, 0), nodes="gpu[01-02]", batch_host="gpu01", comment="port=1 a:_:b")])
    (found,) = jobs_in_text(text.encode(), NOW)
    assert (found.job_id, found.array_job_id, found.array_task_id) == (7, 5, 0)
    assert (found.name, found.user, found.account) == ("vllm", "alice", "")
    assert found.comments == ("port=1 a:_:b",)
    assert (found.nodes, found.batch_host) == ("gpu[01-02]", "gpu01")
    assert found.ends_at == START + 36_000
    assert found.is_running


def test_a_job_in_no_array_without_limit_comment_and_host_has_none_of_them():
    text = lines([job(limit=None, comment="", batch_host="")])
    (found,) = jobs_in_text(text.encode(), NOW)
    assert (found.array_job_id, found.array_task_id, found.ends_at) == (None, None, None)
    assert (found.comments, found.batch_host) == (("",), "")


@pytest.mark.parametrize(
    ("left", "seconds"),
    [
        ("0:05", 5),
        ("9:58", 598),
        ("1:00:00", 3600),
        ("2-03:04:05", 183_845),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("INVALID", None),
        ("-1:00", None),
    ],
)
def test_the_time_left_is_read(left, seconds):
    text = lines([job()]).replace("0-09:50:00", left)
    (found,) = jobs_in_text(text.encode(), NOW)
    assert found.ends_at == (None if seconds is None else NOW + seconds)


def test_a_comment_of_several_lines_stays_with_its_job():
    text = lines([job(1, comment="port=1\nb:_:c\n\nd"), job(2)])
    first, second = jobs_in_text(text.encode(), NOW)
    assert first.comments == ("port=1\nb:_:c\n\nd",)
    assert second.comments == ("port=8002",)


def test_the_name_of_the_one_cluster_that_is_asked_may_stand_before():
    assert len(jobs_in_text(b"CLUSTER: gpu\n" + lines([job()]).encode(), NOW)) == 1


def test_several_clusters_are_refused_and_not_taken_for_one():
    one = b"CLUSTER: gpu\n" + lines([job()]).encode()
    with pytest.raises(UnknownOutput, match="JOBID"):
        jobs_in_text(one + b"\n" + one, NOW)


def test_no_job_is_a_header_alone():
    assert jobs_in_text(HEADER, NOW) == []


def test_what_slurm_22_05_printed_is_read():
    found = jobs_in_text((RECORDINGS / "squeue-22.05.txt").read_bytes(), NOW)
    assert [(one.job_id, one.is_running, one.is_leaving) for one in found] == [
        (20, False, True),
        (17, True, False),
        (16, True, False),
    ]
    assert (found[1].array_job_id, found[1].array_task_id, found[1].ends_at) == (16, 1, NOW + 291)


@pytest.mark.parametrize(
    ("output", "what"),
    [
        (b"", "no header"),
        (b"\n", "no header"),
        (b"Welcome\n" + HEADER, 'begins with "Welcome"'),
        (lines([job()]).encode().removeprefix(HEADER), "no header"),
        (HEADER + lines([job()]).encode().removeprefix(HEADER)[:-5], "is cut"),
        (HEADER + b"scavenge:_:1:_:2\n", "record without its fields"),
        (
            HEADER + lines([job()]).encode().removeprefix(HEADER).replace(b":_:1:_:", b":_:x:_:", 1),
            "without its fields",
        ),
    ],
)
def test_what_is_not_understood_is_an_error_of_one_line(output, what):
    with pytest.raises(UnknownOutput, match=what) as raised:
        jobs_in_text(output, NOW)
    assert len(str(raised.value).splitlines()) == 1


def test_the_format_means_nothing_to_a_shell():
    assert not set(FORMAT) & set(" \t\n'\"\\$`|&;<>()*?[]{}~#!")


@given(st.binary(max_size=80), st.integers(0, 300))
def test_any_bytes_are_jobs_or_unknown_output(noise, at):
    whole = lines([job(), job(2)]).encode()
    try:
        jobs_in_text(whole[:at] + noise + whole[at:], NOW)
    except UnknownOutput:
        return
