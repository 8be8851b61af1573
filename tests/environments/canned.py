"""A model that says what it is told to, and chat environments in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from scavenge.config import structure_plugin
from scavenge.environments.chat import ChatEnvironment, ChatSettings, create_chat
from scavenge.plugins.manager import load_plugins
from scavenge.types import Completion, Messages, Usage


class CannedModel:
    """Answers each request with the same text, and keeps what it was asked."""

    def __init__(self, text: str = "4", reasoning: str | None = None) -> None:
        self.text = text
        self.reasoning = reasoning
        self.asked: list[Messages] = []

    async def chat(self, messages: Messages, **options: object) -> Completion:
        await trio.lowlevel.checkpoint()
        self.asked.append(messages)
        return Completion(self.text, "stop", self.reasoning, (), Usage(), (), {})


def chat_settings(folder: Path, **keys: Any) -> ChatSettings:
    """The settings that ``env_args`` with these keys give."""
    return structure_plugin(ChatSettings, keys, "eval.toml: eval[0].env_args", folder)


def chat_environment(folder: Path, **keys: Any) -> ChatEnvironment:
    """The environment that ``env_args`` with these keys give."""
    return create_chat(chat_settings(folder, **keys), load_plugins({}, entry_points=()).scorer)
