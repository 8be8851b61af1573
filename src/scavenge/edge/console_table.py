"""Tables as aligned text, for people: every cell whole, no lines and no control codes, so that it pastes anywhere."""

from __future__ import annotations

from collections.abc import Sequence

from scavenge.core.naming import one_line

GAP = "  "


def table_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows below their heads, columns aligned; a column of numbers to the right."""
    from rich.cells import cell_len

    lines = [list(head), *([one_line(cell, 10_000) for cell in row] for row in rows)]
    columns = range(len(head))
    widths = [max(cell_len(line[column]) for line in lines) for column in columns]
    numeric = [bool(rows) and all(_is_number(line[column]) for line in lines[1:]) for column in columns]

    def padded(cell: str, column: int) -> str:
        padding = " " * (widths[column] - cell_len(cell))
        return padding + cell if numeric[column] else cell + padding

    return "\n".join(GAP.join(padded(line[column], column) for column in columns).rstrip() for line in lines)


def _is_number(cell: str) -> bool:
    return cell[:1].isdecimal() or cell in ("–", "?", "-")
