"""What ``--dry-run`` prints. Apart from what runs an evaluation, because a plan is wanted quickly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli
import tomli_w

from scavenge.app.console import screen_on_stderr
from scavenge.app.options import RunOptions
from scavenge.app.parts import resolve
from scavenge.config.dump import dump
from scavenge.core.redaction import HIDDEN, Redactor, visible


def plan_text(path: Path | None, options: RunOptions) -> str:
    """The resolved plan of a run as TOML, without what looks like a secret in it.

    Raises :class:`scavenge.errors.ConfigError` and :class:`scavenge.errors.UsageError`.
    """
    plan = tomli.loads(dump(resolve(path, options)))
    return tomli_w.dumps(without_secrets(plan, screen_on_stderr().redact)).rstrip("\n")


def without_secrets(value: Any, redact: Redactor, key: str = "") -> Any:
    """A TOML value with what is secret in its strings taken out, those strings included whose *key* says that they are.

    Strings without a secret stay as they are, whatever characters they have.
    """
    if isinstance(value, dict):
        return {name: without_secrets(item, redact, name) for name, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item, redact, key) for item in value]
    if not isinstance(value, str):
        return value
    shown = redact(value)
    if shown != visible(value):
        return shown
    named = f"{key}: {value}"
    return value if redact(named) == visible(named) else HIDDEN
