"""Streamed chunks put together as the reply would look without streaming. Pure; judges nothing.

Texts and the arguments of tool calls are joined, lists (log-probabilities, token ids) extended; of anything else the
last value that is not null counts. Chunks of a shape that no server sends raise :class:`ValueError`.

It counts as it goes what flows: a piece is what one choice says in one chunk, be it text, reasoning or a tool call;
roles, empty texts, finish reasons and a usage alone are none. Where a chunk that says something brings the number of
tokens so far, the tokens since the last such chunk are counted in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import attrs

TEXTS = frozenset({"content", "reasoning_content", "reasoning", "refusal"})
"""What of a message is joined."""
MOST_CHOICES = 2**16
"""A choice takes far more memory than the few bytes in which a server can number one."""
_LASTING = ("usage", "timings")  # what says something of the whole reply
_MOST_TOKENS_A_CHUNK = 64
"""What a server says beyond that did not come with the chunk: hidden reasoning, or nonsense."""


class Assembly:
    """One streamed reply, as far as it has come."""

    __slots__ = ("_choices", "_tokens", "_top", "endings", "pieces")

    def __init__(self) -> None:
        self._top: dict[str, object] = {}
        self._choices: dict[int, _Choice] = {}
        self._tokens: int | None = None  # so far, as the server counts them along
        self.pieces = 0
        """How many pieces have come."""
        self.endings: dict[int, object] = {}
        """The last finish reason of each choice that has one; whoever has seen to them clears it."""

    def add(self, chunk: Mapping[str, object]) -> bool:
        """Take in one chunk; tell whether it says anything.

        Raises :class:`ValueError` for one that cannot be understood.
        """
        said = 0
        top = self._top
        for key, value in chunk.items():
            if key != "choices":
                if value is not None:
                    top[key] = value
            elif isinstance(value, list):
                for choice in value:
                    said += self._add_choice(choice)
            elif value is not None:
                raise ValueError("choices is no list")
        if said:
            usage = chunk.get("usage")
            self.pieces += said if usage is None else self._tokens_since(usage, said)
        return said > 0

    def _tokens_since(self, usage: object, said: int) -> int:
        """How many tokens came with a chunk that says *said* pieces and has a usage."""
        tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if type(tokens) is not int:
            return said
        known, self._tokens = self._tokens, tokens
        return said if known is None else max(0, min(tokens - known, _MOST_TOKENS_A_CHUNK))

    def _add_choice(self, choice: object) -> bool:
        if not isinstance(choice, dict):
            raise ValueError("a choice is no object")
        index = choice.get("index")
        number = index if type(index) is int else 0
        if (reason := choice.get("finish_reason")) is not None:
            self.endings[number] = reason
        known = self._choices.get(number)
        if known is None:
            if len(self._choices) >= MOST_CHOICES:
                raise ValueError(f"it has more than {MOST_CHOICES} choices")
            known = self._choices[number] = _Choice()
        return known.add(choice)

    def pieces_at(self, number: int, key: str, call: int | None = None) -> list[str]:
        """The pieces of a text of which some has come, of arguments by the index of the call; to append and count."""
        choice = self._choices[number]
        if key == "text":
            return choice.completion
        return choice.texts[key] if call is None else choice.calls.arguments(call)

    def forget(self) -> None:
        """Let go of texts, arguments and the like; what choices there are, how they end and the usage stay."""
        self._top = {key: self._top[key] for key in _LASTING if key in self._top}
        for choice in self._choices.values():
            choice.forget()

    def document(self) -> dict[str, object]:
        """The reply in the shape of a non-streaming response."""
        top = dict(self._top)
        if top.get("object") == "chat.completion.chunk":
            top["object"] = "chat.completion"
        top["choices"] = [choice.document(index) for index, choice in sorted(self._choices.items())]
        return top


@attrs.define
class _Choice:
    texts: dict[str, list[str]] = attrs.field(factory=dict)
    """The pieces of each text of the message."""
    completion: list[str] = attrs.field(factory=list)
    """The pieces of ``text``, which a choice of the completions protocol has in place of a message."""
    has_text: bool = False
    has_message: bool = False
    message: dict[str, object] = attrs.field(factory=dict)
    calls: _ToolCalls = attrs.field(factory=lambda: _ToolCalls())
    function: dict[str, object] = attrs.field(factory=dict)
    """The call of the protocol before tools."""
    others: dict[str, object] = attrs.field(factory=dict)

    def add(self, choice: Mapping[str, object]) -> bool:
        """Take in what one chunk has of it; tell whether that says anything."""
        says = False
        for key, value in choice.items():
            if value is None or key == "index":
                continue
            if key in ("delta", "message"):
                says |= self._add_delta(value)
            elif key == "text" and isinstance(value, str):
                self.has_text = True
                self.completion.append(value)
                says |= value != ""
            else:
                self.others[key] = _joined(self.others.get(key), value)
        return says

    def _add_delta(self, delta: object) -> bool:
        if not isinstance(delta, dict):
            raise ValueError("a delta is no object")
        self.has_message = True
        says = False
        for key, value in delta.items():
            if value is None:
                continue
            if key in TEXTS:
                if isinstance(value, str):
                    if key not in self.texts:
                        self.texts[key] = []
                    self.texts[key].append(value)
                    says = says or value != ""
                else:
                    says |= self._add_parts(key, value)
            elif key == "tool_calls":
                says |= self.calls.add(value)
            elif key == "function_call" and isinstance(value, dict):
                says |= _add_function(self.function, value)
            else:
                self.message[key] = _joined(self.message.get(key), value)
        return says

    def _add_parts(self, key: str, parts: object) -> bool:
        text, reasoning = parts_of(parts)
        if text:
            self.texts.setdefault(key, []).append(text)
        if reasoning:
            self.texts.setdefault("reasoning_content", []).append(reasoning)
        return text != "" or reasoning != ""

    def forget(self) -> None:
        """Let go of all but what there is, a message or a text, and how it ends."""
        for pieces in (*self.texts.values(), self.completion):
            pieces.clear()
        self.message.clear()
        self.calls = _ToolCalls()
        self.function.clear()
        self.others = {key: value for key, value in self.others.items() if key == "finish_reason"}

    def document(self, index: int) -> dict[str, object]:
        document: dict[str, object] = {"index": index}
        if self.has_text:
            document["text"] = "".join(self.completion)
        if self.has_message:
            document["message"] = self._whole_message()
        return {**document, "finish_reason": None, **self.others}

    def _whole_message(self) -> dict[str, object]:
        texts = {key: "".join(pieces) for key, pieces in self.texts.items()}
        message: dict[str, object] = {"role": "assistant", "content": None, **self.message, **texts}
        if self.calls.calls:
            message["tool_calls"] = [_plain_call(call) for call in self.calls.calls]
        if self.function:
            message["function_call"] = _plain(self.function)
        return message


@attrs.define
class _ToolCalls:
    """Tool calls by index; a new id under an old index is another call, as some gateways number all of them 0."""

    calls: list[dict[str, object]] = attrs.field(factory=list)
    by_index: dict[int, dict[str, object]] = attrs.field(factory=dict)

    def add(self, pieces: object) -> bool:
        if not isinstance(pieces, list):
            raise ValueError("tool_calls is no list")
        says = False
        for piece in pieces:
            if not isinstance(piece, dict):
                raise ValueError("a tool call is no object")
            says |= _add_call(self._call_of(piece), piece)
        return says

    def _call_of(self, piece: Mapping[str, object]) -> dict[str, object]:
        index, known_as = piece.get("index"), piece.get("id")
        if type(index) is not int:
            index = len(self.by_index) - (not known_as and bool(self.by_index))
        call = self.by_index.get(index)
        if call is None or (known_as and call.get("id") not in (None, known_as)):
            call = self.by_index[index] = {}
            self.calls.append(call)
        return call

    def arguments(self, index: int) -> list[str]:
        """The pieces of the arguments of a call of which some have come."""
        return cast("dict[str, _Pieces]", self.by_index[index]["function"])["arguments"]


class _Pieces(list[str]):
    """The pieces of the arguments of a call, not joined yet."""


def _add_call(call: dict[str, object], piece: Mapping[str, object]) -> bool:
    """Take in one piece of a call; tell whether its function or its arguments go on."""
    says = False
    for key, value in piece.items():
        if key == "function" and isinstance(value, dict):
            function = call.setdefault("function", {})
            if isinstance(function, dict):
                says = _add_function(function, value)
        elif value not in (None, "") and key != "index":
            call[key] = value
    return says


def _add_function(function: dict[str, object], piece: Mapping[str, object]) -> bool:
    says = False
    for key, value in piece.items():
        if key == "arguments" and isinstance(value, str):
            pieces = function.get("arguments")
            if not isinstance(pieces, _Pieces):
                pieces = function["arguments"] = _Pieces()
            pieces.append(value)
            says |= value != ""
        elif value not in (None, ""):
            function[key] = value
            says = True
    return says


def _plain(function: object) -> object:
    """A function with its arguments joined."""
    if isinstance(function, dict) and isinstance(pieces := function.get("arguments"), _Pieces):
        return {**function, "arguments": "".join(pieces)}
    return function


def _plain_call(call: Mapping[str, object]) -> dict[str, object]:
    return {**call, "function": _plain(call["function"])} if "function" in call else dict(call)


def _joined(known: object, value: object) -> object:
    """What is known of a field after *value* came; the values are ours to change, since a decoder made them for us."""
    if isinstance(value, list) and isinstance(known, list):
        known.extend(value)
        return known
    if isinstance(value, dict) and isinstance(known, dict):
        for key, inner in value.items():
            former = known.get(key)
            if isinstance(inner, list) and isinstance(former, list):
                former.extend(inner)
            elif inner is not None:
                known[key] = inner
        return known
    return value


def parts_of(content: object) -> tuple[str, str]:
    """The text and the reasoning in a content that is a list of parts. Raises :class:`ValueError` for anything else."""
    if not isinstance(content, list):
        raise ValueError("content is neither a text nor a list of parts")
    found: dict[bool, list[str]] = {False: [], True: []}
    for part in content:
        if isinstance(part, str):
            found[False].append(part)
        elif isinstance(part, dict):
            reasons = part.get("type") in ("thinking", "reasoning")
            inner = part.get("text") or part.get("thinking") or part.get("reasoning") or ""
            found[reasons].append(inner if isinstance(inner, str) else parts_of(inner)[0])
        else:
            raise ValueError("a part of the content is no object")
    return "".join(found[False]), "".join(found[True])
