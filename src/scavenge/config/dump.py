"""Settings written back as an evaluation file: every default filled in, paths absolute, keys named and never shown.

Loading what :func:`dump` writes gives equal settings, wherever the file is put.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import tomli_w

from scavenge.config.assemble import PLAIN_TABLES, POLICY_TABLES, RUN_KEYS
from scavenge.config.schema import PolicySettings, RunSettings


def dump(settings: RunSettings) -> str:
    """The settings as TOML."""
    document: dict[str, Any] = {key: getattr(settings, key) for key in RUN_KEYS}
    for table in POLICY_TABLES:
        document[table] = _policy(getattr(settings, table))
    for table in PLAIN_TABLES:
        document[table] = _fields(getattr(settings, table))
    document["source"] = [{"type": source.type, **source.keys} for source in settings.sources]
    document["eval"] = [_fields(one) for one in settings.evals]
    return tomli_w.dumps(_plain({key: value for key, value in document.items() if value not in ({}, [])}))


def _policy(settings: PolicySettings) -> dict[str, Any]:
    policy = {} if settings.policy is None else {"policy": settings.policy}
    return {**policy, **settings.keys}


def _fields(settings: Any) -> dict[str, Any]:
    return {field.alias or field.name: getattr(settings, field.name) for field in attrs.fields(type(settings))}


def _plain(value: Any) -> Any:
    """A value in the types of TOML; a key without a value is left out, as TOML has no null."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
