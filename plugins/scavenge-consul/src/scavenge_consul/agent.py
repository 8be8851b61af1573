"""The HTTP client of a Consul agent: one GET at a time, whole or not at all. Decides nothing about what is in it.

Each request has a client and a connection of its own: they are seconds apart, none can be found closed that way, and
none outlives the task that asked, whoever closes what. No proxy and no ``.netrc``, whatever the environment says, no
redirects, no compression (an answer cannot be larger than it looks).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import httpx
import trio

from scavenge.plugin import SourceError
from scavenge_consul.answers import Answer, Unsure, one_line
from scavenge_consul.config import ConsulConfig

LARGEST_BYTES = 16 * 1024 * 1024
"""Some 10 000 instances; a stored value has half a megabyte at most."""


@attrs.frozen(eq=False)
class Agent:
    """An agent that can be asked."""

    open_client: Callable[[], httpx.AsyncClient] = attrs.field(repr=False)
    extensions: dict[str, Any] = attrs.field(factory=dict)

    async def get(self, path: str, params: Mapping[str, str | list[str]], within_s: float) -> Answer:
        """The whole answer to a GET. Raises :class:`Unsure`. Cancelled, it leaves no connection."""
        try:
            with trio.fail_after(within_s):
                return await self._get(path, params)
        except trio.TooSlowError:
            raise Unsure(
                f"no whole answer within {within_s:.0f} s; see that the agent runs and can be reached"
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as exc:
            what = one_line(f"{type(exc).__name__}: {exc}").rstrip(".: ")
            raise Unsure(f"{what}; see that the agent runs and `address` is right") from None

    async def _get(self, path: str, params: Mapping[str, str | list[str]]) -> Answer:
        body = bytearray()
        async with (
            self.open_client() as client,
            client.stream("GET", path, params=params, extensions=self.extensions) as response,
        ):
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise Unsure("the answer is compressed, which was not asked for; correct the proxy before the agent")
            if response.headers.keys().isdisjoint(("content-length", "transfer-encoding")):
                raise Unsure("the answer does not say how long it is; correct the proxy before the agent")
            with trio.CancelScope() as reading:  # cancelling ends the generators below, leaving the loop does not
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > LARGEST_BYTES:
                        reading.cancel()
        if len(body) > LARGEST_BYTES:
            raise Unsure(f"the answer is larger than {LARGEST_BYTES // 1024**2} MB; correct `address`")
        return Answer(response.status_code, dict(response.headers), bytes(body))


async def make_agent(config: ConsulConfig, token: str | None) -> Agent:
    """An agent; nothing is sent yet. Raises :class:`SourceError` for TLS files that cannot be used."""
    own = trio.CapacityLimiter(1)  # a file may be on a mount that hangs
    context = await trio.to_thread.run_sync(make_context, config, abandon_on_cancel=True, limiter=own)
    headers = {"Accept-Encoding": "identity", "User-Agent": "scavenge-consul"}
    if token is not None:
        headers["X-Consul-Token"] = token

    def open_client() -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=config.address,
            headers=headers,
            verify=context,
            trust_env=False,
            timeout=None,  # noqa: S113  # each request has a deadline of Trio's, see Agent.get
        )

    return Agent(open_client, {} if config.server_name is None else {"sni_hostname": config.server_name})


def make_context(config: ConsulConfig) -> ssl.SSLContext:
    """What TLS trusts and shows. Blocks. Raises :class:`SourceError`."""
    if not config.address.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, and is not used
    name = "ca_file"
    try:
        context = ssl.create_default_context(cafile=config.ca_file)
        if config.cert_file is not None:
            name = "cert_file" if config.key_file is None else "cert_file and key_file"
            context.load_cert_chain(config.cert_file, config.key_file, password=_no_password)
    except (OSError, ValueError) as exc:  # SSLError is an OSError
        raise SourceError(f"Consul at {config.address}: {name} cannot be used: {one_line(str(exc))}") from None
    return context


def _no_password() -> str:
    raise ValueError("the key needs a password; store it without one")
