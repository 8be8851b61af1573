"""What pools go by in a foreign client's call: may its server be asked for a stream, how long is its prompt. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from scavenge.calls import Call
from scavenge.core.tokens import CHARACTERS_A_TOKEN, prompt_tokens_of
from scavenge.types import ApiType, EndpointId, Json, Outcome, Rejected

_WHOLE_ONLY = frozenset(
    {
        "best_of",  # OpenAI's completions: the best is known at the end
        "echo",  # the prompt comes back with its log-probabilities, which streams give in shapes of their own
        "prompt_logprobs",  # vLLM refuses it in a stream
        "use_beam_search",  # as vLLM does this
        "audio",  # OpenAI's streams have audio in another format
        "modalities",
    }
)
"""Options whose reply is another one as a stream, or none."""
_NOT_OPTIONS = frozenset({"model", "messages", "stream", "stream_options"})


def may_be_streamed(document: Json) -> bool:
    """Whether a reply that is asked for whole would be the same when it is put together from a stream."""
    return not any(document.get(name) for name in _WHOLE_ONLY)


def refuses_stream(outcome: Outcome) -> bool:
    """Whether a server that was asked for a stream in place of a whole reply may have refused just that.

    Servers that do so name the option that they do not like; any other refusal is of the request, and final.
    """
    return isinstance(outcome, Rejected) and not outcome.context_length and "stream" in outcome.message.lower()


def options_of(document: Json) -> Json:
    """What a chat has beside its messages, its model and the way in which it is to be told."""
    return {name: value for name, value in document.items() if name not in _NOT_OPTIONS}


def model_names(pools: Iterable[tuple[EndpointId, str]]) -> Mapping[str, EndpointId]:
    """The names by which a call can find a pool: its id, and its model's name where no other pool has that.

    A model's name is empty where nobody has told it yet.
    """
    known = list(pools)
    names: dict[str, EndpointId] = {endpoint_id: endpoint_id for endpoint_id, _ in known}
    having = Counter(model for _, model in known)
    for endpoint_id, model in known:
        if model and having[model] == 1:
            names.setdefault(model, endpoint_id)
    return names


def prompt_tokens_of_call(call: Call) -> float:
    """How many tokens the prompt of a call has, by the length of its texts."""
    if call.api is ApiType.CHAT_COMPLETIONS:
        return prompt_tokens_of(call.messages)
    return _tokens(call.document.get("prompt"))


def _tokens(prompt: object) -> float:
    """Of the completions protocol: a text, a list of token ids, or a list of either."""
    if isinstance(prompt, str):
        return len(prompt) / CHARACTERS_A_TOKEN
    if not isinstance(prompt, list):
        return 0.0
    texts = [one for one in prompt if isinstance(one, str)]
    ids = [one for one in prompt if isinstance(one, list)]
    numbers = len(prompt) - len(texts) - len(ids) - sum(isinstance(one, Mapping) for one in prompt)
    return sum(map(len, texts)) / CHARACTERS_A_TOKEN + sum(map(len, ids)) + numbers
