"""A server's own figures out of the pages on which it tells them -> :class:`scavenge.signals.ServerLoad`. Pure.

Pages: metrics in the text format of Prometheus (vLLM, SGLang, llama.cpp, TensorRT-LLM, also behind Triton), llama.cpp's
``/slots`` and ``/props``. The names are those of the servers' own documentation and sources, read in 2026.

Nothing raises, whatever a page holds: what cannot be read is as if it were not there, and a page without a figure that
is known here gives ``None``. A value that is no finite number from 0 to :data:`MOST` is such a thing; so is a part of
more than one.

Samples of one name that differ in what marks an engine are added up, of parts the mean is taken. Those that differ only
in :data:`_REPLICAS` speak of the same thing, and the greatest counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs

from scavenge.core.plainjson import read_json_fast
from scavenge.signals import ServerLoad

MOST = 1e15
"""A greater count is none."""

_Labels: TypeAlias = "dict[str, str]"
_Samples: TypeAlias = "dict[str, list[tuple[_Labels, float]]]"

_REPLICAS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid", "priority"})
"""Labels of the parts of one engine that all tell of the whole (a sample without a priority is that of all)."""
_MOST_LINES = 100_000
_MOST_SAMPLES = 10_000
_LONGEST_LINE = 16_384
"""Pages and lines beyond that are no server's: reading them would only take long."""
_LABEL = re.compile(rb'[\s,]*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_BLANKS_AND_COMMA = b" \t,"


@attrs.frozen
class _Figure:
    """Where a figure stands: a name, and a label that tells it from others under that name."""

    name: str
    label: tuple[str, str] | None = None

    def has(self, labels: _Labels) -> bool:
        """Whether a sample with such labels is it."""
        return self.label is None or labels.get(self.label[0]) == self.label[1]


_TRITON_REQUESTS, _TRITON_BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"

# Of several figures the first that a page has counts: newer names stand before older ones.
_RUNNING = (
    _Figure("vllm:num_requests_running"),
    _Figure("sglang:num_running_reqs"),
    _Figure("llamacpp:requests_processing"),
    _Figure("trtllm_num_requests_running"),
    _Figure(_TRITON_REQUESTS, ("request_type", "scheduled")),
)
_WAITING = (
    _Figure("vllm:num_requests_waiting"),
    _Figure("sglang:num_queue_reqs"),
    _Figure("llamacpp:requests_deferred"),
    _Figure("trtllm_num_requests_waiting"),
    _Figure(_TRITON_REQUESTS, ("request_type", "waiting")),
)
_KV_USAGE = (
    _Figure("vllm:kv_cache_usage_perc"),  # a part of one in spite of its name
    _Figure("vllm:gpu_cache_usage_perc"),
    _Figure("sglang:token_usage"),
    _Figure("llamacpp:kv_cache_usage_ratio"),
    _Figure("trtllm_kv_cache_utilization"),
    _Figure(_TRITON_BLOCKS, ("kv_cache_block_type", "fraction")),
)
_KV_TOKENS = (_Figure("sglang:max_total_num_tokens"),)
_KV_INFO = (  # gauges whose labels say it: directly, or as the product of two
    ("vllm:cache_config_info", "kv_cache_size_tokens", "num_gpu_blocks", "block_size"),
    ("sglang:cache_config_info", "", "num_pages", "page_size"),
)
_KV_BLOCKS = (
    (_Figure("trtllm_kv_cache_max_blocks"), _Figure("trtllm_kv_cache_tokens_per_block")),
    (
        _Figure(_TRITON_BLOCKS, ("kv_cache_block_type", "max")),
        _Figure(_TRITON_BLOCKS, ("kv_cache_block_type", "tokens_per")),
    ),
)
_PREEMPTIONS = (
    _Figure("vllm:num_preemptions_total"),
    _Figure("sglang:num_retracted_requests_total"),  # num_retracted_reqs is no counter: it goes back to 0
)
_PREFIX_QUERIES = (
    _Figure("vllm:prefix_cache_queries_total"),
    _Figure("vllm:gpu_prefix_cache_queries_total"),
    _Figure("sglang:prompt_tokens_total"),
)
_PREFIX_HITS = (
    _Figure("vllm:prefix_cache_hits_total"),
    _Figure("vllm:gpu_prefix_cache_hits_total"),
    _Figure("sglang:cached_tokens_total", ("cache_source", "total")),
    _Figure("sglang:cached_tokens_total"),  # a sample for each kind of memory
)
_LLAMA_READ = (_Figure("llamacpp:prompt_tokens_total"),)  # without those that it found
_LLAMA_FOUND = (_Figure("llamacpp:prompt_tokens_cached_total"),)
_FIGURES = (_RUNNING, _WAITING, _KV_USAGE, _KV_TOKENS, *_KV_BLOCKS, _PREEMPTIONS, _PREFIX_QUERIES, _PREFIX_HITS)
_NAMES = {figure.name for figures in (*_FIGURES, _LLAMA_READ, _LLAMA_FOUND) for figure in figures}
_NAMES |= {info[0] for info in _KV_INFO}
_SAMPLE = re.compile(b"\n(%s)(?=[{ \t])([^\n]*)" % b"|".join(re.escape(name.encode()) for name in sorted(_NAMES)))


def load_of_metrics(body: bytes) -> ServerLoad | None:
    """The figures on a page of metrics."""
    samples = _samples(body)
    queries, hits = _prefixes(samples)
    load = ServerLoad(
        running=_whole(_sum(samples, _RUNNING)),
        waiting=_whole(_sum(samples, _WAITING)),
        kv_usage=_mean_part(samples, _KV_USAGE),
        kv_tokens=_whole(_kv_tokens(samples)),
        preemptions=_whole(_sum(samples, _PREEMPTIONS)),
        prefix_queries=queries,
        prefix_hits=hits,
    )
    return None if load == ServerLoad() else load


def is_of_llama_cpp(body: bytes) -> bool:
    """Whether a page of metrics is llama.cpp's, which tells its slots elsewhere."""
    return b"llamacpp:requests_processing" in body


def load_of_slots(body: bytes) -> ServerLoad | None:
    """The figures in llama.cpp's list of slots; what waits for one is not in it."""
    document = _json(body)
    states = [_is_busy(slot) for slot in document] if isinstance(document, list) else []
    busy = [state for state in states if state is not None]
    return ServerLoad(running=sum(busy), slots=len(busy)) if busy else None


def load_of_props(body: bytes) -> ServerLoad | None:
    """The number of slots in llama.cpp's properties."""
    document = _json(body)
    slots = document.get("total_slots") if isinstance(document, Mapping) else None
    return ServerLoad(slots=slots) if type(slots) is int and 0 < slots <= MOST else None


def _json(body: bytes) -> object:
    try:
        return read_json_fast(body)
    except ValueError:
        return None


def _is_busy(slot: object) -> bool | None:
    """Whether a slot works on a request; older builds have a number, in which 0 is idle, in place of a truth value."""
    if not isinstance(slot, Mapping):
        return None
    busy, state = slot.get("is_processing"), slot.get("state")
    if isinstance(busy, bool):
        return busy
    return state != 0 if type(state) is int else None


# --- the text format of Prometheus


def _samples(body: bytes) -> _Samples:
    """The samples that are known here, as far as they can be read."""
    found: _Samples = {}
    if body.count(b"\n") > _MOST_LINES:
        return found
    for number, match in enumerate(_SAMPLE.finditer(b"\n" + body)):
        if number == _MOST_SAMPLES:
            return {}
        if (sample := _sample(match[2])) is not None:
            found.setdefault(match[1].decode(), []).append(sample)
    return found


def _sample(rest: bytes) -> tuple[_Labels, float] | None:
    """The labels and the value of a line after the name; a time and an exemplar may follow."""
    if len(rest) > _LONGEST_LINE:
        return None
    labels: _Labels = {}
    rest = rest.lstrip(b" \t")
    if rest[:1] == b"{":
        at = 1
        while (match := _LABEL.match(rest, at)) is not None:
            labels[match[1].decode()] = match[2].decode(errors="replace")
            at = match.end()
        rest = rest[at:].lstrip(_BLANKS_AND_COMMA)
        if rest[:1] != b"}":
            return None
        rest = rest[1:]
    value = _number((rest.split(None, 1) or [b""])[0])
    return None if value is None else (labels, value)


def _number(text: bytes | str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= MOST else None  # NaN is neither


# --- from samples to figures


def _engines(samples: _Samples, figure: _Figure) -> dict[frozenset[tuple[str, str]], float]:
    """The value for each engine, by its labels."""
    found: dict[frozenset[tuple[str, str]], float] = {}
    for labels, value in samples.get(figure.name, ()):
        if figure.has(labels):
            engine = frozenset(label for label in labels.items() if label[0] not in _REPLICAS)
            found[engine] = max(value, found.get(engine, 0.0))
    return found


def _sum(samples: _Samples, figures: Iterable[_Figure]) -> float | None:
    for figure in figures:
        if engines := _engines(samples, figure):
            return sum(engines.values())
    return None


def _mean_part(samples: _Samples, figures: Iterable[_Figure]) -> float | None:
    for figure in figures:
        if parts := [value for value in _engines(samples, figure).values() if value <= 1]:
            return sum(parts) / len(parts)
    return None


def _prefixes(samples: _Samples) -> tuple[float | None, float | None]:
    """Tokens that were looked up in the prefix cache, and those that were found."""
    read, found = _sum(samples, _LLAMA_READ), _sum(samples, _LLAMA_FOUND)
    if read is not None and found is not None:
        return read + found, found
    return _sum(samples, _PREFIX_QUERIES), _sum(samples, _PREFIX_HITS)


def _kv_tokens(samples: _Samples) -> float | None:
    told = _sum(samples, _KV_TOKENS)
    for name, *labels in _KV_INFO:
        told = told or _of_info(samples.get(name, ()), labels)
    for blocks, tokens in _KV_BLOCKS:
        told = told or _product(_engines(samples, blocks).values(), _engines(samples, tokens).values())
    return told or None


def _of_info(infos: Sequence[tuple[_Labels, float]], labels: Sequence[str]) -> float:
    """Tokens by the labels of a gauge, of all engines together."""
    engines: dict[tuple[str, str], float] = {}
    for info, _ in infos:
        whole, blocks, size = (_number(info.get(label, "")) for label in labels)
        tokens = whole or (blocks or 0.0) * (size or 0.0)
        engine = (info.get("engine", ""), info.get("dp_rank", ""))
        engines[engine] = max(tokens, engines.get(engine, 0.0))
    return sum(engines.values())


def _product(blocks: Iterable[float], tokens: Iterable[float]) -> float:
    """Blocks of all engines times the tokens of one, which are as many in each."""
    return sum(blocks) * max(tokens, default=0.0)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
