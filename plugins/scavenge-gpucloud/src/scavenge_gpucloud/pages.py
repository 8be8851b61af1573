"""Puts a list together from the answers that a cloud gives it in. Pure: an answer is what its JSON says.

Decides when a list is whole. A list that changes while it is read may lack an instance that was there all the time, so
pages that do not fit together are no list: they are :class:`Moved`, and whoever reads starts again. Knows nothing of
instances except that each has an id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import attrs

Item: TypeAlias = Mapping[str, Any]
"""One instance as the cloud tells of it."""

MOST_PAGES = 200
MOST_ITEMS = 10_000


class Unclear(Exception):
    """An answer is not of the form that is documented; the text says how."""


class Moved(Exception):
    """The list changed while it was read; the text says where that was seen."""


class Pages(Protocol):
    """A list in the reading: what to ask for next, until it is whole."""

    @property
    def whole(self) -> bool:
        """Whether nothing is left to ask for."""
        ...

    @property
    def items(self) -> list[Item]:
        """What was read so far, each instance once."""
        ...

    def query(self) -> Mapping[str, str]:
        """The parameters of the next request."""
        ...

    def take(self, answer: object) -> None:
        """Take the answer to the last query. Raises :class:`Unclear` or :class:`Moved`."""
        ...


def table_of(answer: object) -> Item:
    """An answer that has to be a JSON object."""
    if not isinstance(answer, Mapping):
        raise Unclear(f"expected an object, got {_kind(answer)}")
    return answer


def items_of(value: object, where: str) -> list[Item]:
    """The instances in an answer: objects, each with an id."""
    if not isinstance(value, list):
        raise Unclear(f"expected a list of instances {where}, got {_kind(value)}")
    for item in value:
        if not isinstance(item, Mapping) or id_of(item) is None:
            raise Unclear(f"an instance {where} has no id")
    if len(value) > MOST_ITEMS:
        raise Unclear(f"more than {MOST_ITEMS} instances")
    return value


def id_of(item: Item) -> str | None:
    """The id of an instance, a number or a text."""
    found = item.get("id")
    if isinstance(found, bool) or not isinstance(found, int | str):
        return None
    return str(found)[:200] or None


def _kind(value: object) -> str:
    names: dict[type, str] = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return "nothing" if value is None else names.get(type(value), "a number")


@attrs.define
class WholeList:
    """A list that comes in one answer, which is the list itself."""

    _found: dict[str | None, Item] = attrs.field(factory=dict, init=False)
    whole: bool = attrs.field(default=False, init=False)

    @property
    def items(self) -> list[Item]:
        return list(self._found.values())

    def query(self) -> Mapping[str, str]:
        return {}

    def take(self, answer: object) -> None:
        self._found = {id_of(item): item for item in items_of(answer, "at the top")}
        self.whole = True


@attrs.define
class CursorPages:
    """Pages that follow each other by ``next_token``, in the order of ids.

    The cloud goes on behind the last id that it gave, so what comes or goes meanwhile shifts nothing. The last page's
    ``total_instances`` tells whether a page was cut short.
    """

    limit: int = 25
    """The most that the API gives in one page."""
    _found: dict[str | None, Item] = attrs.field(factory=dict, init=False)
    _token: str | None = attrs.field(default=None, init=False)
    _tokens: set[str] = attrs.field(factory=set, init=False)
    whole: bool = attrs.field(default=False, init=False)

    @property
    def items(self) -> list[Item]:
        return list(self._found.values())

    def query(self) -> Mapping[str, str]:
        order = json.dumps([{"col": "id", "dir": "asc"}])
        after = {} if self._token is None else {"after_token": self._token}
        return {"limit": str(self.limit), "order_by": order, **after}

    def take(self, answer: object) -> None:
        table = table_of(answer)
        if table.get("success") is False:
            raise Unclear("it says that the request had no success")
        self._found |= {id_of(item): item for item in items_of(table.get("instances"), "under `instances`")}
        token = table.get("next_token")
        if token is not None and not isinstance(token, str):
            raise Unclear(f"`next_token` is {_kind(token)}, not a text")
        if not token:
            self._end(table.get("total_instances"))
        elif token in self._tokens:
            raise Unclear("`next_token` leads back to a page that was read")
        else:
            self._tokens.add(token)
            if len(self._tokens) >= MOST_PAGES or len(self._found) > MOST_ITEMS:
                raise Unclear(f"no end after {len(self._tokens)} pages")
        self._token = token

    def _end(self, total: object) -> None:
        if type(total) is int and total > len(self._found):
            raise Moved(f"{len(self._found)} of {total} instances came")
        self.whole = True


@attrs.define
class OffsetPages:
    """Pages by ``offset`` and ``limit``, each of which says how many instances there are.

    A page begins with the last instance of the page before: when another one stands there, the list has shifted, and an
    instance may have slipped through between two pages.
    """

    limit: int = 100
    _items: list[Item] = attrs.field(factory=list, init=False)
    _total: int | None = attrs.field(default=None, init=False)
    whole: bool = attrs.field(default=False, init=False)
    _pages: int = attrs.field(default=0, init=False)

    @property
    def items(self) -> list[Item]:
        return self._items

    def query(self) -> Mapping[str, str]:
        return {"offset": str(max(0, len(self._items) - 1)), "limit": str(self.limit)}

    def take(self, answer: object) -> None:
        table = table_of(answer)
        page, total = items_of(table.get("data"), "under `data`"), table.get("total_count")
        if type(total) is not int or total < 0:
            raise Unclear("`total_count` is no number of instances")
        if self._total is not None and total != self._total:
            raise Moved(f"{self._total} instances became {total}")
        self._total = total
        self._items += self._behind_the_seam(page)
        self._pages += 1
        if len(self._items) >= total:
            self._end(total)
        elif self._pages >= MOST_PAGES or total > MOST_ITEMS:
            raise Unclear(f"no end after {self._pages} pages")

    def _behind_the_seam(self, page: list[Item]) -> list[Item]:
        if self._items:
            if not page or id_of(page[0]) != id_of(self._items[-1]):
                raise Moved("the next page does not begin where the last one ended")
            page = page[1:]
        if not page and self._total:
            raise Moved(f"{len(self._items)} of {self._total} instances came")
        return page

    def _end(self, total: int) -> None:
        if len({id_of(item) for item in self._items}) != total:
            raise Moved(f"{len(self._items)} instances came, {total} are there")
        self.whole = True
