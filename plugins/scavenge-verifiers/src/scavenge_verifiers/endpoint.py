"""Where ``verifiers.v1`` finds the model: it wants a URL, and the name of an environment variable with the key."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from scavenge import ModelSession

_KEY = "SCAVENGE_VERIFIERS_API_KEY"
"""verifiers keeps variables with API_KEY in their name from the programs that it starts on this machine."""
_numbers = itertools.count()


@contextmanager
def endpoint_of(model: ModelSession, config: Any) -> Iterator[Any]:
    """A *config* of verifiers' for a rollout's address of the model, good inside the block."""
    _reach_directly(urlsplit(model.base_url).hostname or "")
    variable = f"{_KEY}_{next(_numbers)}"
    os.environ[variable] = model.api_key
    try:
        yield config(base_url=model.base_url, api_key_var=variable)
    finally:
        os.environ.pop(variable, None)


def _reach_directly(host: str) -> None:
    """Add a host to those that are reached without a proxy; verifiers' clients heed the environment."""
    for name in ("NO_PROXY", "no_proxy"):
        hosts = [one for one in os.environ.get(name, "").split(",") if one]
        if host not in hosts and "*" not in hosts:
            os.environ[name] = ",".join([*hosts, host])
