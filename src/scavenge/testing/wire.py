"""What a simulated server reads and writes: OpenAI bodies, event streams, error bodies, metrics. Pure.

It decides whether a request is well-formed. It must not know what becomes of it, nor how bytes travel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs
import orjson

from scavenge.signals import ServerLoad
from scavenge.testing.host import Host
from scavenge.testing.model import SimulatedReply, reply_to
from scavenge.testing.served import Generation, Refusal

CHAT = "chat.completion"
TEXT = "text_completion"
DONE = b"data: [DONE]\n\n"
GARBAGE_PAGE = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body>It works.</body></html>\n"

_MOST_TOKENS = 1_000_000
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
    ignore_eos: bool = False
    """The reply is to have exactly ``max_tokens`` tokens, as vLLM has it."""
    prompt_tokens: int | None = None
    """How many tokens the prompt is to be taken for, as the extension ``simulated`` says."""


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
    ignore_eos, prompt_tokens = fields.get("ignore_eos", False), prompt_tokens_of(fields)
    if isinstance(prompt_tokens, Refusal):
        return prompt_tokens
    if not isinstance(ignore_eos, bool) or (ignore_eos and (max_tokens or 0) > _MOST_TOKENS):
        return Refusal(400, f"ignore_eos: expected a boolean, and max_tokens of at most {_MOST_TOKENS} with it")
    options = fields.get("stream_options")
    with_usage = isinstance(options, dict) and options.get("include_usage") is True
    return Ask(kind, model, messages, max_tokens, stream, with_usage, ignore_eos, prompt_tokens)


def reply_for(ask: Ask, seed: int) -> SimulatedReply:
    """What the model says to a request."""
    return reply_to(ask.messages, seed, ask.max_tokens, ignore_eos=ask.ignore_eos, prompt_tokens=ask.prompt_tokens)


def max_tokens_of(fields: Mapping[str, object]) -> int | Refusal | None:
    """The limit on the reply's length: a positive integer, or none."""
    wanted = fields.get("max_completion_tokens", fields.get("max_tokens"))
    if wanted is None:
        return None
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
        return Refusal(400, f"max_tokens: expected a positive integer, got {wanted!r}")
    return wanted


def prompt_tokens_of(fields: Mapping[str, object]) -> int | Refusal | None:
    """The extension ``"simulated": {"prompt_tokens": N}``: a long prompt that is not sent."""
    extension = fields.get("simulated", {})
    if not isinstance(extension, dict) or not extension.keys() <= {"prompt_tokens"}:
        return Refusal(400, 'simulated: expected an object with "prompt_tokens"')
    wanted = extension.get("prompt_tokens")
    if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1):
        return Refusal(400, f"simulated.prompt_tokens: expected a positive integer, got {wanted!r}")
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


def whole_reply(ask: Ask, generation: Generation) -> bytes:
    """The body of a response that is not streamed, once its generation is over."""
    text = "".join(generation.reply.tokens[: generation.tokens])
    chat = ask.kind == CHAT
    said: dict[str, object] = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    choice = {"index": 0, **said, "finish_reason": generation.finish_reason or "stop"}
    return orjson.dumps({
        "id": "sim", "object": ask.kind, "created": 0, "model": ask.model,
        "choices": [choice], "usage": _usage(generation),
    })  # fmt: skip


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
        last += _event({**_envelope(ask), "choices": [], "usage": _usage(generation)})
    return last + DONE


def page(path: str, host: Host, load: ServerLoad | None) -> tuple[bytes, str] | None:
    """What ``GET path`` gives and its content type; ``None``: there is no such page on this server."""
    match path, host.server.metrics:
        case "/health", _:
            return b"", "text/plain"
        case "/v1/models", _:
            return models_body(host), "application/json"
        case "/metrics", "vllm":
            return metrics_body(host, load or ServerLoad()), "text/plain; version=0.0.4"
        case "/props", "llama":
            return props_body(host, load or ServerLoad()), "application/json"
        case "/slots", "llama":
            return slots_body(load or ServerLoad()), "application/json"
    return None


def models_body(host: Host) -> bytes:
    """The body of ``GET /v1/models``."""
    model = {"id": host.server.model, "object": "model", "created": 0, "owned_by": "scavenge"}
    if host.server.context_tokens is not None:
        model["max_model_len"] = host.server.context_tokens
    return orjson.dumps({"object": "list", "data": [model]})


def metrics_body(host: Host, load: ServerLoad) -> bytes:
    """The body of ``GET /metrics``, in Prometheus' text format with the names that vLLM uses."""
    label = host.server.model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    series = (
        ("vllm:num_requests_running", "gauge", load.running),
        ("vllm:num_requests_waiting", "gauge", load.waiting),
        ("vllm:kv_cache_usage_perc", "gauge", load.kv_usage),
        ("vllm:num_preemptions_total", "counter", load.preemptions),
        ("vllm:prefix_cache_queries_total", "counter", load.prefix_queries),
        ("vllm:prefix_cache_hits_total", "counter", load.prefix_hits),
        ("vllm:request_success_total", "counter", host.truth.finished),
        ("vllm:generation_tokens_total", "counter", host.truth.tokens),
    )
    lines = [
        f'# TYPE {name} {kind}\n{name}{{engine="0",model_name="{label}"}} {value}\n'
        for name, kind, value in series
        if value is not None
    ]
    if load.kv_tokens is not None:
        config = f'block_size="1",engine="0",num_gpu_blocks="{load.kv_tokens}"'
        lines.append(f"# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{{config}}} 1.0\n")
    return "".join(lines).encode()


def props_body(host: Host, load: ServerLoad) -> bytes:
    """The body of llama.cpp's ``GET /props``: how many slots there are."""
    return orjson.dumps({"total_slots": load.slots, "model_path": host.server.model})


def slots_body(load: ServerLoad) -> bytes:
    """The body of llama.cpp's ``GET /slots``: what each of them does."""
    slots, running = load.slots or 0, load.running or 0
    return orjson.dumps([{"id": number, "is_processing": number < running} for number in range(max(slots, running))])


def refusal_headers(refusal: Refusal) -> list[tuple[str, str]]:
    """The headers that a refusal adds: ``Retry-After`` in whole seconds, rounded up."""
    wait_s = refusal.retry_after_s
    return [] if wait_s is None else [("Retry-After", str(math.ceil(wait_s)))]


def _usage(generation: Generation) -> dict[str, object]:
    prompt, said, cached = generation.reply.prompt_tokens, generation.tokens, generation.cached_tokens
    usage: dict[str, object] = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return usage


def _envelope(ask: Ask) -> dict[str, object]:
    kind = f"{CHAT}.chunk" if ask.kind == CHAT else ask.kind
    return {"id": "sim", "object": kind, "created": 0, "model": ask.model}


def _chunk(ask: Ask, said: dict[str, object], finish_reason: str | None) -> bytes:
    return _event({**_envelope(ask), "choices": [{"index": 0, **said, "finish_reason": finish_reason}]})


def _event(fields: dict[str, object]) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"
