"""The simulated language model: what it replies to a prompt. Pure: the same prompt and seed give the same reply.

It solves small arithmetic questions, with symbols or in the words of the shipped dataset, and is wrong about one in
ten, so that scores look like scores. To anything else it says a few sentences of no meaning. A *token* is a word with
the space before it. It must not know how fast a server is.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import attrs

_WRONG_SHARE = 0.1
_MEDIAN_TOKENS = 40.0
_NORMAL = NormalDist()
_SIGMA = 0.6  # of the logarithm: the middle 95 % lie between 12 and 130 tokens
_MIN_TOKENS, _MAX_TOKENS = 8, 400
_MAX_QUESTION = 2000  # characters of the question that are looked at
_MAX_TERMS = 64  # numbers and signs of an expression: nobody computes a huge product by accident

_FILLER = (
    "Let me think about this step by step.",
    "First I look at what is given.",
    "Then I work out what follows from it.",
    "I check the result once more to be sure.",
    "Nothing else in the question changes that.",
)
_MORE = [f" {word}" for sentence in _FILLER for word in sentence.split()]
_SENTENCES_AT = [sum(len(sentence.split()) for sentence in _FILLER[:number]) for number in range(len(_FILLER))]
_SIGNS = {"plus": "+", "minus": "-", "\u2212": "-", "times": "*", "x": "*", "\u00d7": "*", "\u00b7": "*"}
_TERM = re.compile(
    r"\d{1,15}|[-+*\u2212\u00d7\u00b7()]|(?<![a-z])(?:x|plus|minus|times)(?![a-z])", re.ASCII | re.IGNORECASE
)
_NUMBER = re.compile(r"\d{1,15}", re.ASCII)
_STORY = (
    (re.compile(r"\b(?:each|every)\b", re.IGNORECASE), "*"),
    (re.compile(r"\b(?:gives? away|loses?|left)\b", re.IGNORECASE), "-"),
    (re.compile(r"\b(?:more|altogether)\b", re.IGNORECASE), "+"),
)


@attrs.frozen
class SimulatedReply:
    """What the model says: the tokens put together are the text. ``finish_reason`` is ``stop`` or ``length``."""

    tokens: tuple[str, ...]
    finish_reason: str
    prompt_tokens: int
    conversation: str | None = None
    """Which conversation it belongs to, for a prefix cache: the same in each turn."""


def reply_to(
    messages: Sequence[Mapping[str, object]],
    seed: int = 0,
    max_tokens: int | None = None,
    *,
    ignore_eos: bool = False,
    prompt_tokens: int | None = None,
) -> SimulatedReply:
    """The reply to a conversation; its length is log-normal, and cut at ``max_tokens``.

    With *ignore_eos* the model goes on talking until ``max_tokens``. *prompt_tokens* is taken for the length of the
    prompt where it is given, instead of counting its words.
    """
    texts = [text_of(message.get("content")) for message in messages]
    question = next((texts[at] for at in reversed(range(len(texts))) if messages[at].get("role") == "user"), "")
    chance = _Chance("\n".join(texts), seed)
    tokens = _say(_conclusion(question, chance), chance)
    finish_reason = "stop"
    if max_tokens is not None and (ignore_eos or max_tokens < len(tokens)):
        tokens, finish_reason = _of_length(tokens, max_tokens), "length"
    if prompt_tokens is None:
        prompt_tokens = sum(count_tokens(text) for text in texts)
    return SimulatedReply(tuple(tokens), finish_reason, prompt_tokens, _conversation(messages, texts))


def _of_length(tokens: list[str], length: int) -> list[str]:
    """The first of so many tokens, with filler after them where there are not enough."""
    missing = length - len(tokens)
    return tokens + _filler(0, missing) if missing > 0 else tokens[:length]


def _conversation(messages: Sequence[Mapping[str, object]], texts: Sequence[str]) -> str:
    """What all turns of a conversation have in common: how it begins, up to the first words of a user."""
    begins = next((at for at, message in enumerate(messages, 1) if message.get("role") == "user"), len(texts))
    text = "\0".join(texts[:begins])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def text_of(content: object) -> str:
    """The text of a message's content, which may be a list of parts; what is no text counts for nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return " ".join(part for part in parts if isinstance(part, str))
    return ""


def count_tokens(text: str) -> int:
    """How many tokens a text has."""
    return len(text.split())


class _Chance:
    """Numbers in ``(0, 1)`` that depend on the prompt, the seed and their purpose only."""

    def __init__(self, prompt: str, seed: int) -> None:
        self._base = hashlib.blake2b(f"{seed}\n{prompt}".encode("utf-8", "surrogatepass"), digest_size=16)

    def draw(self, purpose: str) -> float:
        mixed = self._base.copy()
        mixed.update(b"\0" + purpose.encode())
        return (int.from_bytes(mixed.digest()[:6], "big") + 0.5) / 2**48


def _conclusion(question: str, chance: _Chance) -> str:
    value = solve(question)
    if value is None:
        return "That is all there is to say about it."
    if chance.draw("wrong") < _WRONG_SHARE:
        value += 1 + math.floor(9 * chance.draw("by how much"))
    return f"The answer is {value}."


def _say(conclusion: str, chance: _Chance) -> list[str]:
    length = _MEDIAN_TOKENS * math.exp(_SIGMA * _NORMAL.inv_cdf(chance.draw("length")))
    last = [f" {word}" for word in conclusion.split()]
    wanted = round(min(max(length, _MIN_TOKENS), _MAX_TOKENS)) - len(last)
    begins_at = _SENTENCES_AT[math.floor(len(_FILLER) * chance.draw("first sentence"))]
    tokens = _filler(begins_at, max(wanted, 0)) + last
    return [tokens[0][1:], *tokens[1:]]


def _filler(begins_at: int, count: int) -> list[str]:
    """So many tokens of meaningless sentences, the first of them the one at *begins_at*."""
    return (_MORE * ((begins_at + count) // len(_MORE) + 1))[begins_at : begins_at + count]


def solve(question: str) -> int | None:
    """The value of the arithmetic in a question; ``None`` where there is none that this model understands."""
    text = question[:_MAX_QUESTION]
    terms = [_SIGNS.get(term.lower(), term) for term in _TERM.findall(text)]
    if len(terms) > _MAX_TERMS:
        return None
    value = _Expression(terms).value()
    return value if value is not None else _solve_story(text)


def _solve_story(text: str) -> int | None:
    numbers = [int(number) for number in _NUMBER.findall(text)]
    if len(numbers) != 2:
        return None
    sign = next((sign for pattern, sign in _STORY if pattern.search(text)), None)
    if sign is None:
        return None
    a, b = numbers
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


class _Expression:
    """Sum, difference and product by recursive descent; at most as deep as there are terms."""

    def __init__(self, terms: list[str]) -> None:
        self._terms = [*terms, "end"]
        self._at = 0

    def value(self) -> int | None:
        """The value, or ``None`` when the terms are no expression with at least one operation."""
        if not any(term in {"+", "-", "*"} for term in self._terms):
            return None
        try:
            value = self._sum()
        except ValueError:
            return None
        return value if self._terms[self._at] == "end" else None

    def _sum(self) -> int:
        value = self._product()
        while self._terms[self._at] in {"+", "-"}:
            sign = 1 if self._next() == "+" else -1
            value += sign * self._product()
        return value

    def _product(self) -> int:
        value = self._atom()
        while self._terms[self._at] == "*":
            self._next()
            value *= self._atom()
        return value

    def _atom(self) -> int:
        term = self._next()
        if term == "-":
            return -self._atom()
        if term != "(":
            return int(term)
        value = self._sum()
        if self._next() != ")":
            raise ValueError("a parenthesis is not closed")
        return value

    def _next(self) -> str:
        term = self._terms[self._at]
        self._at += 1
        return term
