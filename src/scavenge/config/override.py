"""``--set KEY=VALUE``: changes to a document before it is read as settings. Knows no key of any table.

``eval[0].max_retries=5`` means one eval, ``eval.max_retries=5`` every one. A value is what TOML makes of it, else a
string. A message names the key as it was given, never the value.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from scavenge.config.problems import Fault, KeyPath, Wrong, path_text
from scavenge.core.documents import DEEPEST, DocumentError, parse_toml
from scavenge.core.naming import one_line
from scavenge.errors import ConfigError, Problem

_PART = re.compile(
    r"""(?P<dot>\.)?(?:(?P<bare>[A-Za-z0-9_-]+)|"(?P<double>[^"\\]*)"|'(?P<single>[^']*)')|\[(?P<index>[0-9]{1,9})\]"""
)


@attrs.frozen
class Override:
    """One ``--set``: the key as given, its path, and the value."""

    key: str
    path: KeyPath
    value: object


def parse_override(text: str) -> Override:
    """Take ``KEY=VALUE`` apart. Raises :class:`ConfigError`."""
    key, path, rest = _path(text)
    if not path or len(path) > DEEPEST or not rest.startswith("="):
        shown_key = one_line(text.split("=", 1)[0], 80)
        raise ConfigError([Problem(f"--set {shown_key}", "expected KEY=VALUE, such as eval[0].max_retries=5")])
    return Override(key, path, _value(rest[1:]))


def apply_overrides(
    document: dict[str, Any], overrides: Iterable[Override]
) -> tuple[dict[KeyPath, str], tuple[Problem, ...]]:
    """Change the document; tells by which key each changed path was written, and what could not be applied."""
    written: dict[KeyPath, str] = {}
    problems: list[Problem] = []
    for override in overrides:
        try:
            for path in list(_targets(document, override.path, ())):
                _write(document, path, override.value)
                written[path] = override.key
        except Wrong as exc:
            problems.extend(Problem(f"--set {override.key}", fault.what) for fault in exc.faults)
    return written, tuple(problems)


def _path(text: str) -> tuple[str, KeyPath, str]:
    parts: list[str | int] = []
    end = 0
    while (match := _PART.match(text, end)) is not None:
        if match["index"] is not None and parts:
            parts.append(int(match["index"]))
        elif match["index"] is None and (match["dot"] is not None) == bool(parts):
            parts.append(next(name for name in match.group("bare", "double", "single") if name is not None))
        else:
            break
        end = match.end()
    blank = len(text[end:]) - len(text[end:].lstrip(" "))
    return text[:end], tuple(parts), text[end + blank :]


def _value(text: str) -> object:
    try:
        document = parse_toml(f"value = {text}".encode("utf-8", "surrogatepass"))
    except DocumentError:
        return text
    return document["value"] if document.keys() == {"value"} else text


def _targets(container: Any, path: KeyPath, done: KeyPath) -> Iterator[KeyPath]:
    """The places in the document that a path means: a list of tables without an index means each of them."""
    if not path:
        yield done
        return
    part, rest = path[0], path[1:]
    if isinstance(part, int):
        yield from _targets(_item(container, part, done), rest, (*done, part))
    elif isinstance(container, list) and container and all(isinstance(item, dict) for item in container):
        for index, item in enumerate(container):
            yield from _targets(item, path, (*done, index))
    elif isinstance(container, dict):
        if part == "eval" and rest and part not in container:
            raise Wrong([Fault((), "there is no [[eval]] in the file")])
        yield from _targets(container.get(part, {}), rest, (*done, part))
    else:
        raise Wrong([Fault((), f"{path_text(done)} is no table")])


def _item(container: Any, index: int, done: KeyPath) -> Any:
    if not isinstance(container, list):
        raise Wrong([Fault((), f"{path_text(done)} is no list, so it has no [{index}]")])
    if index >= len(container):
        raise Wrong([Fault((), f"{path_text(done)} has no [{index}]; it has {len(container)}, counted from 0")])
    return container[index]


def _write(document: dict[str, Any], path: KeyPath, value: object) -> None:
    container: Any = document
    for part in path[:-1]:
        container = container.setdefault(part, {}) if isinstance(part, str) else container[part]
    container[path[-1]] = copy.deepcopy(value)  # a value that is written to every eval is each eval's own
