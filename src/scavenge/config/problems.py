"""Where in a file something is wrong, as a path of keys, and the path as a user reads it. Knows no settings.

A path is relative to the table that is being read; each caller puts its own part before it. Only :class:`Where` knows
the file, and which keys were set by ``--set`` instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import attrs

from scavenge.core.naming import key_name, shown
from scavenge.errors import Problem

KeyPath: TypeAlias = "tuple[str | int, ...]"


@attrs.frozen
class Fault:
    """One thing that is wrong, at a path below the table being read."""

    path: KeyPath
    what: str

    def below(self, *parts: str | int) -> Fault:
        """The same fault, seen from further up."""
        return Fault((*parts, *self.path), self.what)


class Wrong(ValueError):
    """A value has faults; ``faults`` has all of them."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{path_text(fault.path)}: {fault.what}" for fault in self.faults))


class Mismatch(ValueError):
    """A value is not of the type that is expected: *noun* says which, as in ``an integer``."""

    def __init__(self, noun: str, got: object) -> None:
        self.noun = noun
        self.got = got
        super().__init__(f"expected {noun}, got {shown(got)}")


@attrs.frozen
class Where:
    """A table in a file. ``overridden`` tells which paths of the file ``--set`` wrote, and by which key."""

    file: str
    path: KeyPath = ()
    overridden: Mapping[KeyPath, str] = attrs.field(factory=dict)
    table: str = ""
    """The table that the path goes on from, where it is known as text only."""

    @classmethod
    def of(cls, where: Where | str) -> Where:
        """A place that may be given as text, ``eval.toml: source[0]``: a file, or a file and a table."""
        if isinstance(where, Where):
            return where
        file, _, table = where.rpartition(": ")
        return cls(file, table=table) if file else cls(where)

    def at(self, *parts: str | int) -> Where:
        """A table further down."""
        return attrs.evolve(self, path=(*self.path, *parts))

    def problem(self, fault: Fault) -> Problem:
        """The fault with the place to look for it: a key of the file, or the ``--set`` that wrote it."""
        path = (*self.path, *fault.path)
        for length in range(len(path), 0, -1):
            if (key := self.overridden.get(path[:length])) is not None:
                return Problem(f"--set {key}{path_text(path[length:], first=False)}", fault.what)
        return Problem(self._place(path), fault.what)

    def problems(self, faults: Iterable[Fault]) -> tuple[Problem, ...]:
        """All faults in their order, each once."""
        return tuple(dict.fromkeys(self.problem(fault) for fault in faults))

    def __str__(self) -> str:
        return self._place(self.path)

    def _place(self, path: KeyPath) -> str:
        inside = self.table + path_text(path, first=not self.table)
        return f"{self.file}: {inside}" if inside else self.file


def path_text(path: KeyPath, *, first: bool = True) -> str:
    """A path as ``eval[1].max_retries``; one that goes on from another begins with its dot."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{key_name(part)}" for part in path)
    return text.removeprefix(".") if first else text
