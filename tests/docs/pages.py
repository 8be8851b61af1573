"""Reads the project's Markdown pages: their tables and code blocks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(page: str) -> str:
    """The text of a page of ``docs/``."""
    return (DOCS / page).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The fenced code blocks in that language, in order."""
    return [body for found, body in FENCE.findall(text) if found == language]


def table_rows(text: str) -> list[list[str]]:
    """The rows of all tables, heads included, as their cells."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def keyed(text: str) -> dict[str, list[str]]:
    """The other cells of each row whose first cell is one word of code."""
    return {row[0].strip("`"): row[1:] for row in table_rows(text) if re.fullmatch(r"`[^`]+`", row[0])}


def section(text: str, head: str) -> str:
    """What stands below a heading of the second level, up to the next one."""
    (found,) = [part for part in text.split("\n## ")[1:] if part.splitlines()[0] == head]
    return found


def words(cell: str) -> list[str]:
    """The words of code in a cell."""
    return re.findall(r"`([^`]+)`", cell)
