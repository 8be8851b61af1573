"""The strategy of Hypothesis that makes histories for an admission policy. Needs Hypothesis; nothing else here does."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

from scavenge.signals import Ended, Ending, Flow, ServerLoad, WarmStart
from scavenge.testing.policy_histories import Told
from scavenge.types import CapChanged

T = TypeVar("T")
_TICKS_A_SECOND = 64


def histories(*, max_size: int = 60) -> st.SearchStrategy[list[Told]]:
    """Histories of anything that may happen at an endpoint, in any order, told with or without time between.

    versionadded: 0.1
    """
    times_s = st.integers(0, 1_000_000 * _TICKS_A_SECOND).map(lambda ticks: ticks / _TICKS_A_SECOND)
    short_s = st.integers(0, 40 * _TICKS_A_SECOND).map(lambda ticks: ticks / _TICKS_A_SECOND)
    waits_s = short_s | times_s
    return st.lists(st.builds(Told, waits_s, _events(waits_s)), max_size=max_size)


def _events(waits_s: st.SearchStrategy[float]) -> st.SearchStrategy[object]:
    counts = st.integers(0, 5000)
    amounts = st.floats(0.0, 1e9)
    ended = st.builds(
        Ended,
        ending=st.sampled_from(Ending),
        admitted_at=waits_s.map(lambda wait_s: -wait_s),
        in_flight=st.integers(1, 5000),
        duration_s=amounts,
        first_token_s=_perhaps(amounts),
        streamed=st.booleans(),
        prompt_tokens=_perhaps(amounts),
        output_tokens=_perhaps(amounts),
        cached_tokens=_perhaps(amounts),
    )
    flow = st.builds(
        Flow,
        span_s=amounts,
        in_flight=amounts,
        awaiting=amounts,
        stalled=amounts,
        output_tokens=amounts,
        prompt_tokens=amounts,
        streamed=st.floats(0.0, 1.0),
        in_flight_now=counts,
    )
    load = st.builds(
        ServerLoad,
        running=_perhaps(counts),
        waiting=_perhaps(counts),
        kv_usage=_perhaps(st.floats(0.0, 10.0)),
        kv_tokens=_perhaps(counts),
        slots=_perhaps(counts),
        preemptions=_perhaps(counts),
        prefix_queries=_perhaps(amounts),
        prefix_hits=_perhaps(amounts),
    )
    cap = st.builds(CapChanged, _perhaps(st.integers(1, 5000)))
    return st.one_of(ended, flow, load, cap, st.builds(WarmStart, st.integers(1, 5000)))


def _perhaps(values: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | values
