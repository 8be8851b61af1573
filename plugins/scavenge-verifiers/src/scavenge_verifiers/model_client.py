"""The OpenAI client of the classic API, at a rollout's own address of the model: no retries, no proxy, no deadline.

All clients of a process share one pool of connections, since making one takes as long as many requests.
"""

from __future__ import annotations

import importlib
from typing import Any

from scavenge import ModelSession
from scavenge.plugin import model_error
from scavenge_verifiers.notes import notes_at_hand

CONNECT_TIMEOUT_S = 30.0
_TELL_ATTEMPTS = {"X-Scavenge-Detail": "attempts"}


class ModelClients:
    """Makes the clients. Whoever made this closes it."""

    def __init__(self) -> None:
        self._openai: Any = importlib.import_module("openai")
        self._clients: Any = importlib.import_module("verifiers.clients")
        httpx: Any = importlib.import_module("httpx")
        self._timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
        self._http = httpx.AsyncClient(
            trust_env=False,
            timeout=self._timeout,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            event_hooks={"response": [_note_error]},
        )

    def client(self, model: ModelSession) -> Any:
        """The client of one rollout; it need not be closed."""
        openai = self._openai.AsyncOpenAI(
            base_url=model.base_url,
            api_key=model.api_key,
            max_retries=0,
            timeout=self._timeout,
            http_client=self._http,
            default_headers=_TELL_ATTEMPTS,
        )
        return self._clients.OpenAIChatCompletionsClient(openai)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()


async def _note_error(response: Any) -> None:
    """Keep what an error reply says with the rollout that asked."""
    if response.status_code >= 400:
        body = await response.aread()
        if (notes := notes_at_hand()) is not None:
            notes.reply_error = model_error(response.status_code, body)
