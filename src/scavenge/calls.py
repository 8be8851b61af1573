"""Frozen values of what foreign clients ask through the gateway, and how it was answered. No decisions here."""

from __future__ import annotations

import attrs

from scavenge.types import ApiType, Attempt, Json, Messages, Reply


@attrs.frozen
class Call:
    """A request of a foreign client. Its body goes on as it came, but for the model's name."""

    api: ApiType
    body: bytes = attrs.field(repr=False)
    document: Json = attrs.field(repr=False)
    """What is in the body."""
    model: str = ""
    """The model that it names; empty: none."""
    streamed: bool = False
    """Whether the client wants a stream."""
    session_id: str | None = None

    @property
    def messages(self) -> Messages:
        """Its messages; none in the completions protocol."""
        messages = self.document.get("messages")
        return messages if isinstance(messages, list) else ()


@attrs.frozen
class Relayed:
    """How a call was answered: by what its sink has taken, or else by ``reply``, which is whole."""

    reply: Reply
    attempts: tuple[Attempt, ...] = ()


@attrs.frozen
class ModelCard:
    """A name that calls can use for a model. ``root`` is the model's own name at its servers."""

    id: str
    root: str


@attrs.frozen
class Page:
    """What a gateway shows beside its models: a document of its own making."""

    status: int
    content_type: str
    body: bytes
