"""The keys, read as scavenge reads them."""

from __future__ import annotations

import pytest
from gpucloud_kit import each_cloud
from scavenge_gpucloud import scavenge_endpoint_sources
from scavenge_gpucloud.config import PrimeConfig, RunPodConfig, VastConfig


def test_there_is_one_type_for_each_cloud():
    kinds = {kind.name: kind.config for kind in scavenge_endpoint_sources()}
    assert kinds == {"runpod": RunPodConfig, "vast": VastConfig, "prime": PrimeConfig}


@each_cloud
def test_four_keys_are_enough(case):
    config = case.template()
    assert config.api_url.startswith("https://")
    assert config.token_var.endswith("_API_KEY")


@each_cloud
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"token_var": "rpa_9C4 secret"}, "token_var: expected the name of an environment variable"),
        ({"token_var": ""}, "token_var: expected the name"),
        ({"api_url": "http://api.example.com"}, "api_url: expected an https URL"),
        ({"api_url": "ftp://127.0.0.1"}, "api_url: expected an https URL"),
        ({"api_url": "api.example.com"}, "api_url: expected the URL of the API"),
        ({"api_url": "https://user:word@api.example.com"}, "api_url: expected the URL of the API"),
        ({"api_url": "https://api.example.com?key=1"}, "api_url: expected the URL of the API"),
        ({"api_url": "https://api.example.com:port"}, "api_url: expected the URL of the API"),
        ({"api_url": "https://["}, "api_url: expected the URL of the API"),
        ({"statuses": []}, "statuses: expected a list with at least one status"),
        ({"statuses": [" "]}, "statuses: expected a list with at least one status"),
        ({"url": "http://{ip}:8000/v1"}, 'no fact "ip"'),
    ],
)
def test_a_wrong_value_is_named_with_its_remedy_and_a_secret_is_not_shown(case, keys, message):
    with pytest.raises(ValueError, match=message) as raised:
        case.template(**keys)
    assert "9C4" not in str(raised.value)
    assert "word" not in str(raised.value)


def test_an_api_on_this_machine_needs_no_tls():
    for url in ("http://127.0.0.1:8080", "http://localhost/v1", "http://[::1]:1"):
        assert RunPodConfig(endpoint_id="p", model="m", url="http://{address}", api_url=url).api_url == url


def test_vast_can_drain_before_the_rental_ends():
    keys = {"endpoint_id": "p", "model": "m", "url": "http://{address}"}
    assert VastConfig(**keys).drain_before_s == 300.0
    assert VastConfig(**keys, drain_before=0.0).drain_before_s == 0.0
    assert RunPodConfig(**keys).drain_before_s == 0.0
    with pytest.raises(ValueError, match="drain_before"):
        VastConfig(**keys, drain_before=-1.0)


def test_a_representation_shows_no_headers():
    config = RunPodConfig(endpoint_id="p", model="m", url="http://{address}", headers={"X-Key": "private"})
    assert "private" not in repr(config)
