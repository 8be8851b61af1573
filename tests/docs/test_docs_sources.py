"""The page that helps to choose a source has all that there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli
from pages import DOCS, ROOT, read, table_rows, words

from scavenge.plugins.builtin import BuiltinPlugin

PAGE = read("how-to/choose-an-endpoint-source.md")


def test_every_built_in_source_is_there():
    types = {word for row in table_rows(PAGE) for word in words(row[1])}
    assert {kind.name for kind in BuiltinPlugin(pytest.fail).scavenge_endpoint_sources()} <= types


def has_sources(folder: Path) -> bool:
    return any("def scavenge_endpoint_sources" in path.read_text("utf-8") for path in folder.glob("src/**/*.py"))


def test_every_plugin_of_the_repository_that_has_sources_is_there():
    folders = [path for path in ROOT.glob("plugins/*") if has_sources(path)]
    projects = [tomli.loads((path / "pyproject.toml").read_text(encoding="utf-8")) for path in folders]
    packages = {word for row in table_rows(PAGE) for word in words(row[2])}
    assert packages == {project["project"]["name"] for project in projects}


def test_every_page_on_endpoints_from_somewhere_is_linked():
    pages = {path.name for path in DOCS.glob("how-to/endpoints-from-*.md")}
    assert {page for page in pages if f"({page}" not in PAGE} == set()
