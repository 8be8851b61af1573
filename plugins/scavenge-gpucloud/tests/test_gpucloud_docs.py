"""The page about the sources tells every key with its default, and every fact. Skipped without scavenge's own docs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import attrs
import pytest
from gpucloud_kit import CASES
from scavenge_gpucloud.config import CloudConfig, VastConfig
from scavenge_gpucloud.pace import Pace

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "endpoints-from-gpucloud.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="scavenge's documentation is not beside the package")


def tables() -> list[dict[str, dict[str, str]]]:
    """Each table of the page: by the code in its first cells, the other cells by their heads."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        head = [cell.strip("`") for cell in rows[0]]
        found.append({row[0].strip("`"): dict(zip(head, row, strict=True)) for row in rows[2:]})
    return found


def default(kind: type, key: str) -> str:
    """A key's default as the page writes it."""
    fields = attrs.fields_dict(kind)
    if key not in fields:
        return "–"
    value = fields[key].default
    if value is attrs.NOTHING:
        return "required"
    if value is None:
        return "–"
    value = value.factory() if isinstance(value, attrs.Factory) else value
    return f"`{value:g}`" if isinstance(value, float) else f"`{value or json.dumps(value)}`".replace("'", '"')


def test_every_key_stands_there_with_its_default_for_each_cloud():
    (keys,) = [table for table in tables() if "name_prefix" in table]
    assert set(keys) == {field.name for field in attrs.fields(VastConfig)}
    for key, cells in keys.items():
        assert {name: cells[name] for name in CASES} == {
            name: default(case.config, key) for name, case in CASES.items()
        }


def test_every_fact_stands_there():
    (facts,) = [table for table in tables() if "address" in table]
    assert {name.removesuffix("N") for name in facts} == set(CloudConfig.FACTS)


def test_what_is_asked_for_stands_there():
    (asked,) = [table for table in tables() if "asked for" in next(iter(table.values()))]
    for name, case in CASES.items():
        api = attrs.fields_dict(case.config)["api_url"].default
        assert asked[name]["asked for"] == f"`GET {api}/{case.cloud.path}`"


def test_the_figures_in_the_text_are_those_of_the_pace():
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    pace = Pace()
    assert (pace.readings, pace.tries) == (3, 5)
    assert "three times at most" in text
    assert f"five times at most and within {pace.list_within_s:g} seconds" in text
    assert f"at least {pace.list_gap_s:g} seconds" in text
