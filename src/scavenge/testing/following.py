"""How a client in memory follows one generation until it is over: when it counts as silent, and what has come of it.

No task wakes for a token, unless the reply is handed on as it comes: the host calls :meth:`Following.look`, and whoever
measures the flow calls :meth:`Following.note` through the stream's ``refresh``. It must not know how requests and
replies are written.
"""

from __future__ import annotations

import math

import attrs
import trio

from scavenge.core.flow import Stream
from scavenge.runtime.ports import RelayRequest, ReplySink
from scavenge.testing.node import Bell, Node
from scavenge.testing.served import Generation
from scavenge.types import ChatRequest

LOOK_EVERY_S = 0.05
"""How often whoever hands a reply on looks for tokens that the engine does not tell of."""


@attrs.define(eq=False)
class Following:
    """One request, from its sending to its end. Streamed, ``silence`` is cancelled when nothing came for too long.

    Until the first token that is the idle time since it was sent; a stream that has begun is silent only while its
    server is frozen, even when the engine has put it back in its queue, and somebody takes what comes.
    """

    request: ChatRequest | RelayRequest
    started_at: float
    stream: Stream | None
    silence: trio.CancelScope = attrs.field(init=False)
    first_byte_s: float | None = attrs.field(default=None, init=False)
    """From its sending to the first byte of the reply; known once it is over, ``None``: there was none."""
    _begun: tuple[Node, Generation] | None = attrs.field(default=None, init=False)
    _over: trio.Event = attrs.field(factory=trio.Event, init=False)
    _bell: Bell = attrs.field(factory=Bell, init=False)
    """Rings when there is more to hand on."""
    _taking: bool = attrs.field(default=False, init=False)
    """Whether whoever the reply is handed on to has not taken what came."""
    _taken_at: float = attrs.field(default=-math.inf, init=False)
    """When that was taken last."""

    def __attrs_post_init__(self) -> None:
        idle_s = self.request.idle_timeout_s if self.request.stream else math.inf
        self.silence = trio.CancelScope(deadline=self.started_at + idle_s)

    @property
    def generation(self) -> Generation:
        """What the server makes of it, once it has begun."""
        return self._work[1]

    @property
    def _work(self) -> tuple[Node, Generation]:
        if self._begun is None:
            raise RuntimeError("the request has not begun: call begin() first")
        return self._begun

    def begin(self, node: Node, generation: Generation) -> None:
        """The server took it on."""
        self._begun = (node, generation)
        if self.stream is not None and self.request.stream:
            self.stream.refresh = self.note
        self.look()

    def look(self) -> None:
        """There is more to see. Neither waits nor raises."""
        if self._begun is None:
            return
        node, generation = self._begun
        self._bell.ring()
        if self.request.stream and generation.tokens:
            frozen_since = math.inf if self._taking else node.host.frozen_since
            idle_s = self.request.idle_timeout_s
            deadline = math.inf if frozen_since is None else max(frozen_since, self._taken_at) + idle_s
            if deadline != self.silence.deadline:  # to set it costs more than to look
                self.silence.deadline = deadline
        if generation.over:
            self._over.set()

    def note(self, now: float) -> None:
        """Note in the stream what has come by *now*."""
        node, generation = self._work
        node.refresh(generation)
        if self.stream is None or generation.tokens <= self.stream.chunks:
            return
        frozen_since = node.host.frozen_since
        self.stream.chunks, self.stream.first_at = generation.tokens, generation.first_at
        self.stream.last_at = now if frozen_since is None else min(now, frozen_since)

    async def wait_over(self) -> None:
        """Wait until nothing more will come."""
        await self._over.wait()

    async def wait_more(self, tokens: int) -> None:
        """Wait until there are more than so many tokens, or nothing more will come."""
        node, generation = self._work
        await trio.lowlevel.checkpoint()
        while generation.tokens <= tokens and not generation.over:
            told = node.host.tells_each_token or not generation.tokens or node.host.frozen_since is not None
            with trio.move_on_after(math.inf if told else LOOK_EVERY_S):
                await self._bell.wait_rung()
            node.refresh(generation)

    async def give(self, sink: ReplySink, events: bytes) -> None:
        """Hand on what has come; while it is not taken, the server is not silent."""
        self._taking = True
        self.look()
        if self.stream is not None:
            self.stream.hold_back()
        await sink.take(events)
        self._taking, self._taken_at = False, trio.current_time()
        self.look()
        if self.stream is not None:
            self.stream.read_on(self._taken_at)

    def end(self) -> None:
        """Note what has come, and hang up if it is not over. Never waits, so that it also works while cancelled."""
        node, generation = self._work
        now = trio.current_time()
        if self.stream is not None and self.request.stream:
            self.note(now)
            self.stream.refresh = None
        node.cancel(generation)
        self.first_byte_s = self._first_byte_s(generation, now)

    def _first_byte_s(self, generation: Generation, now: float) -> float | None:
        if self.request.stream and generation.first_at is not None:
            return generation.first_at - self.started_at
        return None if generation.lost else now - self.started_at
