"""Connecting: what its failures tell of their cause, and how long it may take."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

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

from scavenge.edge.http.dial import LAG_S
from scavenge.edge.http.faults import broken_fault
from scavenge.edge.model_http import HttpModelTransport
from scavenge.types import (
    ChatRequest,
    Lost,
    LostCause,
    Outcome,
)

MULTICAST = "224.0.0.1"
"""Linux has no route for a TCP connection to it, whatever networks there are (``ip_route_connect``)."""


def cause_of(outcome: Outcome) -> LostCause:
    assert isinstance(outcome, Lost), outcome
    return outcome.cause


class Resolver(trio.abc.HostnameResolver):
    """Knows every name by the same addresses, or fails."""

    def __init__(self, *addresses: str, error: OSError | None = None) -> None:
        self.addresses = addresses
        self.error = error

    async def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):  # noqa: A002 - the names of the API
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.addresses]

    async def getnameinfo(self, sockaddr, flags):
        raise AssertionError("nobody asks for names")


@contextmanager
def full_backlog() -> Iterator[str]:
    """The URL of a port that drops what would connect."""
    with socket.socket() as listener, socket.socket() as queued, socket.socket() as more:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        queued.connect(listener.getsockname())
        more.setblocking(False)
        more.connect_ex(listener.getsockname())  # for kernels that queue one more than was asked for
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


async def test_a_refused_connection_is_lost_and_an_answer_of_the_server() -> None:
    outcome = (await asked(f"http://127.0.0.1:{free_port()}/v1")).outcome
    assert cause_of(outcome) is LostCause.SERVER
    assert "refused" in outcome.message


async def test_a_port_whose_backlog_is_full_is_silent() -> None:
    with full_backlog() as url:
        client = HttpModelTransport(connect_deadline_s=0.1).open_client(an_endpoint(url))
        outcome = (await client.ask(ASK)).outcome
        assert cause_of(outcome) is LostCause.SILENT
        assert "no answer within 0.1 s" in outcome.message
        probed = await client.probe("/models")
        assert cause_of(probed) is LostCause.SILENT
        assert client.reached_at == float("-inf")


async def test_an_address_without_a_route_is_for_the_network_to_answer_for() -> None:
    outcome = (await asked(f"http://{MULTICAST}:9/v1")).outcome
    assert cause_of(outcome) is LostCause.NETWORK
    assert "unreachable" in outcome.message


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), LostCause.NAMES),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), LostCause.NETWORK),
        (socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure in name resolution"), LostCause.NAMES),
        (socket.gaierror(socket.EAI_MEMORY, "Memory allocation failure"), LostCause.LOCAL),
        (OSError(errno.EMFILE, "Too many open files"), LostCause.LOCAL),
    ],
)
async def test_a_name_that_cannot_be_looked_up_is_nothing_that_one_endpoint_can_be_blamed_for(
    error: OSError, cause: LostCause
) -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(error=error))
    outcome = (await asked("http://gpu-1.example.org/v1")).outcome
    assert cause_of(outcome) is cause
    assert error.strerror in outcome.message


async def test_a_name_that_cannot_be_a_name_is_the_fault_of_the_endpoint() -> None:
    outcome = (await asked(f"http://{'x' * 64}.example.org/v1")).outcome
    assert cause_of(outcome) is LostCause.SERVER


async def test_an_address_that_refuses_is_an_answer_even_if_another_was_out_of_reach() -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(MULTICAST, "127.0.0.1"))
    outcome = (await asked(f"http://gpu-1.example.org:{free_port()}/v1")).outcome
    assert cause_of(outcome) is LostCause.SERVER
    assert "unreachable; " in outcome.message
    assert "refused" in outcome.message


REFUSED, RESET = errno.ECONNREFUSED, errno.ECONNRESET
TIMED_OUT, NO_HOST = errno.ETIMEDOUT, errno.EHOSTUNREACH
NO_ROUTE, NO_FAMILY, FILTERED = errno.ENETUNREACH, errno.EAFNOSUPPORT, errno.EPERM
NO_DESCRIPTOR, NO_ADDRESS = errno.EMFILE, errno.EADDRNOTAVAIL


@pytest.mark.parametrize(
    ("numbers", "cause"),
    [
        ([REFUSED], LostCause.SERVER),
        ([RESET], LostCause.SERVER),
        ([errno.EINVAL], LostCause.SERVER),
        ([TIMED_OUT], LostCause.SILENT),
        ([NO_HOST], LostCause.SILENT),
        ([NO_ROUTE], LostCause.NETWORK),
        ([errno.ENETDOWN], LostCause.NETWORK),
        ([NO_FAMILY], LostCause.NETWORK),
        ([FILTERED], LostCause.NETWORK),
        ([errno.EACCES], LostCause.NETWORK),
        ([NO_DESCRIPTOR], LostCause.LOCAL),
        ([errno.ENFILE], LostCause.LOCAL),
        ([errno.ENOBUFS], LostCause.LOCAL),
        ([errno.ENOMEM], LostCause.LOCAL),
        ([NO_ADDRESS], LostCause.LOCAL),
        ([NO_ROUTE, REFUSED], LostCause.SERVER),
        ([NO_DESCRIPTOR, REFUSED], LostCause.SERVER),
        ([NO_ROUTE, TIMED_OUT], LostCause.SILENT),
        ([NO_ADDRESS, TIMED_OUT], LostCause.SILENT),
        ([NO_ROUTE, NO_DESCRIPTOR], LostCause.LOCAL),
        ([TIMED_OUT, NO_DESCRIPTOR], LostCause.LOCAL),
        ([NO_ADDRESS, NO_ROUTE], LostCause.NETWORK),
        ([NO_ROUTE, NO_FAMILY], LostCause.NETWORK),
    ],
)
async def test_what_a_failure_to_connect_tells_of_its_cause(
    numbers: list[int], cause: LostCause, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(host: str, port: int) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        errors = [OSError(number, errno.errorcode[number]) for number in numbers]
        raise OSError("all attempts failed") from ExceptionGroup("several", errors)

    monkeypatch.setattr(trio, "open_tcp_stream", refuse)
    client = HttpModelTransport().open_client(an_endpoint("http://127.0.0.1:9/v1"))
    assert cause_of((await client.ask(ASK)).outcome) is cause
    assert (client.reached_at > float("-inf")) == bool({REFUSED, RESET} & set(numbers))
    assert client.heard_at == float("-inf")


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (RESET, LostCause.SERVER),
        (errno.EPIPE, LostCause.SERVER),
        (TIMED_OUT, LostCause.SILENT),
        (NO_HOST, LostCause.SILENT),
        (errno.ENETDOWN, LostCause.NETWORK),
    ],
)
def test_what_the_end_of_a_connection_tells_of_its_cause(number: int, cause: LostCause) -> None:
    fault = broken_fault(OSError(number, "x"), "http://h")
    assert fault.cause is cause
    assert fault.answered == (cause is LostCause.SERVER)


async def hang(host: str, port: int) -> trio.SocketStream:
    await trio.sleep_forever()
    raise AssertionError


async def test_connecting_has_a_deadline_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio, "open_tcp_stream", hang)
    client = HttpModelTransport(connect_deadline_s=0.05).open_client(an_endpoint("http://127.0.0.1:9/v1"))
    outcome = (await client.ask(ChatRequest(ASK.messages, idle_timeout_s=0.001))).outcome
    assert cause_of(outcome) is LostCause.SILENT
    assert "no answer within 0.05 s" in outcome.message


async def test_a_deadline_that_fires_late_says_nothing_of_the_server(
    monkeypatch: pytest.MonkeyPatch, mock_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(trio, "open_tcp_stream", hang)
    client = HttpModelTransport(connect_deadline_s=5.0).open_client(an_endpoint("http://127.0.0.1:9/v1"))
    outcomes: list[Outcome] = []

    async def ask() -> None:
        outcomes.append((await client.ask(ASK)).outcome)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(5.1 + LAG_S)
    assert cause_of(outcomes[0]) is LostCause.LATE
