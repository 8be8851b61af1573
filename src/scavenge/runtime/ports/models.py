"""Endpoints and those who ask them: sources, gates, clients, sessions, and the door for calls from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs

from scavenge.calls import Call, ModelCard, Relayed
from scavenge.core.callbody import CallBody
from scavenge.core.flow import Stream
from scavenge.listings import Listing
from scavenge.signals import ServerLoad
from scavenge.types import Answer, ApiType, ChatRequest, Completion, Endpoint, Healthy, Json, Messages, Outcome


class EndpointSource(Protocol):
    """Says which endpoints should exist."""

    async def list_endpoints(self) -> Listing:
        """The endpoints as they are listed now.

        Raises :class:`scavenge.SourceError` (or anything) when it cannot say: the last listing stands. Cancelled at any
        checkpoint, it leaves nothing behind.
        """
        ...


class AdmissionPolicy(Protocol):
    """Decides how many requests one endpoint may have in flight. Pure: it is told what happens and what time it is.

    A policy may have two things more. ``wants_load = True`` has it hear of :class:`scavenge.signals.ServerLoad`, which
    is read from the server every few seconds. ``view(now) -> GateView`` says what it knows, for people and for the
    gates of endpoints that join later; without it only the limit is shown.
    """

    def observe(self, event: Any, now: float) -> None:
        """Hear of something that happened on the endpoint; :mod:`scavenge.signals` says what, and in which order.

        An event of a kind that it does not know is ignored.
        """
        ...

    def limit(self, now: float) -> int:
        """The number of requests that may be in flight, at least 1."""
        ...

    def next_wake_at(self, now: float) -> float | None:
        """When to be told of the :class:`scavenge.signals.Flow` since the last time; ``None``: not yet.

        It is told nothing while nothing is in flight. After it was told, the next instant must lie in the future.
        """
        ...


class ReplySink(Protocol):
    """Where the reply to a foreign client goes while it comes."""

    @property
    def begun(self) -> bool:
        """Whether anything of the reply has gone to the client: from then on nobody else can give it."""
        ...

    async def take(self, events: bytes) -> None:
        """Hand on whole events of the reply as they came. Waits for as long as the client takes nothing.

        Raises nothing; once the client is gone, whoever asks is cancelled. Cancelled, some may have gone.
        """
        ...


@attrs.frozen
class RelayRequest:
    """A foreign client's request as it goes to one endpoint, which puts its model's name in."""

    api: ApiType
    body: CallBody = attrs.field(repr=False)
    stream: bool
    """Whether the server is asked for a stream."""
    sink: ReplySink | None = None
    """Where the events of a stream go as they come; ``None``: the reply is put together, and given whole."""
    idle_timeout_s: float = 600.0
    defaults: Json = attrs.field(factory=dict)
    """Keys for the top of the body that go in where it lacks them."""


class ModelClient(Protocol):
    """Talks to one endpoint. Its connections live until :meth:`close`."""

    @property
    def heard_at(self) -> float:
        """When a byte last came from the server itself, on any connection (Trio's clock); minus infinity: never.

        A connection that was taken is no such sign: the kernel takes it for a process that is frozen.
        """
        ...

    @property
    def reached_at(self) -> float:
        """When its host last gave any sign: a byte, or a connection that it took, refused or reset."""
        ...

    async def ask(self, request: ChatRequest | RelayRequest, stream: Stream | None = None) -> Answer:
        """Send one request and wait for the whole reply. What goes wrong is an outcome, never an exception.

        What comes of a streamed reply is noted in *stream* as it comes. Cancellation closes the connection, so that the
        server stops generating.
        """
        ...

    async def probe(self, path: str) -> Healthy | Outcome:
        """Ask ``GET {url}{path}`` whether the server is there and lists the model; the caller sets the deadline."""
        ...

    async def read_load(self) -> ServerLoad | None:
        """The server's own figures, as far as it tells any; ``None``: it tells none. The caller sets the deadline."""
        ...

    def close(self) -> None:
        """Close the idle connections at once; those in use close when their exchange ends. Never waits."""
        ...


class ModelTransport(Protocol):
    """Makes clients."""

    def open_client(self, endpoint: Endpoint) -> ModelClient:
        """A client for one endpoint's present settings; whoever calls this closes it."""
        ...


class ModelSession(Protocol):
    """What a rollout sees of the model."""

    @property
    def base_url(self) -> str:
        """Where a foreign OpenAI client finds the model, as this rollout; good until the rollout ends.

        Raises :class:`scavenge.UsageError` where no gateway is open.
        """
        ...

    @property
    def api_key(self) -> str:
        """The key that goes with :attr:`base_url`."""
        ...

    async def chat(self, messages: Messages, **options: object) -> Completion:
        """One request, retried as often as the run allows.

        Raises :class:`scavenge.RequestFailed` when it cannot be answered. Cancelled, it gives back its slot.
        """
        ...


class SyncModelSession(Protocol):
    """What a rollout of an environment with ``backend = "sync"`` sees of the model.

    versionadded: 0.1
    """

    @property
    def base_url(self) -> str:
        """Where a foreign OpenAI client finds the model, as this rollout; good until the rollout ends."""
        ...

    @property
    def api_key(self) -> str:
        """The key that goes with :attr:`base_url`."""
        ...

    def chat(self, messages: Messages, **options: object) -> Completion:
        """One request, retried as often as the run allows; blocks.

        Raises :class:`scavenge.RequestFailed` when it cannot be answered. Once the rollout is cancelled, it raises at
        once, and so does every later call.
        """
        ...


class ModelDoor(Protocol):
    """Where requests for the model come in from outside."""

    async def answer(self, call: Call, sink: ReplySink | None) -> Relayed:
        """Have a call answered, sent again as often as need be until its sink has begun.

        *sink* takes the reply of a call that wants a stream; one that the server does not stream is returned whole.
        Raises what :meth:`ModelSession.chat` raises, :class:`scavenge.errors.UnknownSession` when there is no such
        session, or when it ends meanwhile, :class:`scavenge.errors.UnknownModel`,
        :class:`scavenge.errors.NoEndpointsError` and :class:`scavenge.errors.Stopping`. Cancelled, it gives back its
        slot, and the server hears at once that nobody waits.
        """
        ...

    def models(self) -> Sequence[ModelCard]:
        """The names of models that a call can use."""
        ...

    def end_session(self, session_id: str) -> bool:
        """End a session, and cancel what is under way in it; false where there is none. Never waits."""
        ...
