"""One rollout's way to the model: each request takes a lease, is attempted, and is sent again as its history decides.

Data flow: ask → lease → attempt → outcome → pool (health, stall) and history (again, done, given up). Knows no wire
format, no limits and no rollout.

Invariant: a session holds at most one lease at a time (the first may come from the feeder, already granted), and holds
none while it backs off; every attempt leaves exactly one record.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import assert_never

import attrs
import trio

from scavenge.calls import Call, ModelCard, Relayed
from scavenge.core.callbody import CallBody
from scavenge.core.calling import may_be_streamed, options_of, prompt_tokens_of_call, refuses_stream
from scavenge.core.ledger import Ask
from scavenge.core.outcome import while_leaving
from scavenge.core.retry import Again, Done, GiveUp, RequestHistory
from scavenge.core.sessions.book import LiveSession
from scavenge.core.tokens import prompt_tokens_of, tokens_of
from scavenge.errors import PoisonRequest, UsageError
from scavenge.events import AttemptDropped, AttemptEnded, AttemptStarted, Observer
from scavenge.runtime.attempt import exchange, record_of, tokens_told
from scavenge.runtime.desk import SessionDesk
from scavenge.runtime.dispatcher import HeldLease
from scavenge.runtime.member import Member
from scavenge.runtime.patience import Patience
from scavenge.runtime.pool import Pool
from scavenge.runtime.ports import RelayRequest, ReplySink
from scavenge.runtime.sending import RequestSettings, Sending, unheard
from scavenge.types import (
    Answer,
    ApiType,
    Attempt,
    ChatRequest,
    Completion,
    Json,
    Messages,
    ModelAddress,
    Reply,
    RequestFailed,
    Url,
    Usage,
)

STREAMS_REFUSED = 3
"""So many refused streams, each of which was answered without one, and a pool is asked for none any more."""


@attrs.frozen
class SessionPorts:
    """What a session needs from the run."""

    emit: Observer
    random: Random
    wall_clock: Callable[[], float]
    desk: SessionDesk | None = None
    """Where requests of foreign clients come in; ``None``: no gateway is open."""


@attrs.define(eq=False)
class Session:
    """The model as one rollout sees it. ``age`` orders its requests among all: the lower, the earlier served."""

    pool: Pool
    age: int
    settings: RequestSettings
    ports: SessionPorts = attrs.field(repr=False)
    first_lease: HeldLease | None = None
    """A lease that was taken for the first request; :meth:`close` gives it back if no request came."""
    place: LiveSession | None = None
    """Its place among the sessions of the pool; whoever took it gives it back. ``None``: it needs none."""
    prompt: Messages | None = None
    """The messages of the latest request."""
    attempts: list[Attempt] = attrs.field(factory=list)
    queued_s: float = 0.0
    model_s: float = 0.0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    _turns: int = 0
    _affine: Url | None = None
    _context_tokens: float = 0.0
    """Tokens of its latest prompt with the reply: what the endpoint in ``_affine`` need not read anew."""

    @property
    def usage(self) -> Usage:
        """The tokens of all its requests together."""
        return Usage(self.prompt_tokens, self.completion_tokens)

    @property
    def card(self) -> ModelCard:
        """The name of its model."""
        return ModelCard(self.pool.endpoint_id, self.pool.model)

    @property
    def base_url(self) -> str:
        """Where a foreign OpenAI client finds the model, as this session, until it is closed.

        Raises :class:`scavenge.UsageError` where no gateway is open.
        """
        return self._address().base_url

    @property
    def api_key(self) -> str:
        """The key that goes with :attr:`base_url`."""
        return self._address().api_key

    def _address(self) -> ModelAddress:
        if self.ports.desk is None:
            raise UsageError("base_url and api_key need a gateway, which is open in `scavenge run` only; use chat()")
        return self.ports.desk.admit(self)

    async def chat(self, messages: Messages, **options: object) -> Completion:
        """One request, sent again as often as the run's settings allow.

        Raises :class:`RequestFailed` when it cannot be answered, :class:`PoisonRequest` when it was lost too often.
        Cancelled, it gives back its slots and closes its connection.
        """
        request = self._chat_request(messages, options, self.settings.stream)
        sending = self._sending(request, prompt_tokens_of(messages))
        self.prompt = messages
        return sending.completion(await self._answer(sending))

    async def relay(
        self,
        call: Call,
        sink: ReplySink | None,
        patience: Patience | None = None,
        on_sent: Callable[[], None] = unheard,
    ) -> Relayed:
        """A foreign client's request, sent again as often as the settings allow, until *sink* has begun.

        A whole reply is asked for as a stream where that can be, so that a lost server is noticed and the gates see
        what flows; a server that refuses is asked once more as the client did, and then it counts. *patience* bounds
        the waits; *on_sent* is called for each attempt. Raises what :meth:`chat` raises, and
        :class:`scavenge.errors.NoEndpointsError`. Cancelled, it gives back its slots and closes its connection.
        """
        if call.messages:
            self.prompt = call.messages
        as_stream = call.streamed or (self._asks_for_streams and may_be_streamed(call.document))
        request = self._request_of(call, sink, as_stream)
        sending = self._sending(request, prompt_tokens_of_call(call))
        sending.patience, sending.on_sent = patience, on_sent
        try:
            reply = await self._answer(sending)
        except RequestFailed as exc:
            if call.streamed or not as_stream or not refuses_stream(exc.outcome):
                raise
            sending.request = self._request_of(call, None, as_stream=False)
            reply = await self._answer(sending)
            self.pool.streams_refused += 1
        return Relayed(reply, tuple(sending.attempts))

    @property
    def _asks_for_streams(self) -> bool:
        return self.settings.stream and self.pool.streams_refused < STREAMS_REFUSED

    def _request_of(self, call: Call, sink: ReplySink | None, as_stream: bool) -> ChatRequest | RelayRequest:
        """The call as it goes to endpoints; one that only completes texts gets a chat as text, as from a rollout."""
        if call.api is ApiType.CHAT_COMPLETIONS and self.pool.api is ApiType.COMPLETIONS:
            return self._chat_request(call.messages, options_of(call.document), as_stream)
        body, defaults = CallBody(call.body, call.document), self.settings.sampling
        return RelayRequest(call.api, body, as_stream, sink, self.settings.idle_timeout, defaults)

    def _chat_request(self, messages: Messages, options: Json, as_stream: bool) -> ChatRequest:
        return ChatRequest(messages, {**self.settings.sampling, **options}, as_stream, self.settings.idle_timeout)

    def _sending(self, request: ChatRequest | RelayRequest, prompt_tokens: float) -> Sending:
        self._turns += 1
        return Sending(request, Ask((self.age, self._turns), prefer=self._affine), prompt_tokens)

    async def _answer(self, sending: Sending) -> Reply:
        """Have a request answered, in its turn where the session has a place."""
        place = self.place
        if place is None:
            return await self._send(sending)
        self.queued_s += await sending.wait(lambda: self.pool.sessions.turn(place, sending.prompt_tokens))
        try:
            return await self._send(sending)
        finally:
            self.pool.sessions.turn_ended(place, sending.usage, sending.first_token_s, self._affine)

    async def _send(self, sending: Sending) -> Reply:
        """Send a request until it is answered or given up."""
        history = RequestHistory(self.settings.retry, self.ports.random)
        while True:
            answer, url = await self._attempt(sending)
            leaving = self.pool.is_leaving(url)
            step = history.after(answer.outcome, url, leaving=leaving, elsewhere=not self.pool.hopeless())
            match step:
                case Done(reply):
                    self._affine = url
                    sending.usage = reply.usage
                    self._context_tokens = sending.prompt_tokens + (tokens_of(answer.outcome) or 0.0)
                    self._count(reply.usage)
                    return reply
                case GiveUp(poison=True):
                    raise PoisonRequest(f"lost {history.losses} times, last: {answer.outcome.message}")
                case GiveUp(outcome):
                    raise RequestFailed(outcome, sending.attempts)
                case Again() if sending.begun:
                    raise RequestFailed(answer.outcome, sending.attempts)
                case Again():
                    sending.ask = attrs.evolve(sending.ask, avoid=step.avoid)
                    await sending.back_off(step.wait_s)
                case _:
                    assert_never(step)

    def afresh(self) -> Session:
        """A session for playing the rollout again: it knows nothing of the conversation, and all that was spent."""
        if self.place is not None:
            self.pool.sessions.restart(self.place)
        return Session(
            self.pool,
            self.age,
            self.settings,
            self.ports,
            place=self.place,
            attempts=self.attempts,
            queued_s=self.queued_s,
            model_s=self.model_s,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
        )

    def close(self) -> None:
        """Give back the first lease if no request used it, and end what foreign clients still ask as this session."""
        if self.ports.desk is not None:
            self.ports.desk.dismiss(self)
        if self.first_lease is not None:
            self.pool.release(self.first_lease)
            self.first_lease = None

    async def _attempt(self, sending: Sending) -> tuple[Answer, Url]:
        held, member = await self._lease(sending)
        started_at, started_time = trio.current_time(), self.ports.wall_clock()
        client, gate = member.client, member.gate
        known_tokens = self._context_tokens if member.url == self._affine else 0.0
        fresh_tokens = max(0.0, sending.prompt_tokens - known_tokens)
        stream = self.pool.gating.begin(member, streamed=sending.request.stream, prompt_tokens=fresh_tokens)
        answer: Answer | None = None
        try:
            member.on_asked()
            sending.on_sent()
            self.ports.emit(AttemptStarted(self.pool.endpoint_id, member.url, bool(sending.attempts)))
            answer = await exchange(held, member, sending.request, stream, self.settings.request_timeout)
            if self.pool.is_leaving(member.url):
                answer = attrs.evolve(answer, outcome=while_leaving(answer.outcome))
            sending.first_token_s = None if stream.first_at is None else stream.first_at - started_at
            self.pool.gating.end(member, gate, stream, answer)
            # before the slot is free again: the next in the queue must not be sent to a server that was just lost
            outcome = self.pool.hearing.report(member, client, answer.outcome, started_at, tokens_of(answer.outcome))
            answer = attrs.evolve(answer, outcome=outcome)
        except BaseException:
            if answer is None:
                self.pool.gating.end(member, gate, stream, None)
            self.ports.emit(AttemptDropped(self.pool.endpoint_id, member.url))
            raise
        finally:
            self.pool.release(held)
        duration_s = trio.current_time() - started_at
        self.model_s += duration_s
        attempt = record_of(answer, member.url, started_time, duration_s, streamed=sending.request.stream)
        sending.attempts.append(attempt)
        self.attempts.append(attempt)
        self.ports.emit(AttemptEnded(self.pool.endpoint_id, attempt, tokens_told(answer)))
        return answer, member.url

    async def _lease(self, sending: Sending) -> tuple[HeldLease, Member]:
        """A lease on an endpoint that is still a member when the lease arrives."""
        while True:
            held, self.first_lease = self.first_lease, None
            if held is None:
                held = await self._acquire(sending)
            self.queued_s += held.queued_s
            member = self.pool.members.get(held.url)
            if member is not None and not held.revoked:
                return held, member
            self.pool.release(held)

    async def _acquire(self, sending: Sending) -> HeldLease:
        try:
            return await sending.wait(lambda: self.pool.acquire(sending.ask))
        except RequestFailed as exc:
            raise RequestFailed(exc.outcome, sending.attempts) from None

    def _count(self, usage: Usage) -> None:
        if usage.prompt_tokens is not None:
            self.prompt_tokens = (self.prompt_tokens or 0) + usage.prompt_tokens
        if usage.completion_tokens is not None:
            self.completion_tokens = (self.completion_tokens or 0) + usage.completion_tokens
