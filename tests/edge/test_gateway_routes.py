"""Where the gateway has what, under which methods, and what is told of all the rest."""

from __future__ import annotations

import pytest
from gateway_kit import Door, open_gateway
from raw_client import MESSAGES, get, post

from scavenge.calls import Page
from scavenge.edge.gateway.routes import CallRoute, ModelsRoute, PageRoute, SessionRoute, path_of, route_of
from scavenge.edge.gateway.wire import Head, Refusal
from scavenge.types import ApiType

CHAT, TEXT = ApiType.CHAT_COMPLETIONS, ApiType.COMPLETIONS


def found(path: str, method: str, session: str | None = None):
    fields = {} if session is None else {b"x-scavenge-session": session.encode()}
    return route_of(Head(method, path, fields), ("/health",))


@pytest.mark.parametrize(("method", "path", "route"), [
    ("POST", "/v1/chat/completions", CallRoute(CHAT)),
    ("POST", "/v1/completions", CallRoute(TEXT)),
    ("POST", "/session/a/v1/chat/completions", CallRoute(CHAT, "a")),
    ("POST", "/session/a%2Fb%20%C3%BC/v1/completions", CallRoute(TEXT, "a/b ü")),
    ("POST", "/session/session/v1/completions", CallRoute(TEXT, "session")),
    ("POST", f"{path_of('x' * 200)}/completions", CallRoute(TEXT, "x" * 200)),
    ("GET", "/v1/models", ModelsRoute()),
    ("HEAD", "/v1/models", ModelsRoute()),
    ("GET", "/v1/models/org/sim%20a", ModelsRoute("org/sim a")),
    ("GET", "/session/a/v1/models", ModelsRoute()),
    ("GET", "/session/a/v1/models/org/sim", ModelsRoute("org/sim")),
    ("DELETE", "/session/a", SessionRoute("a")),
    ("GET", "/health", PageRoute("/health")),
    ("HEAD", "/health", PageRoute("/health")),
])  # fmt: skip
def test_what_there_is(method, path, route):
    assert found(path, method) == route


def test_a_session_can_be_named_by_a_header():
    assert found("/v1/completions", "POST", "b ü") == CallRoute(TEXT, "b ü")
    assert found("/session/b/v1/completions", "POST", "b") == CallRoute(TEXT, "b")
    with pytest.raises(Refusal, match='the URL names the session "a", X-Scavenge-Session "b": name one') as raised:
        found("/session/a/v1/completions", "POST", "b")
    assert raised.value.status == 400


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\u2028b", "\0"])
def test_a_session_has_a_name_of_some_printable_characters(name):
    with pytest.raises(Refusal, match="a session's id has 1 to 200 printable characters") as raised:
        found("/v1/completions", "POST", name)
    assert raised.value.status == 400
    if name:
        with pytest.raises(Refusal, match="a session's id has 1 to 200 printable characters"):
            found(f"{path_of(name)}/completions", "POST")


def test_a_name_that_is_no_text_is_refused():
    for path in ("/session/%ff/v1/completions", "/v1/models/%ff"):
        with pytest.raises(Refusal, match=r"a name in the request is no UTF-8: b'\\xff'") as raised:
            found(path, "POST")
        assert raised.value.status == 400


@pytest.mark.parametrize(("path", "meant"), [
    ("/v1/chat/completions/", "/v1/chat/completions"),
    ("/v1//chat/completions", "/v1/chat/completions"),
    ("//v1/chat/completions", "/v1/chat/completions"),
    ("/v1/v1/chat/completions", "/v1/chat/completions"),
    ("/v1/v1/models", "/v1/models"),
    ("/v1/models/", "/v1/models"),
    ("/chat/completions", "/v1/chat/completions"),
    ("/session/a/chat/completions", "/session/a/v1/chat/completions"),
    ("/session/a//v1/v1/chat/completions/", "/session/a/v1/chat/completions"),
    ("/session/a/", "/session/a"),
    ("/health/", "/health"),
])  # fmt: skip
def test_a_likely_mistake_is_named(path, meant):
    with pytest.raises(Refusal, match=f'there is no "{path}" here, but "{meant}": look at the base URL') as raised:
        found(path, "POST")
    assert raised.value.status == 404


@pytest.mark.parametrize("path", [
    "/", "", "*", "gateway:443", "/v1", "/v2/chat/completions", "/v1/embeddings", "/session", "/session/",
    "/session//v1/chat/completions", "/session/a/b/v1/chat/completions", "/session/a/health", "/v1/chat/completionsx",
    "/v1/" * 1000,
])  # fmt: skip
def test_of_all_else_it_is_told_what_there_is(path):
    with pytest.raises(Refusal) as raised:
        found(path, "POST")
    assert (raised.value.status, raised.value.code) == (404, "unknown_url")
    assert "POST /v1/chat/completions, POST /v1/completions, GET /v1/models, GET /health" in str(raised.value)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(("method", "path", "allowed"), [
    ("GET", "/v1/chat/completions", "POST"),
    ("OPTIONS", "/session/a/v1/completions", "POST"),
    ("POST", "/v1/models", "GET, HEAD"),
    ("POST", "/health", "GET, HEAD"),
    ("GET", "/session/a", "DELETE"),
    ("X" * 1000, "/session/a", "DELETE"),
])  # fmt: skip
def test_another_method_is_told_the_right_ones(method, path, allowed):
    with pytest.raises(Refusal, match="is not possible here; there is POST") as raised:
        found(path, method)
    assert (raised.value.status, raised.value.headers) == (405, {"Allow": allowed})
    assert len(str(raised.value)) < 500


# --- what is there


async def test_the_models_as_openais_clients_list_them():
    async with open_gateway() as gateway, gateway.client() as client:
        listed = await client.ask(get("/v1/models"))
        one = (await client.ask(get("/session/s1/v1/models/org%2Fsim"))).json
        none = await client.ask(get("/v1/models/sim"))
        await client.send(get("/v1/models", "HEAD"))
        empty = await client.reply("HEAD")
        gateway.door.cards.clear()
        assert "there is none" in (await client.ask(get("/v1/models/sim"))).error["message"]
    first = {"id": "org/sim", "object": "model", "created": 0, "owned_by": "scavenge", "root": "sim"}
    assert one == first
    assert listed.json == {"object": "list", "data": [first, {**first, "id": "other", "root": "other"}]}
    assert (none.status, none.error["code"]) == (404, "model_not_found")
    assert 'there is no model "sim"; there is "org/sim", "other"' in none.error["message"]
    assert (empty.status, empty.body) == (200, b"")
    assert {**empty.headers, "date": ""} == {**listed.headers, "date": ""}


async def test_a_session_can_be_ended_once():
    door = Door(sessions={"a b"})
    async with open_gateway(door) as gateway, gateway.client() as client:
        assert (await client.ask(post(path=path_of("a b") + "/chat/completions"))).status == 200
        ended = await client.ask(get("/session/a%20b", "DELETE"))
        assert (ended.status, ended.body) == (204, b"")
        assert "content-length" not in ended.headers
        again = await client.ask(get("/session/a%20b", "DELETE"))
        assert (again.status, again.error["code"]) == (404, "unknown_session")


async def test_pages_are_shown_as_they_are_now():
    shown = iter([b"one", b"two", b"three"])
    pages = {"/status": lambda: Page(503, "text/plain; version=1", next(shown))}
    async with open_gateway(pages=pages) as gateway, gateway.client() as client:
        first = await client.ask(get("/status?verbose"))
        second = await client.ask(get("/status"))
        await client.send(get("/status", "HEAD"))
        third = await client.reply("HEAD")
    assert (first.status, first.headers["content-type"], first.body) == (503, "text/plain; version=1", b"one")
    assert second.body == b"two"
    assert (third.body, third.headers["content-length"]) == (b"", "5")


async def test_a_page_with_a_bug_is_a_bug():
    error = RuntimeError("our mistake")

    def page() -> Page:
        raise error

    async with open_gateway(pages={"/status": page}) as gateway, gateway.client() as client:
        assert (await client.ask(get("/status"))).status == 500
        assert await client.at_end()
        assert gateway.bugs == [error]
        gateway.bugs.clear()


async def test_a_request_with_a_body_where_none_is_wanted_is_answered_and_its_body_skipped():
    async with open_gateway() as gateway, gateway.client() as client:
        data = post({"messages": MESSAGES}, path="/v1/models").replace(b"POST", b"GET", 1)
        for _ in range(2):
            assert (await client.ask(data)).json["object"] == "list"
