"""From what verifiers says of a rollout that failed to the error that scavenge has for it. Pure.

It decides whether the model's side failed, the machinery around it, or the environment's own code.
"""

from __future__ import annotations

import re

from scavenge import InfrastructureError, ScavengeError
from scavenge.plugin import model_error

_MACHINERY = (
    "HarnessError",
    "InfraError",
    "InterceptionError",
    "ProviderError",
    "SandboxError",
    "ToolsetError",
    "TunnelError",
)
"""How the names of verifiers' errors end that are no fault of the model, nor of what it wrote."""
_UNREACHED = ("APIConnectionError", "APITimeoutError")
"""The errors of the OpenAI client that come without a reply."""
_NETWORK = ("aiohttp", "anthropic", "httpcore", "httpx", "openai", "requests", "urllib3")
"""Libraries whose errors say that a service was not reached, or refused."""
_UPSTREAM = re.compile(r"upstream (\d{3}): (.*)", re.DOTALL)
"""How verifiers.v1 tells a model's error reply."""


class RolloutFailed(ScavengeError):
    """verifiers has no result for a rollout; the text begins with the name of its own error."""


def failure(kind: str, message: str) -> ScavengeError:
    """The error for one of verifiers' that it tells by name and text."""
    text = f"{kind}: {message}".removesuffix(": ")
    machinery = kind.endswith(_MACHINERY) or any(f"{name}(" in message for name in _UNREACHED)
    return InfrastructureError(text) if machinery else RolloutFailed(text)


def upstream_failure(message: str) -> ScavengeError | None:
    """What the model's side said, where the text of an error has its reply."""
    if (found := _UPSTREAM.search(message)) is None:
        return None
    return model_error(int(found[1]), found[2].encode())


def is_too_long(error: ScavengeError) -> bool:
    """Whether a request was turned down for the length of its prompt."""
    return bool(getattr(getattr(error, "outcome", None), "context_length", False))


def chain(error: BaseException) -> str:
    """An error and its causes, from the outermost on."""
    texts: list[str] = []
    link: BaseException | None = error
    while link is not None and len(texts) < 5:
        texts.append(f"{type(link).__name__}: {link}".removesuffix(": "))
        link = link.__cause__
    return ", by ".join(texts)


def is_of_the_network(error: BaseException) -> bool:
    """Whether an error, or what caused it, says that a service failed rather than the code that asked it."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, ConnectionError | TimeoutError):
            return True
        for kind in type(link).__mro__:
            package = kind.__module__.partition(".")[0]
            if package in _NETWORK or (package == "verifiers" and kind.__name__.endswith(("ModelError", *_MACHINERY))):
                return True
        link = link.__cause__
    return False
