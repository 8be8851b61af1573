"""How an exchange fails below HTTP, and whose fault that is: errors of sockets, names and TLS -> outcomes.

A fault is this machine's only when nothing else is to blame: connecting tries several addresses, and one that refuses
is an answer of the endpoint, even if another could not be tried from here.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator

import attrs
import trio

from scavenge.core.errorbody import Wording
from scavenge.types import Lost, LostCause, Misrouted

LOCAL_ERRORS = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM),  # descriptors and memory
        *(errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT),  # ports; a family of addresses that is switched off
        *(errno.ENETUNREACH, errno.ENETDOWN),  # no network
        *(errno.EPERM, errno.EACCES),  # a packet filter on this machine
    }
)
_NAME_UNKNOWN = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


class HttpFault(Exception):
    """An exchange came to nothing; ``outcome`` says what that means."""

    def __init__(self, outcome: Lost | Misrouted) -> None:
        self.outcome = outcome
        super().__init__(outcome.message)

    def told(self, wording: Wording) -> Lost | Misrouted:
        """The outcome with a message that is fit to show."""
        return attrs.evolve(self.outcome, message=wording.line(self.outcome.message))

    @property
    def cause(self) -> LostCause:
        """Who is to blame."""
        return self.outcome.cause if isinstance(self.outcome, Lost) else LostCause.SERVER


class ConnectFault(HttpFault):
    """There is no connection: nothing has been sent."""


class NoReply(HttpFault):
    """The connection ended before a byte of the reply."""


def connect_fault(error: BaseException, where: str) -> ConnectFault:
    """What a failure to connect to *where* means."""
    causes = list(_causes(error))
    what = f"cannot connect to {where}: {_described(causes)}"
    if any(isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError) for cause in causes):
        return ConnectFault(Misrouted(f"{what} (TLS); see the certificate and the scheme of the url", curable=True))
    local = all(_is_local(cause) for cause in causes)
    return ConnectFault(Lost(what, LostCause.LOCAL if local else LostCause.SERVER))


def broken_fault(error: BaseException, where: str, kind: type[HttpFault] = HttpFault) -> HttpFault:
    """What an error on an open connection to *where* means."""
    causes = list(_causes(error))
    local = all(_is_local(cause) for cause in causes)
    what = f"the connection to {where} broke: {_described(causes)}"
    return kind(Lost(what, LostCause.LOCAL if local else LostCause.SERVER))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors at the root: Trio wraps what a socket or TLS raised, and groups what several addresses did."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    elif error.__cause__ is not None and isinstance(error, OSError | trio.BrokenResourceError):
        yield from _causes(error.__cause__)
    else:
        yield error


def _described(causes: list[BaseException]) -> str:
    said = [(cause.strerror if isinstance(cause, OSError) else None) or str(cause) or "closed" for cause in causes]
    return "; ".join(dict.fromkeys(said))


def _is_local(error: BaseException) -> bool:
    if isinstance(error, socket.gaierror):
        return error.errno not in _NAME_UNKNOWN
    if isinstance(error, ssl.SSLError):
        return False  # its numbers are not the system's
    return isinstance(error, OSError) and error.errno in LOCAL_ERRORS
