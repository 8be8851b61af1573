"""A fleet of simulated servers in this process, on Trio's clock: a virtual day passes in seconds.

:class:`SimulatedFleet` is a :class:`scavenge.runtime.ports.ModelTransport` and an
:class:`scavenge.runtime.ports.EndpointSource`. Its clients write and read the same bodies as the transport over HTTP
and the real servers of :mod:`scavenge.testing.server`, and have the same outcomes; a test holds the two together.

All that is random comes from the fleet's seed. What happens at the very same instant on one server happens in the
order of Trio's scheduler, which is not the same in each run.

versionadded: 0.1
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from scavenge.core.chat import ReplyReader
from scavenge.core.errorbody import Wording
from scavenge.core.flow import Stream
from scavenge.core.modellist import outcome_of_probe
from scavenge.core.outcome import of_another_api
from scavenge.core.relay import RelayReader
from scavenge.core.request_body import encode_relay, encode_request
from scavenge.errors import UsageError, single_error
from scavenge.listings import Listing
from scavenge.runtime.ports import RelayRequest, ReplySink
from scavenge.signals import ServerLoad
from scavenge.testing import faults, wire
from scavenge.testing.following import Following
from scavenge.testing.lister import Lister
from scavenge.testing.node import Node, check_servers, make_hosts
from scavenge.testing.script import run_script
from scavenge.testing.served import GarbageReply, Generation, Refusal, SimulatedServer, Truth
from scavenge.types import Answer, ApiType, ChatRequest, Endpoint, Healthy, Lost, LostCause, Ok, Outcome, Rejected

_JSON = {"content-type": "application/json"}
_EVENTS = {"content-type": "text/event-stream"}


class SimulatedFleet:
    """Simulated servers ``http://NAME.sim/v1``, and the transport and the source that lead to them.

    Time passes for them inside ``async with fleet.open()``; the script counts its seconds from there.
    """

    def __init__(
        self,
        servers: Sequence[SimulatedServer],
        script: str | Sequence[faults.Step] = "",
        random_seed: int = 0,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        check_servers(servers)
        self._steps = faults.read_steps(script, {server.name for server in servers})
        self._seed = random_seed
        hosts = make_hosts(servers, self._steps, random_seed)
        self.nodes: Mapping[str, Node] = {
            name: Node(host, f"http://{name}.sim/v1", wall_clock=wall_clock) for name, host in hosts.items()
        }
        """By name; ``nodes[name].apply(fault)`` lets a fault happen outside the script."""
        self.lister = Lister(self.nodes.values())
        """``lister.apply(fault)`` lets a fault of the listing happen outside the script."""
        self._by_url = {node.url: node for node in self.nodes.values()}
        self._open = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[SimulatedFleet]:
        """Let time pass. Leaving ends the servers; requests that are still under way never end.

        Raises :class:`scavenge.errors.UsageError` when it was opened before.
        """
        if self._open:
            raise UsageError("a simulated fleet can be opened once: make another one")
        self._open = True
        with single_error():
            async with trio.open_nursery() as nursery:
                for node in self.nodes.values():
                    nursery.start_soon(node.run_clock)
                nursery.start_soon(run_script, self._steps, self.nodes, self.lister, lambda step: None)
                yield self
                nursery.cancel_scope.cancel()

    async def list_endpoints(self) -> Listing:
        """The endpoints as the script has them listed now.

        Raises :class:`scavenge.errors.SourceError` during an outage.
        """
        return await self.lister.list_endpoints()

    def open_client(self, endpoint: Endpoint) -> SimulatedClient:
        """A client for one endpoint; a URL that is not of this fleet is a host that nobody knows."""
        return SimulatedClient(endpoint, self._by_url.get(endpoint.url), self._seed)

    @property
    def truth(self) -> Mapping[str, Truth]:
        """What each server really did, by name."""
        return {name: node.host.truth for name, node in self.nodes.items()}


@attrs.define(eq=False)
class SimulatedClient:
    """A :class:`scavenge.runtime.ports.ModelClient` that talks to a simulated server through memory."""

    _endpoint: Endpoint
    _node: Node | None
    _seed: int
    _heard_at: float = attrs.field(default=-math.inf, init=False)
    _answered_at: float = attrs.field(default=-math.inf, init=False)
    _streams: set[Generation] = attrs.field(factory=set, init=False)
    """Replies that come in token by token."""

    @property
    def heard_at(self) -> float:
        """When a byte last came from the server; tokens of a stream come all the time until it freezes."""
        if self._node is not None and any(generation.tokens for generation in self._streams):
            frozen_since = self._node.host.frozen_since
            self._hear(trio.current_time() if frozen_since is None else frozen_since)
        return self._heard_at

    @property
    def reached_at(self) -> float:
        """When anything last came from its host, which goes on taking connections while the server is frozen."""
        return max(self.heard_at, self._answered_at)

    async def ask(self, request: ChatRequest | RelayRequest, stream: Stream | None = None) -> Answer:
        """Send one request and wait for the whole reply.

        What has come of a streamed one is noted in *stream* when its ``refresh`` is called, and when the request ends.
        """
        following = Following(request, trio.current_time(), stream)
        with following.silence:
            node = await self._reach()
            if isinstance(node, Lost):
                return Answer(node)
            ask = self._begin(node, request, following)
            answer = ask if isinstance(ask, Answer) else await self._finish(ask, following)
            own = self._api_of(request) is self._endpoint.type
            return answer if own else attrs.evolve(answer, outcome=of_another_api(answer.outcome))
        await trio.lowlevel.checkpoint()
        return Answer(Lost(f"nothing heard for {request.idle_timeout_s:g} s", LostCause.SILENT))

    async def probe(self, path: str) -> Healthy | Outcome:
        """Ask whether the server is there; it lists its model at ``/models`` and has no such list anywhere else."""
        node = await self._reach()
        if isinstance(node, Lost):
            return node
        self._hear(trio.current_time())
        status, body = 200, wire.models_body(node.host)
        refusal = node.host.admit_probe(self._endpoint.secret, trio.current_time())
        if path != "/models":
            refusal = Refusal(404, f"/v1{path} does not exist on this server")
        if refusal is not None:
            status, body = refusal.status, wire.error_body(refusal)
        return outcome_of_probe(self._endpoint.model, status, _JSON, body, Wording(f"GET {node.url}{path}"))

    async def read_load(self) -> ServerLoad | None:
        """The figures that the server offers; ``None``: it offers none, cannot be reached or does not let us in."""
        node = await self._reach()
        if isinstance(node, Lost):
            return None
        self._hear(trio.current_time())
        host = node.host
        asks_for_token = host.server.metrics == "llama"  # vLLM asks for it only under /v1
        if asks_for_token and host.admit_probe(self._endpoint.secret, trio.current_time()) is not None:
            return None
        return node.read_load()

    def close(self) -> None:
        """Nothing is open between requests."""

    async def _reach(self) -> Node | Lost:
        """The server, once it hears us."""
        await trio.lowlevel.checkpoint()
        if self._node is None:
            return Lost(f"{self._endpoint.url}: no such host", LostCause.NETWORK)
        self._answered_at = trio.current_time()
        if not self._node.host.alive:
            return Lost(f"{self._endpoint.url}: connection refused")
        if self._node.host.frozen_since is not None and not await self._node.wait_responsive():
            return self._reset()
        return self._node

    def _hear(self, at: float) -> None:
        self._heard_at = max(self._heard_at, at)

    def _stop_hearing(self, generation: Generation) -> None:
        self._hear(self.heard_at)  # what has come of it so far
        self._streams.discard(generation)

    def _refused(self, refusal: Refusal | GarbageReply) -> Answer:
        self._hear(trio.current_time())
        return Answer(_outcome_of(refusal), 0.0)

    def _reset(self) -> Lost:
        self._answered_at = trio.current_time()
        return Lost(f"{self._endpoint.url}: connection reset")

    def _api_of(self, request: ChatRequest | RelayRequest) -> ApiType:
        return request.api if isinstance(request, RelayRequest) else self._endpoint.type

    def _body_of(self, request: ChatRequest | RelayRequest) -> bytes | Rejected:
        model = self._endpoint.model
        if isinstance(request, ChatRequest):
            return encode_request(self._endpoint.type, model, request)
        handed_on = request.sink is not None
        return encode_relay(model, request.body, request.defaults, stream=request.stream, handed_on=handed_on)

    def _begin(self, node: Node, request: ChatRequest | RelayRequest, following: Following) -> wire.Ask | Answer:
        """Let the server take a request on; the answer of one that it does not."""
        body = self._body_of(request)
        if isinstance(body, Rejected):
            return Answer(body)
        ask = wire.read_ask(body, wire.CHAT if self._api_of(request) is ApiType.CHAT_COMPLETIONS else wire.TEXT)
        if isinstance(ask, Refusal):
            return self._refused(ask)
        reply = wire.reply_for(ask, self._seed)
        refusal = node.host.admit(ask.model, self._endpoint.secret, reply.prompt_tokens, trio.current_time())
        begun = node.begin(reply, following.look) if refusal is None else refusal
        if not isinstance(begun, Generation):
            return self._refused(begun)
        following.begin(node, begun)
        return ask

    async def _finish(self, ask: wire.Ask, following: Following) -> Answer:
        """Wait until the generation is over. Cancelled, the server stops generating."""
        generation, request = following.generation, following.request
        sink = request.sink if isinstance(request, RelayRequest) and ask.stream else None
        if ask.stream:
            self._streams.add(generation)
        try:
            outcome = await (self._collect(ask, following) if sink is None else self._hand_on(ask, following, sink))
        finally:
            following.end()
            self._stop_hearing(generation)
        if not generation.lost:
            self._hear(trio.current_time())
        return Answer(outcome, following.first_byte_s)

    async def _collect(self, ask: wire.Ask, following: Following) -> Outcome:
        await following.wait_over()
        if following.generation.lost:
            return self._reset()
        outcome = _read(200, wire.whole_reply(ask, following.generation))
        if ask.stream and isinstance(outcome, Ok):  # it would have come in events
            return attrs.evolve(outcome, reply=attrs.evolve(outcome.reply, body=None))
        return outcome

    async def _hand_on(self, ask: wire.Ask, following: Following, sink: ReplySink) -> Outcome:
        """Hand a stream on token by token, in the events in which it would have come."""
        generation, reader, written = following.generation, RelayReader(), 0
        reader.start(200, _EVENTS)
        while True:
            await following.wait_more(written)
            if generation.lost:
                return reader.cut(self._reset().message) if written else self._reset()  # the head comes with a token
            data = b"" if written else wire.stream_opening(ask)
            start, written = written, generation.tokens
            data += wire.stream_tokens(ask, generation.reply.tokens[start:written])
            if ended := generation.over:
                data += wire.stream_end(ask, generation)
            if events := reader.feed(data):
                await following.give(sink, events)
            if ended:
                return reader.finish()


def _outcome_of(refusal: Refusal | GarbageReply) -> Outcome:
    if isinstance(refusal, GarbageReply):
        return _read(200, wire.GARBAGE_PAGE, {"content-type": "text/html"})
    headers = {name.lower(): value for name, value in wire.refusal_headers(refusal)}
    return _read(refusal.status, wire.error_body(refusal), headers)


def _read(status: int, body: bytes, headers: Mapping[str, str] = _JSON) -> Outcome:
    reader = ReplyReader()
    reader.start(status, headers)
    reader.feed(body)
    return reader.finish()
