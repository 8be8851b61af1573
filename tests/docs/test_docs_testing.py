"""The pages on testing name all that there is, and the tests in them pass for the plugins that the pages show."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
from pages import blocks, keyed, read, section, words

from scavenge import testing
from scavenge.testing import SourceFault, check_admission_policy, check_endpoint_source, check_image_store
from scavenge.testing.source_answers import CLOSED_WITHIN_S

REFERENCE = read("reference/testing.md")
TEST_SPOOL, TEST_SHY = blocks(read("how-to/test-a-plugin.md"), "python")


def module(name: str, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the first program of a page be importable."""
    found = ModuleType(name)
    exec(compile(blocks(read(page), "python")[0], f"{name}.py", "exec"), found.__dict__)
    monkeypatch.setitem(sys.modules, name, found)


def checks_of(code: str) -> dict[str, Callable[..., Any]]:
    names: dict[str, Any] = {}
    exec(compile(code, "test_it.py", "exec"), names)
    return {name: found for name, found in names.items() if name.startswith("test_")}


async def test_the_source_that_authors_copy_passes_the_test_that_they_copy(tmp_path: Path, monkeypatch):
    module("scavenge_spool", "how-to/write-an-endpoint-source.md", monkeypatch)
    ((_, check),) = checks_of(TEST_SPOOL).items()
    await check(tmp_path)


async def test_the_test_that_authors_copy_finds_a_source_that_takes_no_folder_for_no_servers(tmp_path, monkeypatch):
    module("scavenge_spool", "how-to/write-an-endpoint-source.md", monkeypatch)
    spool = sys.modules["scavenge_spool"]
    right = spool.SpoolSource.list_endpoints

    async def list_endpoints(self: Any) -> Any:
        return await right(self) if self.config.folder.exists() else spool.Listing([])

    monkeypatch.setattr(spool.SpoolSource, "list_endpoints", list_endpoints)
    ((_, check),) = checks_of(TEST_SPOOL).items()
    with pytest.raises(AssertionError, match='the fault "unmounted", asked in it: an empty listing came'):
        await check(tmp_path)


def test_the_policy_that_authors_copy_passes_the_test_that_they_copy(monkeypatch):
    module("scavenge_shy", "how-to/write-an-admission-policy.md", monkeypatch)
    ((_, check),) = checks_of(TEST_SHY).items()
    check()


async def test_the_image_store_that_authors_copy_passes_the_test_that_they_copy(tmp_path: Path, monkeypatch):
    module("scavenge_drawer", "how-to/write-an-image-store.md", monkeypatch)
    ((_, check),) = checks_of(blocks(read("how-to/write-an-image-store.md"), "python")[1]).items()
    await check(tmp_path)


@pytest.mark.parametrize(
    ("check", "head"),
    [
        (check_endpoint_source, "Endpoint sources"),
        (check_admission_policy, "Admission policies"),
        (check_image_store, "Image stores"),
    ],
)
def test_every_argument_of_a_check_is_there_with_its_default(check, head):
    table = keyed(section(REFERENCE, head))
    arguments = inspect.signature(check).parameters.values()
    assert {name: cells[0] for name, cells in table.items()} == {
        one.name: "required" if one.default is inspect.Parameter.empty else f"`{one.default!r}`" for one in arguments
    }


def test_the_fields_of_a_fault_are_there():
    assert f"`SourceFault({', '.join(field.name for field in attrs.fields(SourceFault))})`" in REFERENCE


def test_the_time_for_closing_is_there():
    assert REFERENCE.count(f"within {CLOSED_WITHIN_S:g} seconds") == 2


def test_every_public_name_is_there():
    told = {word.partition("(")[0].removeprefix("await ") for word in words(REFERENCE)}
    assert set(testing.__all__) - told == set()
