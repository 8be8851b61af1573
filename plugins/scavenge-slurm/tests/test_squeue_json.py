"""The output of ``squeue --json`` becomes jobs, in the shape of every version, or is an error of the whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scavenge_slurm.jobs import UnknownOutput, jobs_in_json
from slurm_kit import RECORDINGS
from squeue_double import SHAPES, START, document, job

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def read(shape, *jobs):
    return jobs_in_json(json.dumps(document(shape, jobs)).encode())


@pytest.mark.parametrize("shape", SHAPES)
def test_every_version_says_the_same_of_a_job(shape):
    (found,) = read(shape, job(7, array=(5, 0), preempt=START + 5, nodes="gpu[01-02]", batch_host="gpu01"))
    assert (found.job_id, found.array_job_id, found.array_task_id) == (7, 5, 0)
    assert (found.name, found.user, found.partition) == ("vllm", "alice", "gpu")
    assert found.comments[0] == "port=8007"
    assert (found.nodes, found.batch_host) == ("gpu[01-02]", "gpu01")
    assert (found.started_at, found.ends_at, found.preempted_at) == (START, START + 36_000, START + 5)
    assert found.is_running
    assert found.is_preempted


@pytest.mark.parametrize("shape", SHAPES)
def test_a_job_that_is_in_no_array_and_has_no_limit_has_neither(shape):
    (found,) = read(shape, job(limit=None, end=None))
    assert (found.array_job_id, found.array_task_id, found.ends_at) == (None, None, None)
    assert not found.is_preempted


@pytest.mark.parametrize("shape", SHAPES)
def test_an_end_that_is_not_told_follows_from_the_limit(shape):
    (found,) = read(shape, job(end=0, limit=10))
    assert found.ends_at == START + 600


@pytest.mark.parametrize("value", [0xFFFFFFFE, 0xFFFFFFFF, 6_090_965_676, -1, True, "soon", {"number": 5e300}, [1]])
def test_an_end_that_is_no_time_is_none(value):
    table = document("22.05", [job()])
    table["jobs"][0].update(end_time=value, time_limit=None)
    assert jobs_in_json(json.dumps(table).encode())[0].ends_at is None


def test_an_infinite_number_is_none():
    table = document("24.11", [job()])
    table["jobs"][0].update(end_time={"set": True, "infinite": True, "number": 5})
    table["jobs"][0].update(time_limit={"set": False, "infinite": True, "number": 0})
    assert jobs_in_json(json.dumps(table).encode())[0].ends_at is None


@pytest.mark.parametrize("comment", ["port=8", {"administrator": "port=9", "job": "port=8", "system": ""}])
def test_the_comment_is_the_jobs_own(comment):
    table = document("24.11", [job(extra="host=a")])
    table["jobs"][0]["comment"] = comment
    assert jobs_in_json(json.dumps(table).encode())[0].comments == ("port=8", "host=a")


@pytest.mark.parametrize(
    ("states", "life"),
    [
        (["RUNNING"], "runs"),
        (["RUNNING", "RESIZING"], "runs"),
        (["RUNNING", "SIGNALING"], "runs"),
        (["RUNNING", "A_STATE_OF_A_LATER_VERSION"], "runs"),
        (["RUNNING", "CONFIGURING"], "absent"),
        (["RUNNING", "POWER_UP_NODE"], "absent"),
        (["RUNNING", "STOPPED"], "absent"),
        (["SUSPENDED"], "absent"),
        (["PENDING"], "absent"),
        (["PENDING", "REQUEUED"], "absent"),
        (["CANCELLED", "COMPLETING"], "leaves"),
        (["PENDING", "REQUEUED", "COMPLETING"], "leaves"),
        (["COMPLETING"], "leaves"),
        (["NODE_FAIL", "COMPLETING"], "absent"),
        (["SUSPENDED", "COMPLETING"], "absent"),
        (["COMPLETED"], "absent"),
        (["PREEMPTED"], "absent"),
        (["TIMEOUT"], "absent"),
        (["UNHEARD_OF"], "absent"),
    ],
)
def test_a_state_says_whether_a_server_may_answer(states, life):
    (found,) = read("24.11", job(state=states))
    assert (found.is_running, found.is_leaving) == (life == "runs", life == "leaves")


def test_a_notice_of_preemption_to_an_earlier_run_of_the_job_is_over():
    (found,) = read("24.11", job(preempt=START - 300))
    assert not found.is_preempted


def test_what_slurm_22_05_printed_is_read():
    found = {one.job_id: one for one in jobs_in_json((RECORDINGS / "squeue-22.05.json").read_bytes())}
    assert {job_id for job_id, one in found.items() if one.is_running} == {16, 17}
    assert {job_id for job_id, one in found.items() if one.is_leaving} == {20}
    assert (found[17].array_job_id, found[17].array_task_id, found[16].array_task_id) == (16, 1, 2)
    assert found[17].comments[0] == "port=41269"
    assert found[19].batch_host == "gpu02"
    assert found[18].ends_at is None


def test_the_answer_of_22_05_while_the_controller_is_away_is_no_empty_listing():
    output = (RECORDINGS / "squeue-22.05-down.json").read_bytes()
    assert json.loads(output)["jobs"] == []
    with pytest.raises(UnknownOutput, match="Failed while looking for jobs"):
        jobs_in_json(output)


@pytest.mark.parametrize(
    ("output", "what"),
    [
        (b"", "printed nothing"),
        (b" \n", "printed nothing"),
        (b"Welcome to login1\n{}", 'no JSON .* begins with "Welcome'),
        (b'{"jobs": [', "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no table"),
        (b"{}", "no list `jobs`"),
        (b'{"jobs": null}', "no list `jobs`"),
        (b'{"jobs": [], "errors": {}}', "no list `errors`"),
        (b'{"jobs": [], "errors": ["gone"]}', "gone"),
        (b'{"jobs": [], "errors": [{}]}', "an error without a text"),
        (b'{"jobs": [5]}', r"jobs\[0\] .* no job_id"),
        (b'{"jobs": [{"job_id": "x"}]}', r"jobs\[0\] .* no job_id"),
        (b'{"jobs": [{"job_id": 1}]}', r"jobs\[0\] .* no job_state"),
        (b'{"jobs": [{"job_id": 1, "job_state": []}]}', r"jobs\[0\] .* no job_state"),
        (b'{"jobs": [{"job_id": 1, "job_state": [1]}]}', r"jobs\[0\] .* no job_state"),
        (b'{"jobs": [' + b"1" * 5000 + b"]}", "no JSON"),
    ],
)
def test_what_is_not_understood_is_an_error_of_one_line(output, what):
    with pytest.raises(UnknownOutput, match=what) as raised:
        jobs_in_json(output)
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 300


def test_names_that_are_no_utf_8_and_bare_control_characters_cost_nothing():
    output = json.dumps(document("24.11", [job(name="vllmX", comment="aXb")])).encode()
    (found,) = jobs_in_json(output.replace(b"vllmX", b"vllm\xff").replace(b"aXb", b"a\x01b"))
    assert found.name == "vllm\ufffd"


@given(st.binary(max_size=60))
def test_any_bytes_are_jobs_or_unknown_output(output):
    try:
        jobs_in_json(output)
    except UnknownOutput:
        return


@given(st.dictionaries(st.sampled_from(sorted(document("24.11", [job()])["jobs"][0])), JSON))
def test_any_value_of_any_field_is_a_job_or_unknown_output(changes):
    table = document("24.11", [job()])
    table["jobs"][0].update(changes)
    try:
        jobs_in_json(json.dumps(table).encode())
    except UnknownOutput:
        return
