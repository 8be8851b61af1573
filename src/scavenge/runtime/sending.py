"""One request on its way from a session to an endpoint: what is asked, its place in the queue, the attempts so far."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import attrs
import trio

from scavenge.core.ledger import Ask
from scavenge.core.retry import RetrySettings
from scavenge.runtime.patience import Patience
from scavenge.runtime.ports import RelayRequest
from scavenge.types import Attempt, ChatRequest, Completion, Json, Reply, Usage

T = TypeVar("T")


def unheard() -> None:
    """What is told to nobody."""


@attrs.frozen
class RequestSettings:
    """How the requests of an evaluation are made. Times are in seconds; ``request_timeout`` bounds one attempt."""

    sampling: Json = attrs.field(factory=dict)
    stream: bool = True
    idle_timeout: float = 600.0
    request_timeout: float | None = None
    retry: RetrySettings = attrs.field(factory=RetrySettings)


@attrs.define(eq=False)
class Sending:
    """A session may have several at once; each keeps its own place and tells its own attempts."""

    request: ChatRequest | RelayRequest
    ask: Ask
    prompt_tokens: float
    """Tokens of its prompt, by the length of its texts."""
    patience: Patience | None = None
    """How long it waits where nothing serves it; ``None``: whoever asks decides."""
    on_sent: Callable[[], None] = unheard
    """Is called for each attempt."""
    attempts: list[Attempt] = attrs.field(factory=list)
    first_token_s: float | None = None
    """Of the latest attempt, from when it was sent."""
    usage: Usage | None = None
    """Of the reply, once there is one."""

    @property
    def begun(self) -> bool:
        """Whether a client has some of the reply, so that it cannot be asked for elsewhere."""
        return isinstance(self.request, RelayRequest) and self.request.sink is not None and self.request.sink.begun

    def completion(self, reply: Reply) -> Completion:
        """What a rollout is given of the reply."""
        return Completion(
            reply.text,
            reply.finish_reason,
            reply.reasoning,
            reply.tool_calls,
            reply.usage,
            tuple(self.attempts),
            reply.raw,
        )

    async def wait(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Wait for what *ask* waits for, with patience.

        Raises :class:`scavenge.errors.NoEndpointsError` when that is over.
        """
        return await (ask() if self.patience is None else self.patience.wait(ask))

    async def back_off(self, wait_s: float) -> None:
        """Let some time pass before the next attempt; nothing to wait for is no checkpoint. Raises as :meth:`wait`."""
        if wait_s:
            await self.wait(partial(trio.sleep, wait_s))
        elif self.patience is not None:
            self.patience.check(trio.current_time())
