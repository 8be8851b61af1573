"""The keys of a source: what is refused, and with which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from consul_kit import service_config
from scavenge_consul import ConsulConfig

HERE = "http://127.0.0.1:8500"


def test_a_service_needs_what_a_row_needs_and_a_stored_file_has_it():
    service_config(HERE)
    ConsulConfig(kv="scavenge/endpoints.toml")
    with pytest.raises(ValueError, match="service needs endpoint_id and url as well"):
        ConsulConfig(service="llm", model="m")
    for keys, named in (
        ({"model": "m"}, "model"),
        ({"tags": ["a"]}, "tags"),
        ({"max_concurrent": 3}, "max_concurrent"),
    ):
        with pytest.raises(ValueError, match=f"kv excludes {named}; the stored rows have their own keys"):
            ConsulConfig(kv="k", **keys)


@pytest.mark.parametrize("keys", [{}, {"service": "a", "kv": "b"}])
def test_there_is_one_thing_to_ask_for(keys):
    with pytest.raises(ValueError, match="set `service` for the instances of a service, or `kv`"):
        ConsulConfig(**keys)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"url": "http://{adress}/v1"}, 'no fact "adress"; did you mean "address"'),
        ({"service": " "}, "expected a non-empty string"),
        ({"service": "a\nb"}, "of printable characters"),
        ({"dc": ""}, "expected a non-empty string"),
        ({"tags": ["a", ""]}, "expected a list of non-empty strings"),
        ({"wait": 0.5}, "expected seconds from 1 to 600, got 0.5"),
        ({"wait": 601}, "expected seconds from 1 to 600, got 601"),
        ({"wait": float("nan")}, "expected seconds from 1 to 600, got nan"),
        ({"token_var": "5eb0c4-1234"}, "expected the name of an environment variable, not the token itself"),
        ({"key_file": Path("k")}, "key_file needs cert_file"),
        (
            {"ca_file": Path("c"), "server_name": "n"},
            "ca_file, server_name: only for an address that begins with https",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(keys, said):
    with pytest.raises(ValueError, match=said):
        service_config(HERE, **keys)


@pytest.mark.parametrize(
    "address",
    ["", "localhost:8500", "unix:///a", "http://", "http://a b", "http://u:p@h", "http://h?x", "http://h:0", "http://h:x",
     "http://h#a", "http://[::1", "http://ü"],
)  # fmt: skip
def test_an_address_is_the_url_of_an_agent_and_is_not_repeated(address):
    with pytest.raises(ValueError, match="expected the http:// or https:// URL") as caught:
        service_config(address)
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize("address", ["http://[::1]:8500", "https://consul.example.org/prefix/"])
def test_these_are_addresses(address):
    assert service_config(address).address == address


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a/../b", ".", "a\nb"])
def test_a_key_is_one_key(key):
    with pytest.raises(ValueError, match="expected the name of one key"):
        ConsulConfig(kv=key)
