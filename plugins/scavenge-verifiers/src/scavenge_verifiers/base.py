"""What both kinds of environments for verifiers have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenge.plugin import Environment
from scavenge_verifiers.installed import Installed

MODEL = "scavenge"
"""The name of the model in requests. The gateway puts that of the server in its place."""


class VerifiersEnvironment(Environment):
    """An installed environment with its arguments. Until it is opened, neither it nor verifiers is imported."""

    backend = "asyncio"
    in_worker = True

    def __init__(self, installed: Installed, arguments: Mapping[str, Any], verifiers: str) -> None:
        self.installed = installed
        self.arguments = dict(arguments)
        self.verifiers = verifiers
        """The version of verifiers."""

    def identity(self) -> Mapping[str, object]:
        """The versions that its tasks and scores come from."""
        return {"environment": f"{self.installed.name} {self.installed.version}".rstrip(), "verifiers": self.verifiers}
