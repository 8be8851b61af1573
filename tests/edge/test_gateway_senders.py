"""Who may ask the gateway."""

from __future__ import annotations

import pytest
from gateway_kit import open_gateway
from raw_client import PATH, TOKEN, get, post

from scavenge.calls import Page
from scavenge.edge.gateway.routes import is_local

PAGES = {"/health": lambda: Page(200, "text/plain", b"well"), "/status": lambda: Page(200, "text/plain", b"open")}


@pytest.mark.parametrize(("request_bytes", "said"), [
    (post(token=None), "there is no API key"),
    (post(token="wrong"), "there is a wrong API key"),
    (post(token=""), "there is a wrong API key"),
    (post(token=TOKEN + "x"), "there is a wrong API key"),
    (post(token=TOKEN[:-1]), "there is a wrong API key"),
    (post(token="ü"), "there is a wrong API key"),
    (post(token=None, Authorization=f"Basic {TOKEN}"), "there is a wrong API key"),
    (post(token=None, Authorization=TOKEN), "there is a wrong API key"),
    (post(token=None, Api_Key=TOKEN), "there is no API key"),
    (post(token=None, path=f"{PATH}?token={TOKEN}"), "there is no API key"),
    (get("/v1/models", token=None), "there is no API key"),
    (get("/session/a", "DELETE", token=None), "there is no API key"),
    (get("/status", token=None), "there is no API key"),
])  # fmt: skip
async def test_without_the_token_nothing_is_answered(request_bytes, said):
    async with open_gateway(pages=PAGES) as gateway, gateway.client() as client:
        for _ in range(2):
            reply = await client.ask(request_bytes)
            assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
            assert said in reply.error["message"]
        assert gateway.door.calls == []
        assert TOKEN not in reply.body.decode()
        assert (await client.ask(post())).status == 200


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer  {TOKEN}", f"BEARER {TOKEN}"])
async def test_the_token_is_taken_as_clients_write_it(given):
    async with open_gateway() as gateway, gateway.client() as client:
        assert (await client.ask(post(token=None, Authorization=given))).status == 200


async def test_the_page_for_health_checks_needs_no_token():
    async with open_gateway(pages=PAGES) as gateway, gateway.client() as client:
        assert (await client.ask(get("/health", token=None))).body == b"well"
        assert (await client.ask(get("/status"))).body == b"open"


async def test_a_web_page_with_the_token_may_ask():
    async with open_gateway() as gateway, gateway.client() as client:
        assert (await client.ask(post(Origin="https://chat.example", Host="gateway.example"))).status == 200


# --- without a token


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost:8400", "LocalHost", "[::1]:8400", "127.8.9.1"])
async def test_whoever_is_on_this_machine_may_ask_where_there_is_no_token(host):
    async with open_gateway(token=None, pages=PAGES) as gateway, gateway.client() as client:
        assert (await client.ask(post(token=None, Host=host))).status == 200
        assert (await client.ask(post(token="whatever", Host=host))).status == 200
        assert (await client.ask(get("/status", token=None, Host=host))).status == 200


async def test_an_old_client_that_names_no_host_may_ask():
    async with open_gateway(token=None) as gateway, gateway.client() as client:
        reply = await client.ask(post(Host="").replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert reply.status == 200


@pytest.mark.parametrize("fields", [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:3000"},
    {"Host": "evil.example"},
    {"Host": "evil.example:8400"},
    {"Host": "127.0.0.1.evil.example"},
    {"Host": "localhost.evil.example"},
    {"Host": "10.0.0.7"},
    {"Host": "0.0.0.0"},
    {"Host": "[::1"},
    {"Host": ":8400"},
])  # fmt: skip
async def test_a_web_page_is_refused_where_there_is_no_token(fields):
    async with open_gateway(token=None, pages=PAGES) as gateway, gateway.client() as client:
        for data in (post(**{"Host": "localhost", **fields}), get("/health", **fields), get("/none", **fields)):
            reply = await client.ask(data)
            assert reply.status == 403
            assert "see --token-var" in reply.error["message"]
        assert gateway.door.calls == []


@pytest.mark.parametrize(("host", "local"), [
    ("localhost", True), ("127.0.0.1", True), ("[::1]", True), ("[::1]:1", True), ("127.1.2.3:99", True),
    ("", False), ("[127.0.0.1]", True), ("127.0.0.1:", True), ("[::]", False), ("::", False), ("localhost:x", False),
    ("user@localhost", False), ("localhost, evil.example", False), ("0177.0.0.1", False), ("2130706433", False),
])  # fmt: skip
def test_what_counts_as_this_machine(host, local):
    assert is_local(host) is local
