"""The keys, as the evaluation file's reader takes them."""

from __future__ import annotations

import pytest
from kube_kit import config


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("selector", "", 'must name labels, such as "app=vllm"'),
        ("selector", "  ", "must name labels"),
        ("resource", "services", 'must be "pods" or "endpointslices"'),
        ("namespace", "", "must be the name of one"),
        ("namespace", "a/../b", "must be the name of one"),
        ("namespace", "Ml", "must be the name of one"),
        ("namespace", "a" * 64, "must be the name of one"),
        ("port", 0, "must be from 1 to 65535"),
        ("port", 65536, "must be from 1 to 65535"),
        ("port", "", "must be a number without quotes"),
        ("port", "8000", "must be a number without quotes"),
        ("ip_family", "6", 'must be "IPv4" or "IPv6"'),
        ("context", "", "must be the name of one"),
        ("relist_interval", 0.5, "must be from 1 to 3600 seconds"),
        ("relist_interval", float("nan"), "must be from 1 to 3600 seconds"),
        ("relist_interval", float("inf"), "must be from 1 to 3600 seconds"),
        ("url", "http://{adress}:{port}/v1", 'did you mean "address"?'),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_do(key, value, words):
    with pytest.raises(ValueError) as caught:
        config(**{key: value})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "keys",
    [
        {"namespace": "*"},
        {"namespace": "ml-2"},
        {"port": "http"},
        {"port": 8000},
        {"ip_family": "IPv6", "resource": "endpointslices"},
        {"relist_interval": 1.0, "context": "prod"},
        {"model": "{label.model}", "max_concurrent": "{annotation.scavenge/slots|8}"},
    ],
)
def test_right_values_are_taken(keys):
    config(**keys)
