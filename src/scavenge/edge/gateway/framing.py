"""The bytes of answers: heads, whole answers, and the chunks of a stream. Pure but for the date in each head.

Written by hand: what goes out is ours, in a few shapes, and h11 would check each field of it again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

JSON = "application/json"
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Tells the client to send its body."""
LAST_CHUNK = b"0\r\n\r\n"
"""The proper end of a stream."""
_NO_CONTENT = 204
_REASONS = {status.value: status.phrase for status in HTTPStatus}
_STREAM_FIELDS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would collect events until it has a buffer full of them
}


def _head(status: int, fields: Mapping[str, str]) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
    dated = f"{lines}Date: {_date(int(time.time()))}\r\n"  # whoever has a clock must say so (RFC 9110, 6.6.1)
    return f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n{dated}\r\n".encode("latin-1")


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


def answer(
    status: int, body: bytes, fields: Mapping[str, str], *, content_type: str = JSON, head_only: bool = False
) -> bytes:
    """A whole answer; *head_only* as HEAD wants it."""
    framing = (
        {} if status == HTTPStatus.NO_CONTENT else {"Content-Type": content_type, "Content-Length": f"{len(body)}"}
    )
    return _head(status, {**framing, **fields}) + (b"" if head_only else body)


def stream_head(*, chunked: bool, close: bool) -> bytes:
    """The head of an answer that is a stream of events; one that is not *chunked* ends with the connection."""
    framing = {"Transfer-Encoding": "chunked"} if chunked else {}
    return _head(200, {**_STREAM_FIELDS, **framing, **({"Connection": "close"} if close else {})})


def chunk(data: bytes) -> bytes:
    """A piece of a stream."""
    return b"%x\r\n%b\r\n" % (len(data), data)
