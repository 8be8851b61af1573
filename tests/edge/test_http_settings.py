"""Settings that cannot make a request, and probes."""

from __future__ import annotations

import pytest
from http_cases import (
    ASK,
    an_endpoint,
    asked,
    cut,
)
from raw_server import (
    raw_server,
    reply,
    script_of,
)

from scavenge.edge.model_http import HttpModelTransport
from scavenge.errors import UsageError
from scavenge.types import (
    ChatRequest,
    Endpoint,
    EndpointId,
    Failed,
    Healthy,
    Lost,
    Misrouted,
    Rejected,
    Url,
)


@pytest.mark.parametrize(
    "more",
    [
        {"headers": {"x-token": "a\r\nb: c"}},
        {"headers": {"x token": "a"}},
        {"headers": {"x-token": "€"}},
        {"headers": {"content-length": "7"}},
        {"proxy": "https://127.0.0.1:9"},
        {"proxy": "http://"},
    ],
)
async def test_settings_that_cannot_make_a_request_are_an_outcome(more: dict[str, object]) -> None:
    outcome = (await asked("http://127.0.0.1:9/v1", **more)).outcome
    assert isinstance(outcome, Misrouted)
    assert not outcome.curable
    client = HttpModelTransport().open_client(an_endpoint("http://127.0.0.1:9/v1", **more))
    assert await client.probe("/models") == outcome
    for open_http in (lambda: client.http, client.open_http):
        with pytest.raises(UsageError):
            open_http()
    client.close()


async def test_a_key_with_a_newline_is_named_but_not_shown() -> None:
    endpoint = Endpoint(EndpointId("p"), "m", Url("http://127.0.0.1:9/v1"), secret="sk-abcdef\n")
    outcome = (await HttpModelTransport().open_client(endpoint).ask(ASK)).outcome
    assert isinstance(outcome, Misrouted)
    assert "authorization" in outcome.message
    assert "abcdef" not in outcome.message


async def test_a_request_that_is_no_json_is_rejected_without_being_sent() -> None:
    outcome = (await asked("http://127.0.0.1:9/v1", ChatRequest(ASK.messages, {"stop": object()}))).outcome
    assert isinstance(outcome, Rejected)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (reply(b'{"data": [{"id": "some/model"}]}'), Healthy()),
        (reply(b'{"detail": "Not Found"}', "404 Not Found"), Healthy(listed=False)),
        (reply(b"", "405 Method Not Allowed"), Healthy(listed=False)),
    ],
)
async def test_a_probe_that_is_answered(raw: bytes, expected: Healthy) -> None:
    async with raw_server(script_of(raw)) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        assert await client.probe("/models") == expected
        client.close()


async def test_a_probe_without_the_model_names_the_nearest_and_what_was_tried() -> None:
    async with raw_server(script_of(reply(b'{"data": [{"id": "some/modell"}]}'))) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        outcome = await client.probe("models")
        client.close()
    assert isinstance(outcome, Misrouted)
    assert outcome.curable
    assert "'some/modell'" in outcome.message
    assert f"GET {server.url}/models" in outcome.message


@pytest.mark.parametrize("steps", [(cut,), (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc", cut)])
async def test_a_probe_without_a_whole_answer_is_lost(steps: tuple[object, ...]) -> None:
    async with raw_server(script_of(*steps)) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        assert isinstance(await client.probe("/models"), Lost)
        client.close()


async def test_a_probe_does_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scavenge.edge.model_http.PROBE_BODY_BYTES", 1000)
    async with raw_server(script_of(reply(b"x" * 5000))) as server:
        client = HttpModelTransport().open_client(an_endpoint(server.url))
        assert isinstance(await client.probe("/models"), Failed)
        client.close()


@pytest.mark.parametrize("path", ["/\x01", "/" + "x" * 70_000])
async def test_a_probe_whose_path_cannot_be_part_of_a_url_is_misrouted(path: str) -> None:
    client = HttpModelTransport().open_client(an_endpoint("http://127.0.0.1:9/v1"))
    outcome = await client.probe(path)
    assert isinstance(outcome, Misrouted)
    assert "health.path" in outcome.message
