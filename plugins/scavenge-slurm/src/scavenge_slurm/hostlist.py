"""Names of nodes in one expression, such as ``gpu[01-03,7],login1``. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

MOST_NODES = 10_000
"""More nodes than any job has; an expression of more is a mistake, and would only cost memory."""

_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\],\s]+)")
_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")


def node_names(expression: str) -> list[str]:
    """The nodes that an expression names, in its order. Raises ``ValueError`` for what is no such expression."""
    names: list[str] = []
    for item in _items(expression):
        for parts in itertools.product(*item):
            names.append("".join(parts))
            if len(names) > MOST_NODES:
                raise ValueError(f"{expression[:60]!r} names more than {MOST_NODES} nodes")
    return names


def _items(expression: str) -> Iterator[list[list[str]]]:
    """Each name with brackets, as the texts that stand in each of its places."""
    position, item = 0, list[list[str]]()
    while position < len(expression):
        if expression[position] == ",":
            yield _whole(item, expression)
            position, item = position + 1, []
            continue
        piece = _PIECE.match(expression, position)
        if piece is None:
            raise ValueError(f"{expression[:60]!r} is no list of nodes")
        item.append([piece[2]] if piece[1] is None else _numbers(piece[1], expression))
        position = piece.end()
    if expression:
        yield _whole(item, expression)


def _whole(item: list[list[str]], expression: str) -> list[list[str]]:
    if not item:
        raise ValueError(f"{expression[:60]!r} has a comma too many")
    return item


def _numbers(ranges: str, expression: str) -> list[str]:
    texts: list[str] = []
    for text in ranges.split(","):
        found = _RANGE.fullmatch(text)
        first, last = (found[1], found[2] or found[1]) if found else ("1", "0")
        if not 0 <= int(last) - int(first) < MOST_NODES:
            raise ValueError(f"{expression[:60]!r} has no range of numbers in its brackets")
        texts.extend(str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    return texts
