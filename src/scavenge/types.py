"""Frozen values that every ring shares: endpoints, requests, outcomes. No decisions here.

Durations end in ``_s`` (seconds), instants in ``_at`` (seconds of the run's clock) or ``_time`` (Unix epoch seconds).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar, NewType, TypeAlias

import attrs

from scavenge.errors import ScavengeError

EndpointId = NewType("EndpointId", str)
"""The name of a pool: endpoints with the same id are interchangeable."""

Url = NewType("Url", str)
"""The API root of one endpoint in normal form: no trailing slash, lower-case scheme and host, no default port."""

Json: TypeAlias = "Mapping[str, object]"
Messages: TypeAlias = "Sequence[Json]"


# --- endpoints


class ApiType(enum.Enum):
    """Which of the OpenAI protocols an endpoint speaks."""

    CHAT_COMPLETIONS = "openai_chat_completions"
    COMPLETIONS = "openai_completions"


@attrs.frozen
class Endpoint:
    """One inference server, checked: every field is valid and the API key has been looked up."""

    endpoint_id: EndpointId
    model: str
    url: Url
    key: str | None = None
    """The name of the environment variable that holds the API key."""
    secret: str | None = attrs.field(default=None, repr=False)
    """The API key itself."""
    max_concurrent: int | None = None
    type: ApiType = ApiType.CHAT_COMPLETIONS
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    draining: bool = False
    proxy: str | None = attrs.field(default=None, repr=False)
    drain_deadline: datetime | None = None
    source: str = ""
    """The label of the source that lists it; empty for one that no source lists."""


@attrs.frozen
class CapChanged:
    """An admission policy hears of its endpoint's ``max_concurrent``: first of all, and whenever it changes."""

    max_concurrent: int | None


@attrs.frozen
class ModelAddress:
    """Where a foreign OpenAI client finds the model of one rollout: a base URL and the key to send."""

    base_url: str
    api_key: str = attrs.field(repr=False)


# --- one request and what becomes of it


@attrs.frozen
class ChatRequest:
    """What is asked of a model. ``options`` are sent as they are (``temperature``, ``max_tokens``, ``tools`` ...)."""

    messages: Messages
    options: Json = attrs.field(factory=dict)
    stream: bool = True
    idle_timeout_s: float = 600.0


@attrs.frozen
class Usage:
    """Tokens as the server counted them; ``None`` where it did not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    """How many of the prompt's tokens the server found in its prefix cache."""


@attrs.frozen
class Reply:
    """A complete, well-formed reply. ``text`` may be empty."""

    text: str
    finish_reason: str
    reasoning: str | None = None
    tool_calls: tuple[Json, ...] = ()
    usage: Usage = Usage()
    raw: Json = attrs.field(factory=dict, repr=False)
    """The reply in the shape of a non-streaming response, put together from the chunks when it was streamed."""
    body: bytes | None = attrs.field(default=None, repr=False)
    """The same as it came; ``None`` where it came as a stream."""
    pieces: int = 0
    """How many chunks said something, of a stream that was handed on: about its tokens, where nobody counted them."""


class LostCause(enum.Enum):
    """Why an attempt was lost, as far as the attempt itself can tell."""

    SERVER = "server"
    """The server, or the way to it, answered by refusing, resetting or cutting short."""
    SILENT = "silent"
    """Nothing was heard: the server's fault, unless nobody else is heard either."""
    NETWORK = "network"
    """Nothing could be sent from here (no route, no name): this machine's network, unless others can be reached."""
    NAMES = "names"
    """The resolver of this machine gave no answer for the name: its fault, or that of whoever serves the name."""
    LOCAL = "local"
    """A shortage of this machine (descriptors, memory, ports): nobody is blamed."""
    LATE = "late"
    """This process was too busy to notice in time, or its network was lost: nobody is blamed."""
    REVOKED = "revoked"
    """The lease ended because the endpoint was found to be lost; it has been blamed already."""


@attrs.frozen
class Ok:
    name: ClassVar[str] = "ok"
    reply: Reply
    http_status: int = 200
    message: ClassVar[None] = None


@attrs.frozen
class Lost:
    """The endpoint went away under the request: costs it nothing."""

    name: ClassVar[str] = "lost"
    message: str
    cause: LostCause = LostCause.SERVER
    http_status: int | None = None


@attrs.frozen
class Busy:
    """The endpoint asks for patience."""

    name: ClassVar[str] = "busy"
    message: str
    http_status: int | None = None
    retry_after_s: float | None = None


@attrs.frozen
class Failed:
    """The endpoint answered, but with a fault of its own."""

    name: ClassVar[str] = "failed"
    message: str
    http_status: int | None = None


@attrs.frozen
class Misrouted:
    """The endpoint does not serve what it is listed for, or does not let us in.

    ``curable`` tells 404 and TLS trouble, which may pass by itself, from 401 and 403, which end with new settings.
    """

    name: ClassVar[str] = "misrouted"
    message: str
    http_status: int | None = None
    curable: bool = False


@attrs.frozen
class Rejected:
    """The request's own fault: the same everywhere."""

    name: ClassVar[str] = "rejected"
    message: str
    http_status: int | None = None
    context_length: bool = False


@attrs.frozen
class TimedOut:
    """``request_timeout`` passed."""

    name: ClassVar[str] = "timeout"
    message: str
    http_status: ClassVar[None] = None


Outcome: TypeAlias = "Ok | Lost | Busy | Failed | Misrouted | Rejected | TimedOut"


@attrs.frozen
class Healthy:
    """A probe was answered. ``listed`` is false where the server has no list of models to look into."""

    name: ClassVar[str] = "healthy"
    listed: bool = True


@attrs.frozen
class Answer:
    """What one exchange with an endpoint came to. ``first_byte_s`` runs from sending to the first byte of the body."""

    outcome: Outcome
    first_byte_s: float | None = None
    cached: bool = False
    """Whether something before the engine says that it had the whole reply in a cache."""


@attrs.frozen
class Attempt:
    """The record of one attempt at a request."""

    endpoint: Url
    outcome: str
    started_time: float
    duration_s: float
    http_status: int | None = None
    first_byte_s: float | None = None
    tokens_per_s: float | None = None
    message: str | None = None


@attrs.frozen
class Completion:
    """A reply with the attempts that it took."""

    text: str
    finish_reason: str
    reasoning: str | None
    tool_calls: tuple[Json, ...]
    usage: Usage
    attempts: tuple[Attempt, ...]
    raw: Json = attrs.field(repr=False)


class RequestFailed(ScavengeError):
    """A request could not be answered: ``outcome`` is the last one, ``attempts`` are all."""

    def __init__(self, outcome: Outcome, attempts: Sequence[Attempt]) -> None:
        self.outcome = outcome
        self.attempts = tuple(attempts)
        super().__init__(outcome, self.attempts)

    def __str__(self) -> str:
        tried, status = len(self.attempts), self.outcome.http_status
        code = "" if status is None or status < 400 else f" (HTTP {status})"  # what broke later is in the message
        return f"{self.outcome.name}{code} after {tried} attempt{'s' * (tried != 1)}: {self.outcome.message}"
