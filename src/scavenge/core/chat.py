"""The OpenAI chat and completions protocols on the wire: requests to bytes, replies to outcomes. Sans-IO.

When a reply is whole. A plain one: its body ended properly, is JSON, has choices, and each choice has a known finish
reason. A streamed one: each choice had a known finish reason **and** ``[DONE]`` came; what comes or fails to come after
that changes nothing. The end of the body does not stand for ``[DONE]``, not even a proper one after a finish reason,
since servers that die behind a proxy end properly too. An event with an error ends the reply, ``[DONE]`` or not; one
with the name ``error`` is that, whatever its data.

Which of the two it is says the body itself, not what was asked for nor the content type: servers ignore ``stream``, and
proxies mislabel. Limits: a body of more than ``max_body_bytes`` is a fault of the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from scavenge.core.assembly import Assembly, parts_of
from scavenge.core.errorbody import ErrorFacts, Wording, describe, error_in, error_of
from scavenge.core.outcome import outcome_of_error_in_reply, outcome_of_status
from scavenge.core.plainjson import read_json_fast
from scavenge.core.reply import outcome_of_document
from scavenge.core.sse import ErrorEvent, EventTooLong, SseParser
from scavenge.types import ApiType, ChatRequest, Failed, Lost, LostCause, Messages, Ok, Outcome, Rejected

MAX_BODY_BYTES = 64 * 2**20
MAX_ERROR_BODY_BYTES = 2**20
"""How much of the body of an error is read; the rest is skipped."""

_EVENT_STARTS = b":deir"  # of a comment, data, event, id, retry; no JSON begins so
_NO_WORDING = Wording()
_SNIPPET_BYTES = 32_768  # more than a message shows, so that no secret is cut before it is taken out
_BLANK = b" \t\r\n\xef\xbb\xbf"


def encode_request(api_type: ApiType, model: str, request: ChatRequest) -> bytes | Rejected:
    """The body of a request, or why it cannot be written as JSON.

    Options are sent as they are; ``model`` is the endpoint's, and a stream is asked to end with its usage. The
    completions protocol has no messages: unless the options have a ``prompt``, their texts are it, with an empty line
    between them.
    """
    try:
        return orjson.dumps(_body_of(api_type, model, request), default=_plain)
    except (TypeError, ValueError, AttributeError, RecursionError) as problem:
        return Rejected(f"the request cannot be written as JSON: {problem}")


def _body_of(api_type: ApiType, model: str, request: ChatRequest) -> dict[str, object]:
    body: dict[str, object] = {"model": model}
    if api_type is ApiType.CHAT_COMPLETIONS:
        body["messages"] = request.messages
    elif "prompt" not in request.options:
        body["prompt"] = prompt_of(request.messages)
    body.update(request.options)
    body["model"] = model
    body.pop("stream", None)
    if request.stream:
        given = request.options.get("stream_options")
        body["stream"] = True
        body["stream_options"] = {**(given if isinstance(given, Mapping) else {}), "include_usage": True}
    else:
        body.pop("stream_options", None)  # servers refuse it without a stream
    return body


def prompt_of(messages: Messages) -> str:
    """The texts of the messages, with an empty line between them."""
    texts = []
    for message in messages:
        content = message.get("content")
        texts.append(content if isinstance(content, str) else parts_of(content or [])[0])
    return "\n\n".join(texts)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


class ReplyReader:
    """Reads one reply: :meth:`start`, :meth:`feed` for each piece of the body, then :meth:`finish` or :meth:`cut`.

    Invariant: the outcome does not depend on how the body was split, and no bytes whatever make a method raise.
    """

    __slots__ = (
        "_assembly", "_body", "_body_bytes", "_done", "_events", "_fault", "_headers", "_http_status",
        "_max_body_bytes", "_now_time", "_snippet", "_sse", "_wording",
    )  # fmt: skip

    def __init__(self, wording: Wording = _NO_WORDING, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._wording = wording
        self._max_body_bytes = max_body_bytes
        self._http_status = 0
        self._headers: Mapping[str, str] = {}
        self._now_time = 0.0
        self._body: list[bytes] = []  # of a reply that is no stream
        self._body_bytes = 0
        self._snippet = b""  # how a stream begins, as long as no event has come
        self._sse: SseParser | None = None  # once the body is known to be a stream
        self._events = 0
        self._assembly = Assembly()
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

    def start(self, http_status: int, headers: Mapping[str, str], now_time: float = 0.0) -> None:
        """The head of the reply came; header names are in lower case, *now_time* is the Unix time."""
        self._http_status = http_status
        self._headers = headers
        self._now_time = now_time

    def feed(self, data: bytes) -> None:
        """A piece of the body came."""
        if self.over:
            return
        self._body_bytes += len(data)
        if self._sse is not None:
            self._feed_events(self._sse, data)
        elif self._body:
            self._body.append(data)
        elif data := data.lstrip(_BLANK):
            self._begin(data)
        if self._body_bytes > self._limit_bytes and not self.over:
            self._fault = self._too_long()

    def finish(self) -> Outcome:
        """The outcome, when the body has ended as it should."""
        if self._sse is not None and not self.over:
            self._take(self._sse.end())
        return self._decided() or (self._outcome_of_body() if self._sse is None else self._outcome_of_stream())

    def cut(self, message: str, cause: LostCause = LostCause.SERVER) -> Outcome:
        """The outcome, when the connection ended or fell silent before the body did; *message* says how."""
        if 400 <= self._http_status < 500:
            return self._outcome_of_body()  # the status says it all
        lost = Lost(self._wording.line(message), cause, self._http_status or None)
        return self._decided() or lost

    def _begin(self, data: bytes) -> None:
        if self._succeeded and data[0] in _EVENT_STARTS:
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
        for event in events:
            if isinstance(event, ErrorEvent):
                self._events += 1
                self._take_error(error_of(event))
            elif event[:6] == b"[DONE]":
                self._done = True
            else:
                self._take_chunk(event)
            if self.over:
                return

    def _take_chunk(self, event: bytes) -> None:
        self._events += 1
        try:
            chunk = read_json_fast(event)
            if not isinstance(chunk, dict):
                raise ValueError("an event is no object")
            if ("error" in chunk or "choices" not in chunk) and (facts := error_in(chunk)) is not None:
                self._take_error(facts)
                return
            self._assembly.add(chunk)
        except (ValueError, RecursionError) as problem:
            self._fault = self._broken(f"{problem} in the event {event.decode(errors='replace')}")

    def _take_error(self, facts: ErrorFacts) -> None:
        self._fault = outcome_of_error_in_reply(facts, self._http_status, self._wording, streamed=True)

    @property
    def _succeeded(self) -> bool:
        return 200 <= self._http_status < 300

    @property
    def _limit_bytes(self) -> int:
        return self._max_body_bytes if self._succeeded else min(self._max_body_bytes, MAX_ERROR_BODY_BYTES)

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
        return outcome_of_document(document, self._http_status, self._wording, streamed=False)

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
