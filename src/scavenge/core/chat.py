"""Replies of the OpenAI chat and completions protocols, from bytes to outcomes. Sans-IO.

When a reply is whole. A plain one: its body ended properly, is JSON, has choices, and each choice has a known finish
reason. A streamed one: each choice had a known finish reason **and** ``[DONE]`` came; what comes or fails to come after
that changes nothing. The end of the body does not stand for ``[DONE]``, not even a proper one after a finish reason,
since servers that die behind a proxy end properly too. An event with an error ends the reply, ``[DONE]`` or not; one
with the name ``error`` is that, whatever its data.

Which of the two it is says the body itself, not what was asked for nor the content type: servers ignore ``stream``, and
proxies mislabel. Limits: a body of more than ``max_body_bytes`` is a fault of the server.
"""

from __future__ import annotations

from collections.abc import Mapping

from scavenge.core.assembly import Assembly
from scavenge.core.chunk_reader import ChunkReader
from scavenge.core.errorbody import ErrorFacts, Wording, describe, error_of
from scavenge.core.outcome import outcome_of_error_in_reply, outcome_of_status
from scavenge.core.plainjson import read_json_fast
from scavenge.core.reply import outcome_of_document
from scavenge.core.sse import ErrorEvent, EventTooLong, SseParser
from scavenge.types import Failed, Lost, LostCause, Ok, Outcome

MAX_BODY_BYTES = 64 * 2**20
MAX_ERROR_BODY_BYTES = 2**20
"""How much of the body of an error is read; the rest is skipped."""

_EVENT_STARTS = b":deir"  # of a comment, data, event, id, retry; no JSON begins so
_NO_WORDING = Wording()
_SNIPPET_BYTES = 32_768  # more than a message shows, so that no secret is cut before it is taken out
BLANK = b" \t\r\n\xef\xbb\xbf"
"""What may stand before a body without being any of it."""


def begins_stream(http_status: int, body: bytes) -> bool:
    """Whether a reply is a stream, by the beginning of its body, which is not :data:`BLANK`."""
    return 200 <= http_status < 300 and body[0] in _EVENT_STARTS


class ReplyReader:
    """Reads one reply: :meth:`start`, :meth:`feed` for each piece of the body, then :meth:`finish` or :meth:`cut`.

    Invariant: the outcome does not depend on how the body was split, and no bytes whatever make a method raise.
    """

    __slots__ = (
        "_assembly", "_body", "_body_bytes", "_chunks", "_done", "_events", "_fault", "_headers", "_http_status",
        "_limit_bytes", "_max_body_bytes", "_now_time", "_snippet", "_sse", "_wording",
    )  # fmt: skip

    def __init__(self, wording: Wording = _NO_WORDING, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._wording = wording
        self._max_body_bytes = max_body_bytes
        self._limit_bytes = min(max_body_bytes, MAX_ERROR_BODY_BYTES)
        self._http_status = 0
        self._headers: Mapping[str, str] = {}
        self._now_time = 0.0
        self._body: list[bytes] = []  # of a reply that is no stream
        self._body_bytes = 0
        self._snippet = b""  # how a stream begins, as long as no event has come
        self._sse: SseParser | None = None  # once the body is known to be a stream
        self._events = 0
        self._assembly = Assembly()
        self._chunks = ChunkReader(self._assembly)
        self._done = False  # [DONE] came
        self._fault: Outcome | None = None  # what already decides the outcome

    @property
    def over(self) -> bool:
        """Whether nothing that may still come changes the outcome."""
        return self._done or self._fault is not None

    @property
    def pieces(self) -> int:
        """How many pieces of a streamed reply have come that have something in them, or tokens if it counts along."""
        return self._assembly.pieces

    @property
    def assembly(self) -> Assembly:
        """What has been put together of a stream."""
        return self._assembly

    def start(self, http_status: int, headers: Mapping[str, str], now_time: float = 0.0) -> None:
        """The head of the reply came; header names are in lower case, *now_time* is the Unix time."""
        self._http_status = http_status
        self._headers = headers
        self._now_time = now_time
        if self._succeeded:
            self._limit_bytes = self._max_body_bytes

    def feed(self, data: bytes) -> None:
        """A piece of the body came."""
        if self.over:
            return
        self._body_bytes += len(data)
        if self._sse is not None:
            self._feed_events(self._sse, data)
        elif self._body:
            self._body.append(data)
        elif data := data.lstrip(BLANK):
            self._begin(data)
        if self._body_bytes > self._limit_bytes and not self.over:
            self._fault = self._too_long()

    def refuse(self, why: str) -> None:
        """Take the reply for broken, whatever may still come."""
        if not self.over:
            self._fault = self._broken(why)

    def forget(self) -> None:
        """Let go of what a stream has said so far: what the outcome depends on stays, the reply will lack the rest."""
        self._chunks.forget()
        self._body_bytes = 0

    def finish(self) -> Outcome:
        """The outcome, when the body has ended as it should."""
        if self._sse is not None and not self.over:
            self._take(self._sse.end())
            if isinstance(self._fault, Failed):  # what came of that event is not its fault
                self._fault = Lost("the stream ended within an event", http_status=self._http_status)
        return self._decided() or (self._outcome_of_body() if self._sse is None else self._outcome_of_stream())

    def cut(self, message: str, cause: LostCause = LostCause.SERVER) -> Outcome:
        """The outcome, when the connection ended or fell silent before the body did; *message* says how."""
        if 400 <= self._http_status < 500:
            return self._outcome_of_body()  # the status says it all
        lost = Lost(self._wording.line(message), cause, self._http_status or None)
        return self._decided() or lost

    def _begin(self, data: bytes) -> None:
        if begins_stream(self._http_status, data):
            self._sse = SseParser()
            self._feed_events(self._sse, data)
        else:
            self._body.append(data)

    def _feed_events(self, parser: SseParser, data: bytes) -> None:
        if not self._events:
            self._snippet += data[: _SNIPPET_BYTES - len(self._snippet)]
        try:
            self._take(parser.feed(data))
        except EventTooLong as problem:
            self._fault = self._broken(str(problem))

    def _take(self, events: list[bytes]) -> None:
        chunks = self._chunks
        position, end = 0, len(events)
        while position < end:
            if chunks.known is not None and (after := chunks.end_of_run(events, position)) > position:
                position = after
                continue
            event = events[position]
            position += 1
            if isinstance(event, ErrorEvent):
                self._events += 1
                self._take_error(error_of(event))
            elif event[:6] == b"[DONE]":
                self._done = True
            else:
                self._take_chunk(event)
            if self._done or self._fault is not None:
                return

    def _take_chunk(self, event: bytes) -> None:
        self._events += 1
        try:
            facts = self._chunks.read(event)
        except (ValueError, RecursionError) as problem:
            self._fault = self._broken(f"{problem} in the event {event.decode(errors='replace')}")
        else:
            if facts is not None:
                self._take_error(facts)

    def _take_error(self, facts: ErrorFacts) -> None:
        self._fault = outcome_of_error_in_reply(facts, self._http_status, self._wording, streamed=True)

    @property
    def _succeeded(self) -> bool:
        return 200 <= self._http_status < 300

    def _too_long(self) -> Outcome:
        return self._broken(f"it is longer than {self._max_body_bytes} bytes") if self._succeeded else self._by_status()

    def _decided(self) -> Outcome | None:
        """The outcome that nothing can change any more, if it has come to that."""
        if self._fault is not None or not self._done:
            return self._fault
        return outcome_of_document(self._assembly.document(), self._http_status, self._wording, streamed=True)

    def _outcome_of_stream(self) -> Outcome:
        if not self._events and "event-stream" not in self._headers.get("content-type", ""):
            return self._broken(f"it is neither JSON nor a stream: {self._snippet.decode(errors='replace')}")
        whole = outcome_of_document(self._assembly.document(), self._http_status, self._wording, streamed=True)
        if isinstance(whole, Ok):
            return Lost("the stream ended without [DONE]", http_status=self._http_status)
        return whole

    def _outcome_of_body(self) -> Outcome:
        if not self._succeeded:
            return self._by_status()
        body = b"".join(self._body)
        if not body and "event-stream" in self._headers.get("content-type", ""):
            return Lost("the stream ended without an event", http_status=self._http_status)
        try:
            document = read_json_fast(body)
        except ValueError as problem:
            return self._broken(self._why_no_json(body, str(problem)))
        return outcome_of_document(document, self._http_status, self._wording, streamed=False, body=body)

    def _why_no_json(self, body: bytes, problem: str) -> str:
        if not body:
            return "the body is empty"
        text = describe(body[:MAX_ERROR_BODY_BYTES].decode(errors="replace"))
        coding = self._headers.get("content-encoding", "identity")
        how = f" (content-encoding {coding}, though none was asked for)" if coding != "identity" else ""
        return f"{text if text.startswith('an HTML page') else f'{problem}: {text}'}{how}"

    def _by_status(self) -> Outcome:
        body = b"".join(self._body)
        return outcome_of_status(self._http_status, self._headers, body, self._wording, self._now_time)

    def _broken(self, why: str) -> Failed:
        return Failed(self._wording.line(f"HTTP {self._http_status} with a broken reply: {why}"), self._http_status)
