"""How one registry lets us in: its challenges are answered with tokens or a password, with Docker's credentials.

Invariants: a password goes to the registry that it is for, or to the token service that this registry names, and to
that over https (or on this machine). Tokens are fetched one at a time; whoever waits for that uses what came of it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import urlencode

import attrs
import httpx
import trio

from scavenge.core.images.distribution import TOKEN_MARGIN_S, Challenge, challenges, parse_token
from scavenge.core.images.dockerauth import Auth
from scavenge.edge.images.registry_wire import HUB, RegistryFault, Wire, closing
from scavenge.images import Broken, Denied

TOKEN_MOST_BYTES = 2**20
TOKEN_WITHIN_S = 30.0


class Credentials(Protocol):
    """What Docker knows of who we are."""

    async def find(self, image: str) -> Auth | None:
        """The credentials for an image, by its canonical name."""
        ...


@attrs.frozen
class Scope:
    """What is to be done: with which repository, and perhaps with another one to read from."""

    path: str
    actions: str = "pull"
    source: str = ""

    def texts(self) -> list[str]:
        """In the words of a token service."""
        texts = [f"repository:{self.path}:{self.actions}"]
        return [*texts, f"repository:{self.source}:pull"] if self.source else texts


@attrs.frozen
class _Pass:
    header: str = attrs.field(repr=False)
    good_until: float = float("inf")


@attrs.define(eq=False)
class Door:
    """Who we are to one registry."""

    wire: Wire
    credentials: Credentials
    _passes: dict[Scope, _Pass] = attrs.field(factory=dict, repr=False)
    _fetching: trio.Lock = attrs.field(factory=trio.Lock)

    def opener_nowait(self, scope: Scope) -> str:
        """The ``Authorization`` that is known to open a scope; empty: none is known."""
        known = self._passes.get(scope)
        return known.header if known is not None and trio.current_time() < known.good_until else ""

    async def knock(self, scope: Scope, challenge: str, refused: str) -> str:
        """An ``Authorization`` for a scope after a reply of 401 with that ``WWW-Authenticate``; *refused* did not do.

        Raises :class:`RegistryFault`, with :class:`scavenge.images.Denied` where nothing that we have will do.
        """
        async with self._fetching:
            known = self.opener_nowait(scope)
            if known and known != refused:
                return known
            self._passes.pop(scope, None)
            new = await self._answer(scope, challenges(challenge))
            if new.header == refused:
                raise await self.denied(scope, "")
            self._passes[scope] = new
            return new.header

    async def denied(self, scope: Scope, said: str) -> RegistryFault:
        """That the registry does not let us in, whatever we have; says what was tried, and what helps."""
        auth = await self.credentials.find(self._name(scope))
        return RegistryFault(Denied(refusal(self.wire.host, said, auth)), 401)

    async def _answer(self, scope: Scope, offered: Sequence[Challenge]) -> _Pass:
        auth = await self.credentials.find(self._name(scope))
        bearer = next((one for one in offered if one.scheme == "bearer" and one.params.get("realm")), None)
        if bearer is not None:
            return await self._token(scope, bearer.params, auth)
        if any(one.scheme == "basic" for one in offered) and auth is not None and auth.password:
            return _Pass(_basic(auth))
        raise await self.denied(scope, "")

    async def _token(self, scope: Scope, params: Mapping[str, str], auth: Auth | None) -> _Pass:
        query: list[tuple[str, str]] = [("scope", text) for text in scope.texts()]
        if service := params.get("service"):
            query.insert(0, ("service", service))
        asked_at = trio.current_time()
        with trio.move_on_after(TOKEN_WITHIN_S):
            token = parse_token(await self._fetch(scope, params["realm"], query, auth))
            if token is None:
                raise RegistryFault(Broken(f"{self.wire.host}: its token service gives no token"))
            lives_s = max(token.lives_s - TOKEN_MARGIN_S, token.lives_s / 2)
            return _Pass(f"Bearer {token.value}", asked_at + lives_s)
        raise RegistryFault(Broken(f"{self.wire.host}: its token service does not answer within {TOKEN_WITHIN_S:g} s"))

    async def _fetch(self, scope: Scope, realm: str, query: list[tuple[str, str]], auth: Auth | None) -> bytes:
        with self.wire.faults():
            url = httpx.URL(realm)
            if auth is not None and auth.identity_token:
                form = [("grant_type", "refresh_token"), ("client_id", "scavenge"), *query]
                form.append(("refresh_token", auth.identity_token))
                body = urlencode(_joined(form)).encode()
                kind = {"content-type": "application/x-www-form-urlencoded"}
                reply = await self.wire.send("POST", url, kind, body)
            else:
                url = url.copy_with(params=[*url.params.multi_items(), *query])
                headers = {"authorization": _basic(auth)} if auth is not None and auth.password else {}
                reply = await self.wire.send("GET", url, headers)
        async with closing(reply):
            if reply.status == 200:
                return await reply.read(TOKEN_MOST_BYTES)
            fault = await reply.fault()
        raise await self.denied(scope, str(fault)) if reply.status in (400, 401, 403) else fault

    def _name(self, scope: Scope) -> str:
        return f"{self.wire.host}/{scope.path}:latest"


def refusal(host: str, said: str, auth: Auth | None) -> str:
    """Why *host* gives us nothing, in a line that says what was sent and what helps."""
    login = "`docker login`" if host == HUB else f"`docker login {host}`"
    what = said or f"{host}: it does not let us in"
    if auth is None:
        return f"{what}; no credentials were sent, since none were found for it: {login} where the image is not public"
    return f"{what}; the credentials of {auth.origin} were sent: {login} again, or ask who owns the image"


def _basic(auth: Auth) -> str:
    return "Basic " + base64.b64encode(f"{auth.username}:{auth.password}".encode()).decode()


def _joined(form: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """A form with one scope: there, several are separated by spaces (token specification, OAuth 2)."""
    scopes = " ".join(value for key, value in form if key == "scope")
    return [*(pair for pair in form if pair[0] != "scope"), ("scope", scopes)]
