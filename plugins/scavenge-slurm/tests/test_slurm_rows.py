"""Which jobs are servers, and what their rows say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scavenge_slurm.jobs import Job
from scavenge_slurm.said import NotWhole, comment_pairs, state_pairs
from slurm_kit import only, rows, urls
from squeue_double import NOW, SHAPES, START, job


def at(seconds):
    return datetime.fromtimestamp(seconds, UTC)


# --- which jobs


@pytest.mark.parametrize("shape", SHAPES)
def test_a_running_job_is_a_row(shape):
    spec = only(job(3), shape=shape)
    assert (spec.endpoint_id, spec.model, spec.url) == ("pool", "sim", "http://gpu03:8003/v1")
    assert (spec.draining, spec.drain_deadline, spec.max_concurrent) == (None, None, None)


def test_only_jobs_of_the_user_are_servers():
    jobs = [job(1), job(2, user="mallory"), job(3, user="")]
    assert urls(rows(jobs)) == ["http://gpu01:8001/v1"]
    assert len(rows(jobs, user="*").specs) == 3


def test_a_name_fits_a_pattern_as_a_whole():
    jobs = [job(1, name="vllm"), job(2, name="vllm-glm"), job(3, name="my-vllm"), job(4, name="VLLM")]
    assert len(rows(jobs).specs) == 2
    assert len(rows(jobs, job_name="vllm").specs) == 1


def test_a_word_of_the_comment_fits_a_pattern():
    jobs = [
        job(1, comment="port=1 pool=glm"),
        job(2, comment="pool=qwen;port=2"),
        job(3, comment="port=3", extra="pool=glm"),
        job(4, comment=""),
    ]
    assert urls(rows(jobs, comment="pool=glm", job_name=None)) == ["http://gpu01:1/v1", "http://gpu03:3/v1"]
    assert len(rows(jobs, comment="pool=*", job_name=None).specs) == 3
    assert len(rows(jobs, comment="pool=*", job_name="none*").specs) == 0


@pytest.mark.parametrize("state", [["PENDING"], ["SUSPENDED"], ["RUNNING", "CONFIGURING"], ["COMPLETED"]])
def test_a_job_whose_server_cannot_answer_is_no_row_and_no_news(state):
    found = rows([job(state=state)])
    assert (found.specs, dict(found.left_out)) == ((), {})


# --- when it leaves


def test_a_job_takes_no_new_work_from_some_time_before_its_end():
    end = START + 3600
    assert only(job(end=end), now=end - 120.5).draining is None
    spec = only(job(end=end), now=end - 120)
    assert (spec.draining, spec.drain_deadline) == (True, at(end))
    assert only(job(end=end), now=end - 120, drain_before_s=60).draining is None
    assert only(job(end=end), now=end - 1000, drain_before_s=1e9).draining


def test_a_preempted_job_drains_at_once_until_its_grace_is_over():
    spec = only(job(end=START + 3600, preempt=START + 60), now=START + 61)
    assert (spec.draining, spec.drain_deadline) == (True, at(START + 3600))


def test_a_preempted_job_without_an_end_drains_without_a_deadline():
    spec = only(job(end=None, limit=None, preempt=START + 60))
    assert (spec.draining, spec.drain_deadline) == (True, None)


def test_a_job_that_is_being_ended_drains():
    spec = only(job(state=["CANCELLED", "COMPLETING"], end=NOW - 5))
    assert (spec.draining, spec.drain_deadline) == (True, None)


def test_the_last_end_that_slurm_can_tell_is_a_deadline():
    assert only(job(end=4_294_967_293), now=4_294_967_292).drain_deadline == at(4_294_967_293)


def test_a_job_that_runs_on_after_its_end_drains_without_a_deadline():
    spec = only(job(end=START + 3600), now=START + 3600)
    assert (spec.draining, spec.drain_deadline) == (True, None)


def test_a_job_may_say_that_it_drains():
    assert only(job(comment="port=1 draining=yes")).draining
    assert only(job(comment="port=1 draining=false")).draining is None
    assert only(job(), files={1: {"draining": "true"}}).draining
    assert only(job(comment="port=1 draining=true"), files={1: {"draining": "false"}}).draining is None


# --- what its row says


def test_every_fact_may_stand_in_a_row():
    facts = ("url", "host", "port", "node", "job_id", "array_job_id", "array_task_id", "name", "user", "partition")
    template = "/".join(f"{{{fact}}}" for fact in (*facts, "comment.pool", "file.gpu", "account|none"))
    spec = only(
        job(9, array=(5, 3), comment="pool=glm,port=12", batch_host="n1"), files={9: {"gpu": "h100"}}, model=template
    )
    assert spec.model == "http://n1:12/v1/n1/12/n1/9/5/3/vllm/alice/gpu/glm/h100/none"


def test_a_state_file_wins_over_the_comment_and_the_comment_over_the_free_field():
    one = job(1, comment="port=2", extra="port=3 host=b")
    assert only(one).url == "http://b:2/v1"
    assert only(one, files={1: {"port": "1"}}).url == "http://b:1/v1"


def test_the_comment_of_the_administrators_says_nothing():
    assert rows([job(comment="")]).specs == ()


@pytest.mark.parametrize(
    ("comment", "url"),
    [
        ("port=8000", "http://gpu01:8000/v1"),
        ("port=8000 host=10.0.0.7", "http://10.0.0.7:8000/v1"),
        ("port=8000 host=fd00::7", "http://[fd00::7]:8000/v1"),
        ("port=8000 host=[fd00::7]", "http://[fd00::7]:8000/v1"),
        ("url=https://gw.example/j/1/v1", "https://gw.example/j/1/v1"),
        ("note\tport=1,port=2", "http://gpu01:1/v1"),
    ],
)
def test_the_url_is_what_the_job_says_or_made_of_host_and_port(comment, url):
    assert only(job(comment=comment)).url == url


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "port=",
        "port=0",
        "port=65536",
        "port=80a0",
        "port=-1",
        "port=１２",
        "=8000",
        "port 8000",
        "port=1 host=a/b",
        "port=1 host=-a",
        "port=1 host=é",
        "port=1 host=fd00::x",
        "port=1 host=::7:",
        "url=gpu01:80",
        "url=ftp://a:1/v1",
        "url=http://",
        "url=http://a:0/v1",
        "url=http://a:99999/v1",
        "url=http://me:secret@a:1/v1",
        "url=http://a:1/v1?x=1",
        "url=http://a:1/v1#x",
        "url=http://a:1/<v1>",
        "url=http://[1]:1/v1",
    ],
)
def test_a_job_that_tells_no_url_costs_itself_only(comment):
    found = rows([job(1, comment=comment), job(2)])
    assert urls(found) == ["http://gpu02:8002/v1"]
    assert found.left_out[1].endswith("port=NUMBER in its comment, or in its state file")


def test_a_row_for_which_any_fact_is_missing_costs_itself_only():
    for key in ("endpoint_id", "model", "key", "max_concurrent", "proxy", "api_client_type"):
        found = rows([job(1), job(2, comment="port=2 k=5")], **{key: "{comment.k}"})
        assert urls(found) == ["http://gpu02:2/v1"]
        assert found.left_out[1].startswith(f"{key} needs a text with {{comment.k}} in it")
    found = rows([job(1)], headers={"X-A": "{comment.k}"})
    assert found.left_out[1] == "headers.X-A needs a text with {comment.k} in it, which is not known of this server"


def test_a_number_of_slots_in_the_comment_is_a_number():
    assert only(job(comment="port=1 slots=12"), max_concurrent="{comment.slots}").max_concurrent == 12


@pytest.mark.parametrize("slots", ["0", "many", "-1", "1.5", "9999999999"])
def test_a_number_of_slots_that_is_none_costs_its_job_only(slots):
    found = rows(
        [job(1, comment=f"port=1 slots={slots}"), job(2, comment="port=2 slots=2")], max_concurrent="{comment.slots}"
    )
    assert urls(found) == ["http://gpu02:2/v1"]
    assert found.left_out[1] == f"max_concurrent needs a whole number above 0, got '{slots}'"


# --- nodes


def test_a_job_of_several_nodes_has_one_server_on_the_host_of_its_script():
    assert only(job(nodes="gpu[07-09]", batch_host="gpu08")).url == "http://gpu08:8001/v1"
    assert only(job(nodes="gpu[07-09]", batch_host="")).url == "http://gpu07:8001/v1"


def test_every_node_of_a_job_may_have_a_server():
    found = rows([job(nodes="gpu[07-09]", batch_host="gpu08")], every_node=True)
    assert urls(found) == [f"http://gpu0{number}:8001/v1" for number in (7, 8, 9)]


@pytest.mark.parametrize("nodes", ["", "gpu[", "n[1-99999]"])
def test_a_job_whose_nodes_cannot_be_told_costs_itself_only(nodes):
    found = rows([job(1, nodes=nodes, batch_host=""), job(2)])
    assert (urls(found), list(found.left_out)) == (["http://gpu02:8002/v1"], [1])


# --- two jobs, one URL


def test_of_two_jobs_with_one_url_the_one_that_stays_has_the_row():
    here = {"batch_host": "n1", "comment": "port=1"}
    leaving = job(5, state=["CANCELLED", "COMPLETING"], start=START + 50, **here)
    assert only(leaving, job(2, **here)).draining is None
    older, newer = job(9, end=NOW + 5, **here), job(2, start=START + 50, **here)
    assert only(older, newer).draining is None
    assert len(rows([leaving, job(2, **here)], endpoint_id="{job_id}").specs) == 2


def test_spellings_of_one_url_are_one_url():
    spellings = ("http://gw/j/A", "HTTP://GW/j/A/", "http://gw/j/a")
    jobs = [job(number, comment=f"url={url}") for number, url in enumerate(spellings, 1)]
    assert urls(rows(jobs)) == ["HTTP://GW/j/A/", "http://gw/j/a"]


def test_the_order_of_squeue_does_not_matter():
    jobs = [job(number) for number in (3, 1, 2)]
    assert rows(jobs).specs == rows(jobs[::-1]).specs


# --- what jobs write


def test_words_are_split_at_spaces_commas_and_semicolons():
    one = Job(1, frozenset({"RUNNING"}), comments=("a=1, b=2;c = 3\nd=x=y e", "a=9 -f=1"))
    assert comment_pairs(one) == {"a": "1", "b": "2", "d": "x=y"}


@pytest.mark.parametrize(
    ("data", "suffix"),
    [
        (b'{"port": 8000, "host": "a", "up": true, "load": 0.5, "more": {"x": 1}}', ".json"),
        (b'port = 8000\nhost = "a"\nup = true\nload = 0.5\n[more]\nx = 1\n', ".toml"),
    ],
)
def test_a_state_file_is_a_flat_table(data, suffix):
    assert state_pairs(data, suffix) == {"port": "8000", "host": "a", "up": "true", "load": "0.5"}


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"port": 80', b"port 80", b"\xff", b"{" * 9999, b"[" * 99999])
@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_a_state_file_that_is_not_whole_says_so(data, suffix):
    with pytest.raises(NotWhole):
        state_pairs(data, suffix)


@given(st.text(max_size=60), st.text(max_size=40))
def test_whatever_a_job_writes_its_row_has_texts_or_it_has_none(comment, extra):
    found = rows([job(1, comment=comment, extra=extra)], model="{comment.model|sim}", max_concurrent="{comment.n|4}")
    for spec in found.specs:
        assert isinstance(spec.url, str)
        assert spec.url.startswith("http")
    assert len(found.specs) + len(found.left_out) == 1
