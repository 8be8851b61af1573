"""Connecting: who is to blame when it fails, and how long it may take."""

from __future__ import annotations

import errno
import socket

import pytest
import trio
import trio.testing
from http_cases import (
    ASK,
    an_endpoint,
    asked,
)
from raw_server import (
    free_port,
)

from scavenge.edge.model_http import HttpModelTransport
from scavenge.types import (
    ChatRequest,
    Lost,
    LostCause,
)


async def test_a_refused_connection_is_lost_and_the_server_is_to_blame() -> None:
    outcome = (await asked(f"http://127.0.0.1:{free_port()}/v1")).outcome
    assert isinstance(outcome, Lost)
    assert outcome.cause is LostCause.SERVER
    assert "refused" in outcome.message


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError(errno.EMFILE, "Too many open files"), LostCause.LOCAL),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), LostCause.LOCAL),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"), LostCause.LOCAL),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), LostCause.LOCAL),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), LostCause.SERVER),
        (OSError(errno.EHOSTUNREACH, "No route to host"), LostCause.SERVER),
        (OSError(errno.ETIMEDOUT, "Connection timed out"), LostCause.SERVER),
        (UnicodeError("label too long"), LostCause.SERVER),
    ],
)
async def test_who_is_to_blame_when_connecting_fails(
    error: Exception, cause: LostCause, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(host: str, port: int) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        raise error

    monkeypatch.setattr(trio, "open_tcp_stream", refuse)
    outcome = (await asked("http://127.0.0.1:9/v1")).outcome
    assert isinstance(outcome, Lost)
    assert outcome.cause is cause


async def test_an_address_that_refuses_is_to_blame_even_if_another_was_out_of_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(host: str, port: int) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        both = [OSError(errno.ENETUNREACH, "unreachable"), ConnectionRefusedError(errno.ECONNREFUSED, "refused")]
        raise OSError("all attempts failed") from ExceptionGroup("several", both)

    monkeypatch.setattr(trio, "open_tcp_stream", refuse)
    outcome = (await asked("http://127.0.0.1:9/v1")).outcome
    assert isinstance(outcome, Lost)
    assert outcome.cause is LostCause.SERVER
    assert "unreachable; refused" in outcome.message


async def test_connecting_has_a_deadline_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(host: str, port: int) -> trio.SocketStream:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(trio, "open_tcp_stream", hang)
    client = HttpModelTransport(connect_deadline_s=0.05).open_client(an_endpoint("http://127.0.0.1:9/v1"))
    outcome = (await client.ask(ChatRequest(ASK.messages, idle_timeout_s=0.001))).outcome
    assert isinstance(outcome, Lost)
    assert "no answer within 0.05 s" in outcome.message
