"""TLS, and tunnels through a proxy."""

from __future__ import annotations

import ssl

import pytest
import trio
import trio.testing
import trustme
from http_cases import (
    ASK,
    WHOLE,
    client_of,
)
from raw_server import (
    STREAM_HEAD,
    Conn,
    chunk,
    delta,
    raw_server,
    reply,
    script_of,
)

from scavenge.edge.http.tls import shared_context
from scavenge.edge.model_http import HttpModelTransport
from scavenge.types import (
    ChatRequest,
    Lost,
    LostCause,
    Misrouted,
    Ok,
)


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> HttpModelTransport:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return HttpModelTransport(tls=lambda: context)


async def test_tls_is_spoken_and_its_connections_are_kept(
    server_tls: ssl.SSLContext, trusting: HttpModelTransport
) -> None:
    async with raw_server(script_of(WHOLE), server_tls) as server:
        client = client_of(server.url, trusting)
        for _ in range(3):
            assert isinstance((await client.ask(ASK)).outcome, Ok)
        big = ChatRequest([{"role": "user", "content": "x" * 3_000_000}])
        assert isinstance((await client.ask(big)).outcome, Ok)
        assert server.accepted == 1
        client.close()


async def test_a_certificate_that_is_not_trusted_is_misrouted(server_tls: ssl.SSLContext) -> None:
    async with raw_server(script_of(WHOLE), server_tls) as server:
        outcome = (await client_of(server.url).ask(ASK)).outcome
    assert isinstance(outcome, Misrouted)
    assert outcome.curable
    assert "certificate" in outcome.message


async def test_tls_to_a_server_that_speaks_none_is_misrouted() -> None:
    async def script(conn: Conn) -> None:
        await conn.stream.receive_some()
        await conn.send(reply(b"", "400 Bad Request"))

    async with raw_server(script) as server:
        outcome = (await client_of(server.url.replace("http://", "https://")).ask(ASK)).outcome
    assert isinstance(outcome, Misrouted)
    assert "scheme" in outcome.message


async def test_a_server_that_goes_in_the_handshake_is_lost() -> None:
    async def script(conn: Conn) -> None:
        await conn.stream.receive_some()

    async with raw_server(script) as server:
        outcome = (await client_of(server.url.replace("http://", "https://")).ask(ASK)).outcome
    assert isinstance(outcome, Lost)


async def test_a_tls_connection_that_breaks_is_lost(server_tls: ssl.SSLContext, trusting: HttpModelTransport) -> None:
    async with raw_server(script_of(STREAM_HEAD + chunk(delta("a")), Conn.reset), server_tls) as server:
        assert isinstance((await client_of(server.url, trusting).ask(ASK)).outcome, Lost)


async def test_bytes_that_are_no_tls_are_lost_and_the_server_is_to_blame(
    server_tls: ssl.SSLContext, trusting: HttpModelTransport
) -> None:
    async def script(conn: Conn) -> None:
        await conn.request()
        await conn.plain.send_all(b"HTTP/1.1 500 Internal Server Error\r\n\r\n")
        await conn.until_gone()

    async with raw_server(script, server_tls) as server:
        outcome = (await client_of(server.url, trusting).ask(ASK)).outcome
    assert isinstance(outcome, Lost)
    assert outcome.cause is LostCause.SERVER


def test_where_the_system_shows_no_certificates_others_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ssl.SSLContext, "get_ca_certs", lambda self: [])
        context = shared_context.__wrapped__()
    assert context.get_ca_certs()
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_the_context_is_built_once() -> None:
    assert shared_context() is shared_context()
    assert shared_context().verify_mode is ssl.CERT_REQUIRED


async def test_tls_goes_through_a_tunnel(server_tls: ssl.SSLContext, trusting: HttpModelTransport) -> None:
    heads: list[bytes] = []

    async with raw_server(script_of(WHOLE), server_tls) as server:

        async def pump(source: trio.abc.ReceiveStream, sink: trio.abc.SendStream) -> None:
            async for data in source:
                await sink.send_all(data)

        async def script(conn: Conn) -> None:
            heads.append((await conn.request())[0])
            await conn.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            onward = await trio.open_tcp_stream("127.0.0.1", server.port)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(pump, onward, conn.stream)
                    await pump(conn.stream, onward)
                    nursery.cancel_scope.cancel()
            finally:
                onward.socket.close()

        async with raw_server(script) as proxy:
            client = client_of(server.url, trusting, proxy=f"http://u:p@127.0.0.1:{proxy.port}")
            for _ in range(2):
                assert isinstance((await client.ask(ASK)).outcome, Ok)
            client.close()
    assert heads == [
        b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nproxy-authorization: Basic dTpw"
        % (server.port, server.port)
    ]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (reply(b"", "407 Proxy Authentication Required"), Misrouted),
        (reply(b"", "502 Bad Gateway"), Lost),
        (b"HTTP/1.1 200 OK\r\n\r\nsurplus", Misrouted),
        (b"nonsense\r\n\r\n", Lost),
        (b"", Lost),
    ],
)
async def test_a_proxy_that_opens_no_tunnel(answer: bytes, kind: type) -> None:
    async def script(conn: Conn) -> None:
        await conn.request()
        await conn.send(answer)

    async with raw_server(script) as proxy:
        client = client_of("https://model.invalid/v1", proxy=f"http://127.0.0.1:{proxy.port}")
        outcome = (await client.ask(ASK)).outcome
    assert isinstance(outcome, kind), outcome
