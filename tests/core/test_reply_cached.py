"""What replies say of caches: the prefix cache of the engine, and caches that answer in its place."""

from __future__ import annotations

import pytest

from scavenge.core.reply import is_from_cache, usage_of
from scavenge.types import Usage


@pytest.mark.parametrize(
    "document",
    [
        {"usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}},
        {"usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4}},
        {"usage": {"prompt_tokens": 9, "completion_tokens": 2}, "timings": {"cache_n": 4, "prompt_n": 5}},
        {
            "usage": {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": None},
                "prompt_cache_hit_tokens": 4,
            },
            "timings": {"cache_n": 5},
        },
    ],
)
def test_cached_tokens_are_read_where_each_server_has_them(document: dict[str, object]) -> None:
    assert usage_of(document) == Usage(9, 2, 4)


def test_none_cached_is_known() -> None:
    assert usage_of({"usage": {"prompt_tokens_details": {"cached_tokens": 0}}}) == Usage(None, None, 0)


@pytest.mark.parametrize("cached", [-1, True, "4", 4.0, [], {}, None, 10])
def test_what_is_no_count_of_cached_tokens_is_as_if_it_were_not_there(cached: object) -> None:
    for details in ({"cached_tokens": cached}, cached):
        usage = {"prompt_tokens": 9, "prompt_tokens_details": details, "prompt_cache_hit_tokens": cached}
        assert usage_of({"usage": usage, "timings": details}) == Usage(9)
    assert usage_of({"usage": cached, "timings": {"cache_n": cached}}).prompt_tokens is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-cache", "HIT"),
        ("x-cache", "Hit from cloudfront"),
        ("x-cache", "MISS, HIT"),
        ("cf-aig-cache-status", "HIT"),
        ("helicone-cache", "HIT"),
        ("x-openrouter-cache-status", "hit"),
        ("x-portkey-cache-status", "SEMANTIC HIT"),
        ("x-litellm-cache-key", "586bf3f3c1bf5aecb55bd9996494d3bb"),
        ("cache-status", "Origin; fwd=miss, Edge; hit; ttl=30"),
        ("cache-status", '"Edge";hit=?1'),
    ],
)
def test_a_cache_that_answered_says_so(name: str, value: str) -> None:
    assert is_from_cache({"content-type": "application/json", name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-cache", "MISS"),
        ("x-cache", "MISS from hit.example"),
        ("x-cache", "NONE, "),
        ("x-cache", ""),
        ("cf-aig-cache-status", "MISS"),
        ("cf-cache-status", "DYNAMIC"),
        ("helicone-cache", "MISS"),
        ("x-portkey-cache-status", "SEMANTIC MISS"),
        ("x-portkey-cache-status", "REFRESH"),
        ("x-litellm-cache-key", ""),
        ("x-litellm-cache-key", "None"),
        ("cache-status", "Edge; fwd=uri-miss; stored"),
        ("cache-status", "hit"),
        ("cache-status", "Edge; hit=?0"),
        ("cache-control", "hit"),
    ],
)
def test_all_else_is_the_engines_own_work(name: str, value: str) -> None:
    assert not is_from_cache({name: value})
    assert not is_from_cache({})
