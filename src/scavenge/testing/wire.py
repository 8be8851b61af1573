"""What a simulated server reads and writes: OpenAI bodies, event streams, error bodies, metrics. Pure.

It decides whether a request is well-formed. It must not know what becomes of it, nor how bytes travel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs
import orjson

from scavenge.testing.host import Host
from scavenge.testing.model import SimulatedReply
from scavenge.testing.served import Generation, Refusal

CHAT = "chat.completion"
TEXT = "text_completion"
DONE = b"data: [DONE]\n\n"
GARBAGE_PAGE = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body>It works.</body></html>\n"

_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


@attrs.frozen
class Ask:
    """A well-formed request for a completion. ``kind`` is :data:`CHAT` or :data:`TEXT`."""

    kind: str
    model: str
    messages: Sequence[Mapping[str, object]]
    max_tokens: int | None
    stream: bool
    with_usage: bool


def read_ask(body: bytes, kind: str) -> Ask | Refusal:
    """Read the body of a request; one that is wrong is refused with status 400 and the reason."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return Refusal(400, f"the body is not JSON: {error}")
    if not isinstance(fields, dict):
        return Refusal(400, "the body is not a JSON object")
    model, stream, count = fields.get("model"), fields.get("stream", False), fields.get("n", 1)
    if not isinstance(model, str) or not isinstance(stream, bool):
        return Refusal(400, "model has to be a string, and stream a boolean")
    if count not in (1, None):
        return Refusal(400, f"n: this server gives one choice a request, got {count}")
    messages = _messages_of(fields, kind)
    if messages is None:
        what = "messages: expected a list of messages" if kind == CHAT else "prompt: expected a string"
        return Refusal(400, what)
    max_tokens = max_tokens_of(fields)
    if isinstance(max_tokens, Refusal):
        return max_tokens
    options = fields.get("stream_options")
    with_usage = isinstance(options, dict) and options.get("include_usage") is True
    return Ask(kind, model, messages, max_tokens, stream, with_usage)


def max_tokens_of(fields: Mapping[str, object]) -> int | Refusal | None:
    """The limit on the reply's length: a positive integer, or none."""
    wanted = fields.get("max_completion_tokens", fields.get("max_tokens"))
    if wanted is None:
        return None
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
        return Refusal(400, f"max_tokens: expected a positive integer, got {wanted!r}")
    return wanted


def _messages_of(fields: Mapping[str, object], kind: str) -> Sequence[Mapping[str, object]] | None:
    if kind == TEXT:
        prompt = fields.get("prompt")
        return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else None
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    return messages if all(isinstance(message, dict) for message in messages) else None


def error_body(refusal: Refusal) -> bytes:
    """The body of a response with an error status."""
    code = "context_length_exceeded" if "context length" in refusal.message else _CODES.get(refusal.status)
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    return orjson.dumps({"error": {"message": refusal.message, "type": kind, "code": code or refusal.status}})


def completion_body(kind: str, model: str, reply: SimulatedReply, text: str, finish_reason: str) -> dict[str, object]:
    """The body of a whole reply, as an object."""
    said: dict[str, object] = {"message": {"role": "assistant", "content": text}} if kind == CHAT else {"text": text}
    choice = {"index": 0, **said, "finish_reason": finish_reason}
    usage = _usage(reply, len(reply.tokens))
    return {"id": "sim", "object": kind, "created": 0, "model": model, "choices": [choice], "usage": usage}


def whole_reply(ask: Ask, generation: Generation) -> bytes:
    """The body of a response that is not streamed, once its generation is over."""
    reply, reason = generation.reply, generation.finish_reason or "stop"
    text = "".join(reply.tokens[: generation.tokens])
    return orjson.dumps(completion_body(ask.kind, ask.model, reply, text, reason))


def stream_opening(ask: Ask) -> bytes:
    """What a stream starts with: the role, in a chat."""
    return _chunk(ask, {"delta": {"role": "assistant", "content": ""}}, None) if ask.kind == CHAT else b""


def stream_tokens(ask: Ask, tokens: Sequence[str]) -> bytes:
    """One event for each token, to be written together."""
    return b"".join(
        _chunk(ask, {"delta": {"content": token}} if ask.kind == CHAT else {"text": token}, None) for token in tokens
    )


def stream_end(ask: Ask, generation: Generation) -> bytes:
    """The finish reason, the usage if it was asked for, and the end of the stream."""
    nothing: dict[str, object] = {"delta": {}} if ask.kind == CHAT else {"text": ""}
    last = _chunk(ask, nothing, generation.finish_reason)
    if ask.with_usage:
        usage = _usage(generation.reply, generation.tokens)
        last += _event({**_envelope(ask), "choices": [], "usage": usage})
    return last + DONE


def models_body(host: Host) -> bytes:
    """The body of ``GET /v1/models``."""
    model = {"id": host.server.model, "object": "model", "created": 0, "owned_by": "scavenge"}
    if host.server.context_tokens is not None:
        model["max_model_len"] = host.server.context_tokens
    return orjson.dumps({"object": "list", "data": [model]})


def metrics_body(host: Host) -> bytes:
    """The body of ``GET /metrics``, in Prometheus' text format with the names that vLLM uses."""
    label = host.server.model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    series = (
        ("vllm:num_requests_running", "gauge", host.running),
        ("vllm:num_requests_waiting", "gauge", host.waiting),
        ("vllm:request_success_total", "counter", host.truth.finished),
        ("vllm:generation_tokens_total", "counter", host.truth.tokens),
    )
    lines = [f'# TYPE {name} {kind}\n{name}{{model_name="{label}"}} {value}\n' for name, kind, value in series]
    return "".join(lines).encode()


def refusal_headers(refusal: Refusal) -> list[tuple[str, str]]:
    """The headers that a refusal adds: ``Retry-After`` in whole seconds, rounded up."""
    wait_s = refusal.retry_after_s
    return [] if wait_s is None else [("Retry-After", str(math.ceil(wait_s)))]


def _usage(reply: SimulatedReply, tokens: int) -> dict[str, int]:
    prompt = reply.prompt_tokens
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def _envelope(ask: Ask) -> dict[str, object]:
    kind = f"{CHAT}.chunk" if ask.kind == CHAT else ask.kind
    return {"id": "sim", "object": kind, "created": 0, "model": ask.model}


def _chunk(ask: Ask, said: dict[str, object], finish_reason: str | None) -> bytes:
    return _event({**_envelope(ask), "choices": [{"index": 0, **said, "finish_reason": finish_reason}]})


def _event(fields: dict[str, object]) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"
