"""Settings written back as an evaluation file: every default filled in, paths absolute, keys named and never shown.

Loading what :func:`dump` writes gives equal settings, wherever the file is put. One table, such as ``env_args``, is
written by :func:`dump_table`, and :func:`scavenge.core.documents.parse_toml` gives it back as it was: dates are dates,
and a path that was relative to the evaluation file's folder still is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import tomli_w

from scavenge.config.assemble import PLAIN_TABLES, POLICY_TABLES, RUN_KEYS
from scavenge.config.schema import PolicySettings, RunSettings
from scavenge.core.naming import one_line
from scavenge.errors import UsageError


def dump(settings: RunSettings) -> str:
    """The settings as TOML.

    Raises :class:`scavenge.errors.UsageError` for settings that were made without a file, of what none can hold.
    """
    document: dict[str, Any] = {key: getattr(settings, key) for key in RUN_KEYS}
    for table in POLICY_TABLES:
        document[table] = _policy(getattr(settings, table))
    for table in PLAIN_TABLES:
        document[table] = _fields(getattr(settings, table))
    if settings.image_stores:
        document["images"]["store"] = [{"type": store.type, **store.keys} for store in settings.image_stores]
    document["source"] = [{"type": source.type, **source.keys} for source in settings.sources]
    document["eval"] = [_fields(one) for one in settings.evals]
    return dump_table({key: value for key, value in document.items() if value not in ({}, [])})


def dump_table(table: Mapping[str, Any]) -> str:
    """A table as a TOML document of its own. Raises :class:`scavenge.errors.UsageError` as :func:`dump` does."""
    try:
        return tomli_w.dumps(_plain(table))
    except (TypeError, ValueError, RecursionError) as exc:
        raise UsageError(f"settings hold what TOML cannot write: {one_line(str(exc))}") from exc


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
