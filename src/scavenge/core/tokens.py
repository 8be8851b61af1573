"""How many tokens a text has where no server counted them, and how many a reply has as the server counted. Pure."""

from __future__ import annotations

from scavenge.types import Messages, Ok, Outcome

CHARACTERS_A_TOKEN = 4
"""About as many characters has a token of English text (OpenAI's rule of thumb)."""


def tokens_of(outcome: Outcome) -> float | None:
    """How many tokens were generated; ``None``: no reply.

    It is what the server counted, or else what the length of the text or the number of its pieces lets expect.
    """
    if not isinstance(outcome, Ok):
        return None
    reply = outcome.reply
    if reply.usage.completion_tokens is not None:
        return reply.usage.completion_tokens
    return max((len(reply.text) + len(reply.reasoning or "")) / CHARACTERS_A_TOKEN, reply.pieces)


def prompt_tokens_of(messages: Messages) -> float:
    """How many tokens a conversation has, by the length of its texts; what is no text counts for nothing."""
    return sum(map(_characters, messages)) / CHARACTERS_A_TOKEN


def _characters(message: object) -> int:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return len(content)
    if not isinstance(content, list):
        return 0
    return sum(len(part["text"]) for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
