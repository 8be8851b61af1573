"""Having a call answered: by the door, in words that the client knows, whatever comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

import attrs
import trio

from scavenge.calls import Call, Relayed
from scavenge.core.doorwords import document_of, error_body, reply_body
from scavenge.edge.gateway.calls import wants_usage
from scavenge.edge.gateway.chunks import DONE, events_of
from scavenge.edge.gateway.entrance import Entrance
from scavenge.edge.gateway.stream import EventStream
from scavenge.errors import NoEndpointsError, Stopping


@attrs.frozen
class Answer:
    """What a client is told: a whole answer, or of a stream that came to its end the rest."""

    status: int
    body: bytes
    fields: Mapping[str, str] = attrs.field(factory=dict)
    broken: bool = False
    """Whether a bug made it: the connection is of no more use."""


async def ask(entrance: Entrance, call: Call, *, detail: bool) -> Answer:
    """The answer to a call whose client wants a whole reply."""

    def tell(relayed: Relayed) -> bytes:
        return reply_body(relayed, detail=detail)

    return await _ask(entrance, call, None, tell, detail=detail)


async def ask_for_stream(entrance: Entrance, call: Call, stream: EventStream, *, detail: bool) -> Answer:
    """The answer to a call whose client wants a stream: the rest of that, or what went wrong."""

    def tell(relayed: Relayed) -> bytes:
        if stream.begun:
            return DONE
        return events_of(document_of(relayed.reply), call.api, include_usage=wants_usage(call))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run_comments, entrance.limits.comment_s)
        answered = await _ask(entrance, call, stream, tell, detail=detail)
        nursery.cancel_scope.cancel()
    return answered


async def _ask(
    entrance: Entrance, call: Call, stream: EventStream | None, tell: Callable[[Relayed], bytes], *, detail: bool
) -> Answer:
    try:
        return Answer(200, tell(await entrance.door.answer(call, stream)))
    except Exception as error:
        return failed(entrance, error, detail=detail)


def failed(entrance: Entrance, error: Exception, *, detail: bool) -> Answer:
    """What a client is told of what was raised; of what should not have been, ``on_bug`` hears."""
    status, body = error_body(error, detail=detail)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        entrance.on_bug(error)
        return Answer(status, body, broken=True)
    put_off = isinstance(error, NoEndpointsError | Stopping)
    return Answer(status, body, {"Retry-After": str(entrance.limits.retry_after_s)} if put_off else {})
