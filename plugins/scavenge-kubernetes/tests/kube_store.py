"""What the double of the Kubernetes API knows: objects, their versions, and the changes since a version."""

from __future__ import annotations

import copy
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import trio

Item = dict[str, Any]
Key = tuple[str, str, str]


class Expired(Exception):
    """A version, or a page's token, that is too old."""


@attrs.frozen
class Change:
    """An object before and after; ``None`` where it was not or is not there."""

    version: int
    resource: str
    before: Item | None
    after: Item | None


@attrs.frozen
class Page:
    """A part of a list."""

    version: int
    items: list[Item]
    token: str


@attrs.frozen
class Selector:
    """A label selector: ``a=b``, ``a!=b``, ``a in (b, c)``, ``a``, with commas between them."""

    terms: tuple[tuple[str, str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, text: str) -> Selector:
        terms = []
        for term in re.findall(r"(?:[^,(]|\([^)]*\))+", text):
            if found := re.fullmatch(r"\s*(\S+)\s+in\s+\(([^)]*)\)\s*", term):
                terms.append((found[1], "in", tuple(one.strip() for one in found[2].split(","))))
            elif found := re.fullmatch(r"\s*([^!=\s]+)\s*(!=|==?)\s*(\S*)\s*", term):
                terms.append((found[1], "!=" if found[2] == "!=" else "in", (found[3],)))
            else:
                terms.append((term.strip(), "there", ()))
        return cls(tuple(terms))

    def takes(self, labels: Mapping[str, str]) -> bool:
        return all(
            name in labels if how == "there" else (labels.get(name) in values) == (how == "in")
            for name, how, values in self.terms
        )


@attrs.define(eq=False)
class Store:
    """The objects, and a log of their changes that can be forgotten."""

    version: int = 100
    stale_tokens: int = 0
    """How many of the next tokens of pages are too old."""
    _items: dict[Key, Item] = attrs.field(factory=dict)
    _log: list[Change] = attrs.field(factory=list)
    _forgotten: int = 0
    """Changes up to this version are no longer in the log."""
    _changed: trio.Event = attrs.field(factory=trio.Event)

    def put(self, resource: str, item: Item) -> None:
        """Create an object, or put another in its place."""
        item = copy.deepcopy(item)
        key = (resource, item["metadata"]["namespace"], item["metadata"]["name"])
        self._note(resource, key, item)

    def edit(self, resource: str, namespace: str, name: str, **parts: Any) -> None:
        """Change some parts of an object: ``status``, ``metadata`` … are merged one level deep."""
        item = copy.deepcopy(self._items[resource, namespace, name])
        for part, value in parts.items():
            item[part] = {**item.get(part, {}), **value} if isinstance(value, dict) else value
        self.put(resource, item)

    def delete(self, resource: str, namespace: str, name: str) -> None:
        self._note(resource, (resource, namespace, name), None)

    def names(self, resource: str) -> list[str]:
        return [name for kind, _, name in self._items if kind == resource]

    def forget(self) -> None:
        """Forget all changes so far, as the API does after some minutes."""
        self.version += 1
        self._forgotten, self._log = self.version, []

    def _note(self, resource: str, key: Key, after: Item | None) -> None:
        self.version += 1
        before = self._items.pop(key, None) if after is None else self._items.get(key)
        if after is not None:
            after["metadata"]["resourceVersion"] = str(self.version)
            self._items[key] = after
        self._log.append(Change(self.version, resource, before, after))
        self._changed.set()
        self._changed = trio.Event()

    # --- what the API asks

    def page(self, resource: str, namespace: str | None, selector: Selector, limit: int, token: str) -> Page:
        """A page of a list; those after the first need the changes since to be remembered."""
        items = [
            item
            for (kind, place, _), item in sorted(self._items.items())
            if kind == resource and namespace in (None, place) and selector.takes(item["metadata"].get("labels", {}))
        ]
        version, start = json.loads(urlsafe_b64decode(token)) if token else (self.version, 0)
        if token and (self.stale_tokens or version < self._forgotten):
            self.stale_tokens -= 1
            raise Expired("The provided continue parameter is too old")
        end = start + limit if limit else len(items)
        more = urlsafe_b64encode(json.dumps([version, end]).encode()).decode() if end < len(items) else ""
        return Page(version, items[start:end], more)

    def since(self, version: int) -> list[Change]:
        if version < self._forgotten:
            raise Expired(f"too old resource version: {version} ({self.version})")
        return [change for change in self._log if change.version > version]

    async def wait_change(self, version: int) -> None:
        while self.version <= version:
            await self._changed.wait()

    def seen(
        self, change: Change, resource: str, namespace: str | None, selector: Selector
    ) -> Iterator[tuple[str, Item]]:
        """The events that a watch with this selector sees of a change."""

        def takes(item: Item | None) -> bool:
            if item is None or change.resource != resource or namespace not in (None, item["metadata"]["namespace"]):
                return False
            return selector.takes(item["metadata"].get("labels", {}))

        match takes(change.before), takes(change.after):
            case False, True:
                yield "ADDED", change.after or {}
            case True, True:
                yield "MODIFIED", change.after or {}
            case True, False:
                last = copy.deepcopy(change.before or {})
                last["metadata"]["resourceVersion"] = str(change.version)
                yield "DELETED", last
