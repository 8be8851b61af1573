"""A small Kubernetes API on loopback: lists in pages, watches from a version on, bookmarks, RBAC, and faults.

It keeps to what the API's documentation says of lists and watches: a selector makes events of its own, a version that
is too old is gone, and a list has one version for all its pages.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs
import h11
import trio
from kube_store import Change, Expired, Selector, Store
from kube_wire import Fault, Wire

RESOURCES = {
    "pods": ("/api/v1", "Pod", "v1"),
    "endpointslices": ("/apis/discovery.k8s.io/v1", "EndpointSlice", "discovery.k8s.io/v1"),
}


@attrs.frozen
class Refusal(Exception):
    """An answer that is no list; ``reason`` is that of a Status object."""

    status: int
    reason: str
    message: str


@attrs.define(eq=False)
class KubeDouble:
    """The API's state, and what can be done to it."""

    url: str = ""
    store: Store = attrs.field(factory=Store)
    tokens: set[str] | None = None
    """The bearer tokens that are taken; ``None``: everybody may ask."""
    denied: set[tuple[str, str]] = attrs.field(factory=set)
    """Pairs of a verb and a resource that nobody may use."""
    fault: Fault | None = None
    asked: list[tuple[str, dict[str, str], dict[str, str]]] = attrs.field(factory=list)
    """Each request that it has read: verb, parameters, headers."""
    told: int = 0
    """Events and bookmarks that watches were sent."""
    bookmark_s: float = 60.0
    _watches: set[trio.CancelScope] = attrs.field(factory=set)
    _moved: trio.Event = attrs.field(factory=trio.Event)

    @property
    def watching(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    async def wait_until(self, true: Callable[[], object]) -> None:
        """Wait until that is so of the requests and watches."""
        await trio.lowlevel.checkpoint()
        with trio.fail_after(10):
            while not true():
                await self._moved.wait()

    def _move(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    def verbs(self) -> list[str]:
        """What was asked for, in order."""
        return [verb for verb, _, _ in self.asked]

    @asynccontextmanager
    async def broken(self, kind: str, *of: str, **headers: str) -> AsyncIterator[None]:
        """Have a fault, and cut the watches that are open, since they would not know of it."""
        self.fault = Fault(kind, of or ("list", "watch"), headers)
        self.cut_watches()
        try:
            yield
        finally:
            self.fault = None
            self.cut_watches()

    def cut_watches(self) -> None:
        """Close the connections of all watches."""
        for scope in self._watches:
            scope.cancel()

    # --- one connection

    async def serve_connection(self, stream: trio.abc.Stream) -> None:
        wire = Wire(stream)
        try:
            while (request := await wire.read_request()) is not None:
                await self._answer(wire, request)
                if not wire.start_next():
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError, ssl.SSLError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async def _answer(self, wire: Wire, request: h11.Request) -> None:
        parts = urlsplit(request.target.decode())
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = {name.decode().lower(): value.decode() for name, value in request.headers}
        verb = "watch" if asked.get("watch") in ("1", "true") else "list"
        self.asked.append((verb, asked, headers))
        self._move()
        if self.fault is not None and verb in self.fault.of and await wire.misbehave(self.fault):
            return
        try:
            self._authenticate(headers)
            resource, namespace = self._resource(parts.path)
            if (verb, resource) in self.denied:
                raise Refusal(403, "Forbidden", f'{resource} is forbidden: User "tester" cannot {verb} resource')
            if verb == "watch":
                await self._watch(wire, resource, namespace, asked)
            else:
                await wire.send_json(self._list(resource, namespace, asked))
        except Refusal as refusal:
            await wire.send_json(status_object(refusal), refusal.status)
        except Expired as expired:
            refusal = Refusal(410, "Expired", str(expired))
            await wire.send_json(status_object(refusal), refusal.status)

    def _authenticate(self, headers: Mapping[str, str]) -> None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if self.tokens is not None and (scheme.lower() != "bearer" or token not in self.tokens):
            raise Refusal(401, "Unauthorized", "Unauthorized")

    def _resource(self, path: str) -> tuple[str, str | None]:
        for resource, (base, _, _) in RESOURCES.items():
            match path.removeprefix(base).strip("/").split("/") if path.startswith(base + "/") else []:
                case ["namespaces", namespace, last] if last == resource:
                    return resource, namespace
                case [last] if last == resource:
                    return resource, None
        raise Refusal(404, "NotFound", "the server could not find the requested resource")

    # --- lists and watches

    def _list(self, resource: str, namespace: str | None, asked: Mapping[str, str]) -> dict[str, Any]:
        _, kind, version = RESOURCES[resource]
        selector = Selector.of(asked.get("labelSelector", ""))
        page = self.store.page(resource, namespace, selector, int(asked.get("limit", 0)), asked.get("continue", ""))
        meta = {"resourceVersion": str(page.version)} | ({"continue": page.token} if page.token else {})
        return {"kind": f"{kind}List", "apiVersion": version, "metadata": meta, "items": page.items}

    async def _watch(self, wire: Wire, resource: str, namespace: str | None, asked: Mapping[str, str]) -> None:
        selector = Selector.of(asked.get("labelSelector", ""))
        see = partial(self.store.seen, resource=resource, namespace=namespace, selector=selector)
        version = int(asked.get("resourceVersion") or self.store.version)
        await wire.begin_stream()
        cut = trio.CancelScope()
        self._watches.add(cut)
        self._move()
        try:
            async with trio.open_nursery() as nursery:
                with cut:
                    nursery.start_soon(wire.cancel_when_left, cut)
                    with trio.move_on_after(float(asked.get("timeoutSeconds", 1800))):
                        await self._stream(wire, resource, version, see, "allowWatchBookmarks" in asked)
                    await wire.end_stream()
                nursery.cancel_scope.cancel()
            if cut.cancelled_caught:
                raise trio.BrokenResourceError
        finally:
            self._watches.discard(cut)
            self._move()

    async def _stream(self, wire: Wire, resource: str, version: int, see: Any, bookmarks: bool) -> None:
        _, kind, api_version = RESOURCES[resource]
        while True:
            now = self.store.version  # what changes while this is sent comes in the next round
            try:
                changes: list[Change] = self.store.since(version)
            except Expired as expired:
                await wire.send_event("ERROR", status_object(Refusal(410, "Expired", str(expired))))
                return
            for word, item in (event for change in changes for event in see(change)):
                event = {"type": word, "object": {"kind": kind, "apiVersion": api_version, **item}}
                nonsense = self.fault is not None and self.fault.kind == "nonsense"
                await wire.send_line(event, b"}{\n" if nonsense else b"")
                self.told += 1
                self._move()
            version = now
            with trio.move_on_after(self.bookmark_s) as patience:
                await self.store.wait_change(version)
            if patience.cancelled_caught and bookmarks:
                version = self.store.version
                meta = {"resourceVersion": str(version), "creationTimestamp": None}
                await wire.send_event("BOOKMARK", {"kind": kind, "apiVersion": api_version, "metadata": meta})
                self.told += 1
                self._move()


def status_object(refusal: Refusal) -> dict[str, Any]:
    """The Status object of the API that tells of a refusal."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "reason": refusal.reason,
        "code": refusal.status,
    }


@asynccontextmanager
async def open_double(
    double: KubeDouble | None = None, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[KubeDouble]:
    """Serve a double on loopback, in this task's loop."""
    double = double or KubeDouble()
    async with trio.open_nursery() as nursery:
        serve = partial(_serve, double=double, tls=tls)
        listeners = await nursery.start(partial(trio.serve_tcp, serve, port, host="127.0.0.1"))
        number = listeners[0].socket.getsockname()[1]
        double.url = f"http{'s' if tls else ''}://127.0.0.1:{number}"
        yield double
        nursery.cancel_scope.cancel()


async def _serve(stream: trio.SocketStream, double: KubeDouble, tls: ssl.SSLContext | None) -> None:
    await double.serve_connection(stream if tls is None else trio.SSLStream(stream, tls, server_side=True))
