"""The port of a gateway: where it listens, and who can reach it there."""

from __future__ import annotations

import errno
import os
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

import attrs

from scavenge.edge.gateway.routes import path_of
from scavenge.errors import UsageError
from scavenge.types import ModelAddress

BACKLOG = 1024
LOOPBACK = "127.0.0.1"
MAX_PORT = 65535
NO_TOKEN = "no-token"  # noqa: S105 (many clients refuse to send none)
"""What clients may send as their key where none is asked for."""
NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_REMEDIES = {
    errno.EADDRINUSE: "choose another with --port, or 0 for any free one",
    errno.EACCES: "choose another with --port: those below 1024 are for privileged programs",
    errno.EADDRNOTAVAIL: "--host takes an address of this machine",
    **dict.fromkeys(NO_ROOM, "raise the limit (ulimit -n)"),
}


@attrs.define(eq=False)
class GatewayListener:
    """A port that clients can connect to; they are answered while a gateway runs.

    Ownership: whoever opens it closes it, after the gateway.
    """

    socket: socket.socket
    token: str | None = attrs.field(repr=False)

    @property
    def root(self) -> str:
        """The URL of the server itself, as it is found from this machine."""
        name, port = self.socket.getsockname()[:2]
        host = ip_address(name)
        if host.is_unspecified:
            return f"http://{LOOPBACK}:{port}"
        return f"http://[{host}]:{port}" if host.version == 6 else f"http://{host}:{port}"

    def address(self, session_id: str) -> ModelAddress:
        """Where a session's rollout finds its model."""
        return ModelAddress(self.root + path_of(session_id), self.token or NO_TOKEN)

    def close(self) -> None:
        """Give the port back. Never waits."""
        self.socket.close()


def open_listener(token: str | None, host: str = LOOPBACK, port: int = 0) -> GatewayListener:
    """Take a port; 0 is any free one. Clients have to send *token*; ``None``: whoever is on this machine may ask.

    Raises :class:`scavenge.UsageError` when it cannot be had.
    """
    address = _address(host)
    if token is None and not address.is_loopback:
        said = f"on {host} others could reach the gateway, and use what they like: give it a token with --token-var"
        raise UsageError(said)
    if token is not None and (not token.isprintable() or not token.strip() == token != ""):
        raise UsageError("the gateway's token is empty, or has blanks at its ends or characters that cannot be sent")
    if not 0 <= port <= MAX_PORT:
        raise UsageError(f"the gateway cannot listen on port {port}: ports are from 0 (any free one) to {MAX_PORT}")
    try:
        return GatewayListener(_listen(address, port), token)
    except OSError as error:
        raise UsageError(sentence(host, port, error.errno or 0)) from error


def sentence(host: str, port: int, number: int) -> str:
    """What is told when a port cannot be had for the error with this *number*, and what to do."""
    remedy = _REMEDIES.get(number, "choose another with --host and --port")
    return f"the gateway cannot listen on {host} port {port} ({os.strerror(number)}): {remedy}"


def _address(host: str) -> IPv4Address | IPv6Address:
    if host == "localhost":
        return ip_address(LOOPBACK)
    try:
        return ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        said = f"the gateway cannot listen on {host!r}: --host takes an IP address of this machine, or localhost"
        raise UsageError(said) from None


def _listen(address: IPv4Address | IPv6Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    everywhere = address.version == 6 and address.is_unspecified and socket.has_dualstack_ipv6()
    return socket.create_server((str(address), port), family=family, backlog=BACKLOG, dualstack_ipv6=everywhere)
