"""Strings that count how often they are compared: what a step costs, without a clock."""

from __future__ import annotations


class Comparisons:
    """Makes strings, and counts the comparisons of all of them."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, text: str) -> str:
        """The text as a string that is counted; it is found in tables like any other."""
        counter = self

        class Counted(str):
            __hash__ = str.__hash__

            def __eq__(self, other: object) -> bool:
                counter.count += 1
                return str.__eq__(self, other)

        return Counted(text)
