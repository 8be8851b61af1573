"""One attempt at a request: the exchange with its endpoint within the deadline, and the record that it leaves.

Knows a lease and a client, and neither a queue nor what follows.
"""

from __future__ import annotations

import trio

from scavenge.core.flow import Stream
from scavenge.runtime.dispatcher import HeldLease
from scavenge.runtime.member import OWN_LAG_S, Member
from scavenge.runtime.ports import RelayRequest
from scavenge.types import Answer, Attempt, ChatRequest, Lost, LostCause, Ok, TimedOut, Url


async def exchange(
    held: HeldLease,
    member: Member,
    request: ChatRequest | RelayRequest,
    stream: Stream,
    request_timeout_s: float | None,
) -> Answer:
    """Have a request answered on the endpoint of a lease. Cancelled, it has closed its connection."""
    with held.scope:
        if request_timeout_s is None:
            return await member.client.ask(request, stream)
        return await _ask_within(request_timeout_s, member, request, stream)
    return Answer(Lost("the endpoint was lost while it had the request", LostCause.REVOKED))


async def _ask_within(
    request_timeout_s: float, member: Member, request: ChatRequest | RelayRequest, stream: Stream
) -> Answer:
    with trio.move_on_after(request_timeout_s) as patience:
        return await member.client.ask(request, stream)
    if stream.held_back:
        return Answer(Lost("request_timeout passed while the client took nothing of the reply", LostCause.LATE))
    if trio.current_time() - patience.deadline > OWN_LAG_S:
        return Answer(Lost("request_timeout passed while this process was busy elsewhere", LostCause.LATE))
    return Answer(TimedOut(f"no whole reply within request_timeout = {request_timeout_s:g} s"))


def record_of(answer: Answer, url: Url, started_time: float, duration_s: float, *, streamed: bool) -> Attempt:
    """What is kept of an attempt."""
    outcome = answer.outcome
    tokens = outcome.reply.usage.completion_tokens if isinstance(outcome, Ok) else None
    generating_s = duration_s - (answer.first_byte_s or 0.0) if streamed else duration_s
    return Attempt(
        endpoint=url,
        outcome=outcome.name,
        started_time=started_time,
        duration_s=duration_s,
        http_status=outcome.http_status,
        first_byte_s=answer.first_byte_s,
        tokens_per_s=tokens / generating_s if tokens and generating_s > 0 else None,
        message=outcome.message,
    )


def tokens_told(answer: Answer) -> int:
    """How many tokens the reply has, as the server counted them, or else the pieces of a stream that was handed on."""
    outcome = answer.outcome
    return (outcome.reply.usage.completion_tokens or outcome.reply.pieces) if isinstance(outcome, Ok) else 0
