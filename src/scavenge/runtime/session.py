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

from scavenge.core.flow import Stream
from scavenge.core.ledger import Ask
from scavenge.core.outcome import while_leaving
from scavenge.core.retry import Again, Done, GiveUp, RequestHistory, RetrySettings
from scavenge.core.sessions.book import LiveSession
from scavenge.core.tokens import prompt_tokens_of, tokens_of
from scavenge.errors import PoisonRequest, UsageError
from scavenge.events import AttemptDropped, AttemptEnded, AttemptStarted, Observer
from scavenge.runtime.desk import SessionDesk
from scavenge.runtime.dispatcher import HeldLease
from scavenge.runtime.member import OWN_LAG_S, Member
from scavenge.runtime.pool import Pool
from scavenge.types import (
    Answer,
    Attempt,
    ChatRequest,
    Completion,
    Json,
    Lost,
    LostCause,
    Messages,
    ModelAddress,
    Ok,
    RequestFailed,
    TimedOut,
    Url,
    Usage,
)


@attrs.frozen
class RequestSettings:
    """How the requests of an evaluation are made. Times are in seconds; ``request_timeout`` bounds one attempt."""

    sampling: Json = attrs.field(factory=dict)
    stream: bool = True
    idle_timeout: float = 600.0
    request_timeout: float | None = None
    retry: RetrySettings = attrs.field(factory=RetrySettings)


@attrs.frozen
class SessionPorts:
    """What a session needs from the run."""

    emit: Observer
    random: Random
    wall_clock: Callable[[], float]
    desk: SessionDesk | None = None
    """Where requests of foreign clients come in; ``None``: no gateway is open."""


@attrs.define(eq=False)
class _Sending:
    """One request on its way: what is asked, its place in the queue, and the attempts so far.

    A session may have several at once; each keeps its own place and tells its own attempts.
    """

    request: ChatRequest
    ask: Ask
    prompt_tokens: float
    """Tokens of its prompt, by the length of its texts."""
    attempts: list[Attempt] = attrs.field(factory=list)
    first_token_s: float | None = None
    """Of the latest attempt, from when it was sent."""
    usage: Usage | None = None
    """Of the reply, once there is one."""


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
        self.prompt = messages
        self._turns += 1
        request = ChatRequest(
            messages, {**self.settings.sampling, **options}, self.settings.stream, self.settings.idle_timeout
        )
        sending = _Sending(request, Ask((self.age, self._turns), prefer=self._affine), prompt_tokens_of(messages))
        if self.place is None:
            return await self._send(sending)
        self.queued_s += await self.pool.sessions.turn(self.place, sending.prompt_tokens)
        try:
            return await self._send(sending)
        finally:
            self.pool.sessions.turn_ended(self.place, sending.usage, sending.first_token_s, self._affine)

    async def _send(self, sending: _Sending) -> Completion:
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
                    return Completion(
                        reply.text,
                        reply.finish_reason,
                        reply.reasoning,
                        reply.tool_calls,
                        reply.usage,
                        tuple(sending.attempts),
                        reply.raw,
                    )
                case GiveUp(poison=True):
                    raise PoisonRequest(f"lost {history.losses} times, last: {answer.outcome.message}")
                case GiveUp(outcome):
                    raise RequestFailed(outcome, sending.attempts)
                case Again():
                    sending.ask = attrs.evolve(sending.ask, avoid=step.avoid)
                    if step.wait_s:
                        await trio.sleep(step.wait_s)
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

    async def _attempt(self, sending: _Sending) -> tuple[Answer, Url]:
        held, member = await self._lease(sending)
        started_at, started_time = trio.current_time(), self.ports.wall_clock()
        client, gate = member.client, member.gate
        known_tokens = self._context_tokens if member.url == self._affine else 0.0
        fresh_tokens = max(0.0, sending.prompt_tokens - known_tokens)
        stream = self.pool.gating.begin(member, streamed=sending.request.stream, prompt_tokens=fresh_tokens)
        answer: Answer | None = None
        try:
            member.on_asked()
            self.ports.emit(AttemptStarted(self.pool.endpoint_id, member.url, bool(sending.attempts)))
            answer = await self._exchange(held, member, sending.request, stream)
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
        sending.attempts.append(self._record(answer, member.url, started_time, duration_s))
        return answer, member.url

    async def _lease(self, sending: _Sending) -> tuple[HeldLease, Member]:
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

    async def _acquire(self, sending: _Sending) -> HeldLease:
        try:
            return await self.pool.acquire(sending.ask)
        except RequestFailed as exc:
            raise RequestFailed(exc.outcome, sending.attempts) from None

    async def _exchange(self, held: HeldLease, member: Member, request: ChatRequest, stream: Stream) -> Answer:
        answer: Answer | None = None
        timeout_s = self.settings.request_timeout
        with held.scope, trio.move_on_after(float("inf") if timeout_s is None else timeout_s) as patience:
            answer = await member.client.ask(request, stream)
        if answer is not None:
            return answer
        if held.revoked:
            return Answer(Lost("the endpoint was lost while it had the request", LostCause.REVOKED))
        if trio.current_time() - patience.deadline > OWN_LAG_S:
            return Answer(Lost("request_timeout passed while this process was busy elsewhere", LostCause.LATE))
        return Answer(TimedOut(f"no whole reply within request_timeout = {timeout_s:g} s"))

    def _record(self, answer: Answer, url: Url, started_time: float, duration_s: float) -> Attempt:
        outcome = answer.outcome
        tokens = outcome.reply.usage.completion_tokens if isinstance(outcome, Ok) else None
        generating_s = duration_s - (answer.first_byte_s or 0.0) if self.settings.stream else duration_s
        attempt = Attempt(
            endpoint=url,
            outcome=outcome.name,
            started_time=started_time,
            duration_s=duration_s,
            http_status=outcome.http_status,
            first_byte_s=answer.first_byte_s,
            tokens_per_s=tokens / generating_s if tokens and generating_s > 0 else None,
            message=outcome.message,
        )
        self.attempts.append(attempt)
        self.ports.emit(AttemptEnded(self.pool.endpoint_id, attempt, tokens or 0))
        return attempt

    def _count(self, usage: Usage) -> None:
        if usage.prompt_tokens is not None:
            self.prompt_tokens = (self.prompt_tokens or 0) + usage.prompt_tokens
        if usage.completion_tokens is not None:
            self.completion_tokens = (self.completion_tokens or 0) + usage.completion_tokens
