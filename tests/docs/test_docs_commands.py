"""The command lines in the pages are ones that the programs take."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pages import DOCS, FENCE, ROOT

from scavenge.cli.main import scavenge
from scavenge.testing.serve import main as serve

PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("examples/*/README.md")), ROOT / "README.md"]
PROGRAMS: dict[str, click.Command] = {"scavenge": scavenge, "python -m scavenge.testing.serve": serve}
COMMAND = re.compile(r"(?:\S*/)?(scavenge|python -m scavenge\.testing\.serve) (.*)")
PLACEHOLDER = re.compile(r" [A-Z_]{3,}\b")
"""Stands for what the reader has: the line is a form, and no command yet."""


def lines_of(page: Path) -> Iterator[str]:
    """What may be a command in a page: its indented lines and its blocks of shell."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    yield from (line for line in FENCE.sub("", text).splitlines() if line.startswith("    "))
    yield from (part for kind, body in FENCE.findall(text) if kind == "sh" for part in re.split("\n|&&", body))


def commands_of(page: Path) -> set[str]:
    """Each whole command line of one of our programs."""
    lines = {line.strip() for line in lines_of(page)}
    return {line for line in lines if COMMAND.fullmatch(line) and not PLACEHOLDER.search(line)}


COMMANDS = [(page, line) for page in PAGES for line in sorted(commands_of(page))]


@pytest.mark.parametrize("line", [pytest.param(line, id=f"{page.name}: {line}") for page, line in COMMANDS])
def test_a_command_line_is_one_that_the_program_takes(line):
    found = COMMAND.fullmatch(line)
    assert found is not None
    program, arguments = PROGRAMS[found[1]], shlex.split(found[2])
    while isinstance(program, click.Group):
        program = program.commands[arguments.pop(0)]
    context = program.make_context(program.name, arguments)
    file = context.params.get("file")
    assert file is None or file.suffix == ".toml"


def test_the_commands_of_the_readme_and_of_the_tutorials_are_among_them():
    lines = {line for _, line in COMMANDS}
    assert {"scavenge check eval.toml", "scavenge run examples/quickstart/eval.toml --dry-run"} <= lines
    assert {line for line in lines if line.startswith(".venv/bin/scavenge run")}
    assert {line for line in lines if line.startswith("python -m scavenge.testing.serve")}
    assert {"scavenge images pull eval.toml", "scavenge images gc"} <= lines
