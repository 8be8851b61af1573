"""Asks the Kubernetes API: a list in pages, and the watch after it. Knows nothing of servers.

What went wrong is a :class:`Refused` when the API has decided so, else :class:`Lost`, which another try may cure.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar

import attrs
import httpx
import trio

from scavenge.plugin import SourceError
from scavenge_kubernetes.access import Access
from scavenge_kubernetes.config import EVERY_NAMESPACE, SLICES, KubernetesConfig
from scavenge_kubernetes.lines import Lines
from scavenge_kubernetes.view import Expired, Kept, NoAnswer, View, decoded

Answer = TypeVar("Answer")

PAGE = 500
"""Objects that are asked for at once: kubectl's own choice."""

PAGE_WITHIN_S = 15.0
"""How long a page of the list, or the head of a watch, may take."""

NO_LIMIT = httpx.Timeout(None)
"""Deadlines are Trio's: those of httpx are for each read, and a watch is silent for long."""

MAX_PAGE_BYTES = 64 << 20
MAX_EVENT_BYTES = 8 << 20
"""More than the 1.5 MiB that an object may have in the cluster's store."""

MAX_TROUBLE_BYTES = 16 << 10
MAX_TOLD = 200
"""Characters of what the API says that are told."""


class Refused(SourceError):
    """The API will not answer; ``status`` is that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        self.status = status
        super().__init__(message)


class Lost(SourceError):
    """No answer, or none of the API's; ``retry_after_s`` is the pause that it asks for."""

    def __init__(self, message: str, retry_after_s: float = 0.0, *, stale: bool = False) -> None:
        self.retry_after_s = retry_after_s
        self.stale = stale
        """Whether the credentials should be read anew: they may name a server, or an authority, that is no more."""
        super().__init__(message)


@attrs.frozen
class Api:
    """The objects that a configuration selects, asked for with one :class:`Access`."""

    access: Access
    config: KubernetesConfig

    @property
    def namespace(self) -> str:
        """Whose objects, or ``*``."""
        return self.config.namespace or self.access.namespace

    @property
    def where(self) -> str:
        """What is asked for, for messages."""
        place = "in all namespaces" if self.namespace == EVERY_NAMESPACE else f"in the namespace {self.namespace}"
        server = re.sub(r"//[^/]*@", "//", self.access.server)
        return f"{self.config.resource} {place} of {server}"

    async def list_all(self, keep: Callable[[Mapping[str, object]], Kept]) -> View[Kept]:
        """Every object there is now, or what *keep* makes of it.

        Raises :class:`SourceError`, and :class:`Expired` when the list was too old before it was whole.
        """
        view = View("EndpointSlice" if self.config.resource == SLICES else "Pod", keep)
        token, tokens = "", set[str]()
        while True:
            page = await self._read_page({"limit": str(PAGE)} | ({"continue": token} if token else {}))
            try:
                token = view.take_page(page)
            except NoAnswer as exc:
                raise self._no_answer(exc) from None
            if not token:
                return view
            if token in tokens:
                raise self._no_answer(NoAnswer("its pages go round in a circle"))
            tokens.add(token)

    async def watch(self, version: str, until: float, hear: Callable[[Iterator[Mapping[str, object]]], bool]) -> bool:
        """Hand the events after *version* to *hear* as they come, until it says true; false: the API ended the watch.

        What is wrong with an event is found when *hear* comes to it. *hear* may raise :class:`NoAnswer` and
        :class:`Expired`. Raises :class:`SourceError` and :class:`Expired`.
        Cancelled, it closes the connection.
        """
        # the API ends it by itself soon after nobody listens any more
        seconds = max(1, math.ceil(until - trio.current_time())) + 10
        asked = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        lines = Lines(MAX_EVENT_BYTES)

        async def hear_all(response: httpx.Response) -> bool:
            return await _take(response, lambda piece: hear(map(decoded, lines.feed(piece))))

        return await self._ask(asked, hear_all)

    async def _read_page(self, asked: Mapping[str, str]) -> Mapping[str, object]:
        data = bytearray()

        def take(piece: bytes) -> bool:
            data.extend(piece)
            if len(data) > MAX_PAGE_BYTES:
                raise NoAnswer(f"it has more than {MAX_PAGE_BYTES} bytes")
            return False

        async def read(response: httpx.Response) -> Mapping[str, object]:
            await _take(response, take)
            return decoded(data)

        with trio.move_on_after(PAGE_WITHIN_S):
            return await self._ask(asked, read)
        raise self._late()

    async def _ask(self, asked: Mapping[str, str], read: Callable[[httpx.Response], Awaitable[Answer]]) -> Answer:
        access = self.access
        try:
            # one client an exchange: nothing is kept open in between, and nothing waits for a connection of a pool
            async with httpx.AsyncClient(
                verify=access.tls, proxy=access.proxy, trust_env=False, timeout=NO_LIMIT, headers=self._headers()
            ) as client:
                request = client.build_request(
                    "GET", self._url(), params={"labelSelector": self.config.selector, **asked}
                )
                if access.server_name is not None:
                    request.extensions["sni_hostname"] = access.server_name
                response = await self._head(client, request)
                try:
                    await self._check(response)
                    return await read(response)
                finally:
                    await response.aclose()
        except NoAnswer as exc:
            raise self._no_answer(exc) from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as exc:
            raise self._lost(_told(exc), stale=True) from None

    async def _head(self, client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
        with trio.move_on_after(PAGE_WITHIN_S):
            return await client.send(request, stream=True)
        raise self._late()

    def _headers(self) -> dict[str, str]:
        return {"Accept": "application/json", "User-Agent": "scavenge-kubernetes", **self.access.headers}

    def _url(self) -> str:
        base = "/apis/discovery.k8s.io/v1" if self.config.resource == SLICES else "/api/v1"
        inside = "" if self.namespace == EVERY_NAMESPACE else f"/namespaces/{self.namespace}"
        return f"{self.access.server}{base}{inside}/{self.config.resource}"

    # --- what goes wrong

    async def _check(self, response: httpx.Response) -> None:
        await trio.lowlevel.checkpoint()
        status = response.status_code
        if status == 200:
            return
        if status == 410:
            raise Expired
        said = await _said(response, self.access.headers.get("Authorization", "").partition(" ")[2])
        if status == 429 or status >= 500 or status < 400:
            raise self._lost(f"answered {status}{said}", _retry_after_s(response))
        raise Refused(f"{self.where}: {self._refusal(status)}{said}", status)

    def _refusal(self, status: int) -> str:
        resource, origin = self.config.resource, self.access.origin
        match status:
            case 401:
                without = "" if self.access.headers else " (no token among them)"
                return f"the credentials of {origin}{without} are refused (401); log in again, or mend its exec plugin"
            case 403:
                role = "ClusterRole" if self.namespace == EVERY_NAMESPACE else "Role"
                group = "discovery.k8s.io" if resource == SLICES else ""
                return (
                    f'forbidden (403) for {origin}; it needs a {role} with the verbs "list" and "watch" '
                    f'on the resource "{resource}" of the API group "{group}"'
                )
            case 404:
                other = "; a cluster without discovery.k8s.io/v1 has pods only" if resource == SLICES else ""
                return f"not there (404); correct the server of {origin}{other}"
            case _:
                return f"refused ({status}); correct the selector, or the server of {origin}"

    def _late(self) -> Lost:
        return self._lost(f"no answer within {PAGE_WITHIN_S:g} s", stale=True)

    def _lost(self, why: str, retry_after_s: float = 0.0, *, stale: bool = False) -> Lost:
        return Lost(f"{self.where}: {why}; see whether kubectl reaches it", retry_after_s, stale=stale)

    def _no_answer(self, exc: NoAnswer) -> Lost:
        return Lost(f"{self.where}: the answer is not the API's: {exc}; see what kubectl gets")


async def _take(response: httpx.Response, take: Callable[[bytes], bool]) -> bool:
    """Hand the pieces of the body to *take* until it says true; false at the end of the body.

    The generators of httpx want to be run to their end, also by an error: so it is a cancellation that ends them.
    """
    done, trouble = False, None
    with trio.CancelScope() as enough:
        async for piece in response.aiter_bytes():
            if enough.cancel_called:
                continue
            try:
                done = take(piece)
            except (NoAnswer, Expired) as exc:
                trouble = exc
            if done or trouble is not None:
                enough.cancel()
    if trouble is not None:
        raise trouble
    return done


async def _said(response: httpx.Response, token: str) -> str:
    """What the API says of a trouble, where it says anything; the token is taken out before anything is cut."""
    data = bytearray()

    def take(piece: bytes) -> bool:
        data.extend(piece)
        return len(data) > MAX_TROUBLE_BYTES

    with trio.move_on_after(PAGE_WITHIN_S):
        await _take(response, take)
    try:
        said = json.loads(data).get("message")
    except (ValueError, RecursionError, AttributeError):
        return ""
    if not isinstance(said, str):
        return ""
    plain = said.replace(token, "[token]") if token else said
    return f"; it says: {' '.join(plain.split())[:MAX_TOLD]}"


def _told(exc: BaseException) -> str:
    """What an exchange failed of. What is wrong with our own request is not repeated: it may quote the token."""
    if not isinstance(exc, httpx.TransportError) or isinstance(exc, httpx.LocalProtocolError):
        return f"cannot be asked: {type(exc).__name__}"
    cause: BaseException | None = exc
    while cause is not None and not str(cause):
        cause = cause.__cause__ or cause.__context__  # Trio's errors of TLS say in their cause what is wrong
    said = " ".join(str(cause or "").split())[:MAX_TOLD]
    return f"{type(exc).__name__}: {said}".removesuffix(": ")


def _retry_after_s(response: httpx.Response) -> float:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0
