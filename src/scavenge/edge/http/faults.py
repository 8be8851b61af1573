"""How an exchange fails below HTTP, and what that tells of its cause: errors of sockets, names and TLS -> outcomes.

An answer is the server's, also one that refuses or resets. Silence, and what cannot be sent from here, are told as what
they are: one exchange cannot know whether others are heard. Connecting tries several addresses, and the error that
tells most decides: an answer; a shortage on this machine, under which the others were no fair attempts; silence; a
network out of reach (a machine without IPv6 says so of every host with such an address); a local address that cannot
be had (it says that, or runs out of ports).
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

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Descriptors and memory of this machine."""
_CAUSES = {
    **dict.fromkeys((errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EHOSTDOWN), LostCause.SILENT),
    **dict.fromkeys((errno.ENETUNREACH, errno.ENETDOWN, errno.EAFNOSUPPORT), LostCause.NETWORK),
    **dict.fromkeys((errno.EPERM, errno.EACCES), LostCause.NETWORK),  # a packet filter on this machine
    **dict.fromkeys((*SHORTAGES, errno.EADDRNOTAVAIL), LostCause.LOCAL),
}
_NAME_CAUSES = {
    **dict.fromkeys((socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_SYSTEM), LostCause.NAMES),
    socket.EAI_MEMORY: LostCause.LOCAL,
}
_TELLING = (LostCause.SERVER, LostCause.SILENT, LostCause.NETWORK, LostCause.NAMES, LostCause.LOCAL)
_ANSWERS = frozenset({errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE})


class HttpFault(Exception):
    """An exchange came to nothing; ``outcome`` says what that means, ``answered`` whether the host itself said so."""

    def __init__(self, outcome: Lost | Misrouted, *, answered: bool = False) -> None:
        self.outcome = outcome
        self.answered = answered
        super().__init__(outcome.message)

    def told(self, wording: Wording) -> Lost | Misrouted:
        """The outcome with a message that is fit to show."""
        return attrs.evolve(self.outcome, message=wording.line(self.outcome.message))

    @property
    def cause(self) -> LostCause:
        """Why the exchange came to nothing."""
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
        told = f"{what} (TLS); see the certificate and the scheme of the url"
        return ConnectFault(Misrouted(told, curable=True), answered=True)
    return ConnectFault(Lost(what, _cause_of_all(causes)), answered=any(map(_is_answer, causes)))


def broken_fault(error: BaseException, where: str, kind: type[HttpFault] = HttpFault) -> HttpFault:
    """What an error on an open connection to *where* means."""
    causes = list(_causes(error))
    what = f"the connection to {where} broke: {_described(causes)}"
    return kind(Lost(what, _cause_of_all(causes)), answered=any(map(_is_answer, causes)))


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


def _cause_of_all(errors: list[BaseException]) -> LostCause:
    """The cause that tells most; see the top of this module."""
    found = {_cause_of(error) for error in errors}
    short = any(isinstance(error, OSError) and error.errno in SHORTAGES for error in errors)
    if short and LostCause.SERVER not in found:
        return LostCause.LOCAL
    return next(cause for cause in _TELLING if cause in found)


def _cause_of(error: BaseException) -> LostCause:
    if isinstance(error, socket.gaierror):  # its numbers are not the system's, nor are those of TLS
        return _NAME_CAUSES.get(error.errno or 0, LostCause.NETWORK)
    if isinstance(error, ssl.SSLError) or not isinstance(error, OSError):
        return LostCause.SERVER
    return _CAUSES.get(error.errno or 0, LostCause.SERVER)


def _is_answer(error: BaseException) -> bool:
    """Whether an error is a sign of life of the host: a refusal, a reset, bytes of TLS."""
    if isinstance(error, ssl.SSLError | trio.BrokenResourceError):
        return True
    return isinstance(error, OSError) and error.errno in _ANSWERS
