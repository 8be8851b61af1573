"""What a program that we start must be told, so that it reaches the gateway on loopback without a proxy."""

from __future__ import annotations

from collections.abc import Mapping

LOOPBACK = ("127.0.0.1", "localhost")


def past_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that let loopback be reached without a proxy, beside the hosts that *environ* names already.

    Programs look at one of the two spellings or at both: a spelling that is not there takes over what the other says.
    """
    lower, upper = environ.get("no_proxy"), environ.get("NO_PROXY")
    return {
        "no_proxy": _with_loopback(lower if lower is not None else upper),
        "NO_PROXY": _with_loopback(upper if upper is not None else lower),
    }


def _with_loopback(no_proxy: str | None) -> str:
    hosts = [host for host in map(str.strip, (no_proxy or "").split(",")) if host]
    if "*" in hosts:
        return "*"
    return ",".join([*hosts, *(host for host in LOOPBACK if host not in hosts)])
