"""What a fake registry may be told to do with a request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

import attrs


@attrs.frozen
class Refuse:
    """An error, as registries word them; ``text``: another body."""

    status: int
    code: str = ""
    message: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    text: str | None = None

    @property
    def body(self) -> bytes:
        if self.text is not None:
            return self.text.encode()
        return json.dumps({"errors": [{"code": self.code, "message": self.message}]}).encode() if self.code else b""


@attrs.frozen
class Cut:
    """The connection ends after so many bytes of the body: of the answer to GET, of the request's else."""

    after: int = 0


@attrs.frozen
class Wrong:
    """Other bytes in the body, with headers that fit them."""

    data: bytes


@attrs.frozen
class Silent:
    """No answer until the registry is closed."""


@attrs.frozen
class Redirect:
    """To another address; a path is one of this registry."""

    to: str


@attrs.frozen
class Whole:
    """All of the blob, whatever range was asked for."""


@attrs.frozen
class Swallow:
    """What was sent is taken, and nobody says so: the connection ends."""


@attrs.frozen
class Forget:
    """The upload is lost."""


Answer: TypeAlias = "Refuse | Cut | Wrong | Silent | Redirect | Whole | Swallow | Forget"
