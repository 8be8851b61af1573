from __future__ import annotations

import pytest
import trio

from scavenge.app.check_endpoint import look_at
from scavenge.edge.model_http import HttpModelTransport
from scavenge.types import Endpoint, EndpointId, Healthy, Url


class Silent:
    """A transport whose servers never answer a probe."""

    def __init__(self) -> None:
        self.closed = 0

    def open_client(self, endpoint: Endpoint) -> Silent:
        return self

    async def ask(self, request: object, stream: object = None) -> object:
        raise AssertionError("a check asks for no sample")

    async def probe(self, path: str) -> Healthy:
        await trio.sleep_forever()
        return Healthy()

    async def read_load(self) -> None:
        raise AssertionError("a check asks for no figures")

    def close(self) -> None:
        self.closed += 1


def endpoint(url: str) -> Endpoint:
    return Endpoint(EndpointId("glm"), "glm", Url(url))


async def test_a_server_that_never_answers_costs_a_deadline_and_leaves_no_client(autojump_clock):
    silent = Silent()
    found = await look_at(endpoint("http://127.0.0.1:9/v1"), silent, "/models")
    assert (found.outcome, found.said) == ("timeout", "no answer within 10 s")
    assert found.probe_s == 10
    assert silent.closed == 1


async def test_a_cancelled_look_closes_its_client(autojump_clock):
    silent = Silent()
    with trio.move_on_after(1) as impatient:
        await look_at(endpoint("http://127.0.0.1:9/v1"), silent, "/models")
    assert impatient.cancelled_caught
    assert silent.closed == 1


async def test_a_server_that_never_shakes_hands_costs_a_deadline(autojump_clock):
    with trio.socket.socket() as listener:
        await listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1"
        found = await look_at(endpoint(url), Silent(), "/models")
    assert found.tls == "no answer within 5 s"


@pytest.mark.parametrize("url", ["http://[::/v1", "ftp://a/v1"])
async def test_a_url_that_cannot_be_used_is_told(url):
    found = await look_at(endpoint(url), HttpModelTransport(), "/models")
    assert found.outcome == "misrouted"
    assert "url" in found.said


async def test_a_host_name_that_cannot_be_one_is_told():
    found = await look_at(endpoint(f"http://{'a' * 64}.example/v1"), HttpModelTransport(), "/models")
    assert found.addresses.endswith("no valid host name")
    assert found.outcome == "lost"
