"""The ids of a dataset's rows: their own where they have one, else a digest of their content. Pure.

Invariant: no two examples of one stream have the same id. A later row with an id that is taken is an error; rows
without an id that are equal in content are told apart by counting, so that resuming finds the same ids again.

Memory: 26 bytes a row.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b

from scavenge.core.digests import DigestPairs, digest
from scavenge.environments.row import Row
from scavenge.rollouts import Example
from scavenge.types import Json

CONTENT_ID_BYTES = 8
"""Two of a million rows have the same digest with a chance of 3e-8; they would be taken for equal rows and counted."""


class Identifier:
    """Makes examples of rows, in the order of the dataset."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._seen = DigestPairs()  # id -> line where it came first, and how often it came

    def example(self, row: Row, fault: Callable[[Json], str | None]) -> Example:
        """The example that a row is; a row that is wrong, or of which ``fault`` tells something, has its error."""
        if row.data is None:
            return self._broken(row, row.error or "no row")
        try:
            own_id = self._own_id(row.data, row.number)
            what = fault(row.data)
            return self._broken(row, what) if what else Example(own_id or self._content_id(row), row.data)
        except ValueError as exc:
            return self._broken(row, str(exc))
        except RecursionError:
            return self._broken(row, "nested too deep")

    def _own_id(self, data: Json, number: int) -> str | None:
        value = data.get(self._field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
            raise ValueError(f'the field "{self._field}" is no id: expected a text or an integer, got {value!r:.60}')
        id = str(value)  # noqa: A001  # the name of the field
        first, count = self._seen.get(digest(id))
        if count:
            raise ValueError(f'the id "{id:.60}" is already that of row {first}; ids must be unique')
        self._seen.put(digest(id), number, 1)
        return id

    def _content_id(self, row: Row) -> str:
        content = json.dumps(row.data, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        name = blake2b(content.encode(), digest_size=CONTENT_ID_BYTES).hexdigest()
        first, count = self._seen.get(digest(name))
        self._seen.put(digest(name), first or row.number, count + 1)
        return f"{name}-{count + 1}" if count else name

    def _broken(self, row: Row, what: str) -> Example:
        """An example that is only an error. The data are empty: a row that is wrong is nothing to rely on."""
        name = f"line:{row.number}"
        while self._seen.get(digest(name))[1]:  # a row's own id may look like this
            name += "+"
        self._seen.put(digest(name), row.number, 1)
        return Example(name, {}, error=f"{row.place}: {what}")
