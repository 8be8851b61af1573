"""Values of foreign libraries as JSON has them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def as_json(value: object, where: str = "") -> Any:
    """The same value in JSON's types.

    Raises ``ValueError`` that names the place of what JSON has nothing for.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): as_json(item, f"{where}.{key}" if where else str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if (dump := getattr(value, "model_dump", None)) is not None:
        return as_json(dump(mode="json", exclude_none=True), where)
    raise ValueError(f"{where or 'it'} is a {type(value).__qualname__}, which JSON has nothing for")


def as_text_json(value: object) -> Any:
    """The same value in JSON's types; what JSON has nothing for is told in words, as ``repr`` has them."""
    if isinstance(value, Mapping):
        return {str(key): as_text_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_text_json(item) for item in value]
    try:
        return as_json(value)
    except ValueError:
        return repr(value)


def as_metrics(values: Mapping[str, object]) -> dict[str, float]:
    """The figures among values."""
    return {
        str(name): float(value)
        for name, value in values.items()
        if isinstance(value, bool | int | float) and math.isfinite(value)
    }
