"""What a list and the watch after it tell of the objects. Pure: fed with decoded answers, does no I/O.

Decides what is a whole answer and what is none. Knows nothing of servers: what is kept of an object is the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import attrs

Kept = TypeVar("Kept")

MAX_OBJECTS = 100_000
"""How many objects a list may have; a selector that takes more is a mistake."""


class NoAnswer(ValueError):
    """What came is not what the API answers; the text says what is wrong with it."""


class Expired(Exception):
    """The API no longer knows the version that was asked for: everything has to be listed anew."""


def decoded(data: bytes | bytearray) -> Mapping[str, object]:
    """The object that these bytes of JSON write. Raises :class:`NoAnswer`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise NoAnswer("it is no JSON") from None
    if not isinstance(value, dict):
        raise NoAnswer("it is no JSON object")
    return value


def _meta(item: Mapping[str, object]) -> Mapping[str, object]:
    meta = item.get("metadata")
    if not isinstance(meta, dict):
        raise NoAnswer("an object in it has no metadata")
    return meta


def _version(item: Mapping[str, object]) -> str:
    version = _meta(item).get("resourceVersion")
    if not isinstance(version, str) or not version:
        raise NoAnswer("an object in it has no resourceVersion")
    return version


def _key(item: Mapping[str, object]) -> tuple[str, str]:
    meta = _meta(item)
    namespace, name = meta.get("namespace"), meta.get("name")
    if not isinstance(namespace, str) or not isinstance(name, str):
        raise NoAnswer("an object in it has no name or namespace")
    return namespace, name


@attrs.define
class View(Generic[Kept]):
    """The objects as of a version: a list, taken page by page, then moved on by events."""

    kind: str
    """What the API calls one of them."""
    keep: Callable[[Mapping[str, object]], Kept]
    """What is kept of an object."""
    version: str = ""
    objects: dict[tuple[str, str], Kept] = attrs.field(factory=dict)

    def take_page(self, page: Mapping[str, object]) -> str:
        """Take a page of the list; the token of the next one, empty after the last.

        Raises :class:`NoAnswer` for what is no such page; the view is of no use then.
        """
        if page.get("kind") != f"{self.kind}List":
            raise NoAnswer(f"it is no {self.kind}List")
        items = page.get("items")
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise NoAnswer("it has no list of items")
        if len(self.objects) + len(items) > MAX_OBJECTS:
            raise NoAnswer(f"it has more than {MAX_OBJECTS} objects; narrow the selector")
        self.objects.update((_key(item), self.keep(item)) for item in items)
        self.version = _version(page)
        token = _meta(page).get("continue")
        if token is not None and not isinstance(token, str):
            raise NoAnswer("the token of its next page is no text")
        return token or ""

    def take_event(self, event: Mapping[str, object]) -> bool:
        """Move on by an event of the watch; whether what is kept of the object is another now.

        Raises :class:`Expired`, and :class:`NoAnswer` for what is no such event; nothing has changed then.
        """
        kind, item = event.get("type"), event.get("object")
        if not isinstance(item, dict):
            raise NoAnswer("an event has no object")
        if kind == "ERROR":
            raise _trouble(item)
        version, changed = _version(item), False
        if kind in ("ADDED", "MODIFIED"):
            key, kept = _key(item), self.keep(item)
            changed = key not in self.objects or self.objects[key] != kept
            self.objects[key] = kept
        elif kind == "DELETED":
            changed = self.objects.pop(_key(item), None) is not None
        elif kind != "BOOKMARK":
            raise NoAnswer("an event is of no known type")
        self.version = version
        return changed


def _trouble(status: Mapping[str, object]) -> Exception:
    if status.get("code") == 410 or status.get("reason") in ("Expired", "Gone"):
        return Expired()
    return NoAnswer(f"the watch ended with: {' '.join(str(status.get('message')).split())[:200]}")
