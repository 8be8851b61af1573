"""What servers tell of themselves, read from real pages, from made ones and from garbage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scavenge.core.serverload import (
    is_of_llama_cpp,
    load_of_metrics,
    load_of_props,
    load_of_slots,
)
from scavenge.signals import ServerLoad

VLLM_PAGE = (Path(__file__).parent / "vllm_metrics.txt").read_bytes()
"""What vLLM 0.32.0 told with 24 requests on 16 places, without most histograms."""
VLLM_LOAD = ServerLoad(
    running=16,
    waiting=8,
    kv_usage=0.0020142830983336246,
    kv_tokens=2097152,
    preemptions=0,
    prefix_queries=3232.0,
    prefix_hits=1920.0,
)
LLAMA_PAGE = b"""# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 340
# TYPE llamacpp:prompt_tokens_cached_total counter
llamacpp:prompt_tokens_cached_total 60
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 4
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 7
"""


def load(*lines: str) -> ServerLoad | None:
    return load_of_metrics("\n".join(lines).encode())


def test_a_real_page_of_vllm() -> None:
    assert load_of_metrics(VLLM_PAGE) == VLLM_LOAD
    assert not is_of_llama_cpp(VLLM_PAGE)


def test_lines_may_end_as_on_another_system() -> None:
    assert load_of_metrics(VLLM_PAGE.replace(b"\n", b"\r\n")) == VLLM_LOAD


def test_a_page_of_llama_cpp_tells_no_slots() -> None:
    assert is_of_llama_cpp(LLAMA_PAGE)
    assert load_of_metrics(LLAMA_PAGE) == ServerLoad(running=4, waiting=7, prefix_queries=400.0, prefix_hits=60.0)


def test_an_older_llama_cpp_tells_how_full_its_cache_is() -> None:
    page = ["llamacpp:kv_cache_usage_ratio 0.25", "llamacpp:prompt_tokens_total 9", "llamacpp:requests_processing 1"]
    assert load(*page) == ServerLoad(running=1, kv_usage=0.25)


def test_the_names_of_older_versions_of_vllm() -> None:
    assert load(
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.5',
        'vllm:gpu_prefix_cache_queries_total{model_name="m"} 30',
        'vllm:gpu_prefix_cache_hits_total{model_name="m"} 20',
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0',
    ) == ServerLoad(kv_usage=0.5, kv_tokens=1600, prefix_queries=30.0, prefix_hits=20.0)


def test_the_newer_of_two_names_counts_unless_it_cannot_be_read() -> None:
    old = "vllm:gpu_cache_usage_perc 0.5"
    assert load(old, "vllm:kv_cache_usage_perc 0.25") == ServerLoad(kv_usage=0.25)
    assert load(old, "vllm:kv_cache_usage_perc NaN") == ServerLoad(kv_usage=0.5)


def test_engines_are_added_up_and_their_usage_is_the_mean() -> None:
    assert load(
        'vllm:num_requests_running{engine="0",model_name="m"} 3.0',
        'vllm:num_requests_running{engine="1",model_name="m"} 5.0',
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25',
        'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75',
        'vllm:cache_config_info{engine="0",kv_cache_size_tokens="1000",num_gpu_blocks="400",block_size="16"} 1.0',
        'vllm:cache_config_info{engine="1",kv_cache_size_tokens="None",num_gpu_blocks="100",block_size="16"} 1.0',
    ) == ServerLoad(running=8, kv_usage=0.5, kv_tokens=2600)


def test_parts_of_one_engine_and_repeated_samples_count_once() -> None:
    assert load(
        'sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 3',
        'sglang:num_running_reqs{dp_rank="0",tp_rank="1"} 3',
        'sglang:num_running_reqs{dp_rank="1",tp_rank="0"} 4',
        'sglang:num_queue_reqs{priority=""} 5',
        'sglang:num_queue_reqs{priority="1"} 2',
        'sglang:num_queue_reqs{priority=""} 5',
    ) == ServerLoad(running=7, waiting=5)


def test_a_page_of_sglang() -> None:
    page = [
        'sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} 30.0',
        'sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0"} 2.0',
        'sglang:token_usage{model_name="m"} 0.31',
        'sglang:max_total_num_tokens{model_name="m"} 471258.0',
        'sglang:num_retracted_reqs{model_name="m"} 9.0',
        'sglang:num_retracted_requests_total{model_name="m"} 4.0',
        'sglang:prompt_tokens_total{model_name="m"} 1000.0',
        'sglang:cached_tokens_total{cache_source="device",model_name="m"} 300.0',
        'sglang:cached_tokens_total{cache_source="host",model_name="m"} 100.0',
    ]
    expected = ServerLoad(30, 2, 0.31, 471258, preemptions=4, prefix_queries=1000.0, prefix_hits=400.0)
    assert load(*page) == expected
    assert load(*page, 'sglang:cached_tokens_total{cache_source="total",model_name="m"} 400.0') == expected


def test_sglang_may_tell_the_size_of_its_cache_in_pages() -> None:
    assert load('sglang:cache_config_info{page_size="64",num_pages="10"} 1.0') == ServerLoad(kv_tokens=640)


def test_a_gauge_of_sglang_that_goes_back_to_nothing_is_no_counter() -> None:
    assert load("sglang:num_retracted_reqs 9") is None


def test_pages_of_tensorrt_llm() -> None:
    assert load(
        'trtllm_num_requests_running{model_name="m"} 6',
        'trtllm_num_requests_waiting{model_name="m"} 1',
        'trtllm_kv_cache_utilization{model_name="m"} 0.5',
        'trtllm_kv_cache_max_blocks{model_name="m"} 100',
        'trtllm_kv_cache_tokens_per_block{model_name="m"} 32',
    ) == ServerLoad(running=6, waiting=1, kv_usage=0.5, kv_tokens=3200)
    assert load(
        'nv_trt_llm_request_metrics{model="t",request_type="waiting",version="1"} 2',
        'nv_trt_llm_request_metrics{model="t",request_type="scheduled",version="1"} 3',
        'nv_trt_llm_request_metrics{model="t",request_type="max",version="1"} 512',
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="t",version="1"} 64',
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="t",version="1"} 10',
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="t",version="1"} 0.125',
    ) == ServerLoad(running=3, waiting=2, kv_usage=0.125, kv_tokens=640)


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running",
        "vllm:num_requests_running ",
        "vllm:num_requests_running NaN",
        "vllm:num_requests_running +Inf",
        "vllm:num_requests_running -1",
        "vllm:num_requests_running 1e300",
        "vllm:num_requests_running many",
        'vllm:num_requests_running{engine="0} 1',
        'vllm:num_requests_running{engine="0" 12',
        "vllm:num_requests_running{engine=0} 1",
        "vllm:num_requests_running{" + 'a="b",' * 4000 + "} 1",
        "vllm:num_requests_running_of_late 1",
        "# vllm:num_requests_running 1",
        " vllm:num_requests_running 1",
        "vllm:kv_cache_usage_perc 37.5",
        'vllm:cache_config_info{kv_cache_size_tokens="None",num_gpu_blocks="0",block_size="16"} 1',
        "vllm:cache_config_info 1",
        "trtllm_kv_cache_max_blocks 100",
        '[{"numActiveRequests": 3}]',
        "<html><title>welcome</title></html>",
        "",
    ],
)
def test_what_cannot_be_read_is_as_if_it_were_not_there(line: str) -> None:
    assert load(line) is None
    assert load(line, "vllm:num_requests_waiting 4") == ServerLoad(waiting=4)


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running 3",
        "vllm:num_requests_running\t3.0  1795984032000",
        "vllm:num_requests_running{} 3",
        'vllm:num_requests_running { engine = "0" , } 3',
        r'vllm:num_requests_running{model_name="a \"quoted\" {name}, with } and \\"} 3',
        'vllm:num_requests_running{engine="0"} 3 # {trace_id="x"} 7.0',
        "vllm:num_requests_running 3\r",
    ],
)
def test_all_forms_of_a_sample_are_read(line: str) -> None:
    assert load(line) == ServerLoad(running=3)


def test_a_page_that_no_server_has_is_not_read() -> None:
    line = b'vllm:num_requests_running{engine="0"} 1\n'
    assert load_of_metrics(line * 10_000) == ServerLoad(running=1)
    assert load_of_metrics(line * 10_001) is None
    assert load_of_metrics(line + b"\n" * 100_000) is None


def slots(*states: object) -> ServerLoad | None:
    return load_of_slots(json.dumps(states).encode())


def test_the_slots_of_llama_cpp() -> None:
    assert slots({"id": 0, "is_processing": True}, {"id": 1, "is_processing": False}) == ServerLoad(running=1, slots=2)
    assert slots({"id": 0, "state": 0}, {"id": 1, "state": 1}, {"state": 2}) == ServerLoad(running=2, slots=3)
    assert slots({"is_processing": False}, 7, {"is_processing": "yes"}, {}) == ServerLoad(running=0, slots=1)


def test_a_list_without_slots_is_none() -> None:
    assert slots() is None
    assert slots({"id": 0}) is None
    assert load_of_slots(b'{"error": {"code": 501}}') is None
    assert load_of_slots(b"[") is None


def test_the_properties_of_llama_cpp() -> None:
    assert load_of_props(b'{"total_slots": 8, "model_path": "m.gguf"}') == ServerLoad(slots=8)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"total_slots": true}', b'{"total_slots": 0}', b'{"total_slots": 1e3}', b"[" * 99_999]
)
def test_properties_without_slots_are_none(body: bytes) -> None:
    assert load_of_props(body) is None


NAMES = st.sampled_from(
    [
        "vllm:num_requests_running",
        "vllm:kv_cache_usage_perc",
        "vllm:cache_config_info",
        "sglang:cached_tokens_total",
        "nv_trt_llm_kv_cache_block_metrics",
        "llamacpp:prompt_tokens_total",
    ]
)
LABELS = st.dictionaries(
    st.sampled_from(["engine", "tp_rank", "num_gpu_blocks", "block_size", "kv_cache_block_type"]),
    st.sampled_from(["0", "1", "max", "tokens_per", "1e15", "-3", "nan", "\\"]),
)
VALUES = st.one_of(st.floats().map(str), st.integers().map(str), st.text(max_size=5))


@st.composite
def lines(draw: st.DrawFn) -> str:
    inner = ",".join(f'{key}="{value}"' for key, value in draw(LABELS).items())
    return f"{draw(NAMES)}{{{inner}}} {draw(VALUES)}"


def check_sane(found: ServerLoad | None) -> None:
    if found is None:
        return
    assert found != ServerLoad()
    assert found.kv_usage is None or 0 <= found.kv_usage <= 1
    for count in (found.running, found.waiting, found.kv_tokens, found.slots, found.preemptions):
        assert count is None or (type(count) is int and count >= 0)
    for tokens in (found.prefix_queries, found.prefix_hits):
        assert tokens is None or 0 <= tokens < float("inf")


@given(st.lists(lines(), max_size=6).map("\n".join), st.binary(max_size=30), st.integers(0, 400))
@example("", b"\xff\xfe", 0)
def test_no_page_raises_nor_gives_figures_that_cannot_be(page: str, noise: bytes, at: int) -> None:
    body = page.encode(errors="replace")
    check_sane(load_of_metrics(body[:at] + noise + body[at:]))


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["is_processing", "state", "total_slots", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.one_of(JSONS.map(lambda value: json.dumps(value).encode()), st.binary(max_size=40)))
def test_no_json_raises_nor_gives_figures_that_cannot_be(body: bytes) -> None:
    check_sane(load_of_slots(body))
    check_sane(load_of_props(body))
