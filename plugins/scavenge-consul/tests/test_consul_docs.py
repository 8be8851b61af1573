"""The page about the source tells every key with its default, and every fact. Skipped without scavenge's own docs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import attrs
import pytest
from scavenge_consul import ConsulConfig

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "endpoints-from-consul.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the docs are not part of this package")


def table(head: str) -> dict[str, str]:
    """The first two columns of the table that begins so."""
    lines = PAGE.read_text(encoding="utf-8").split(f"| {head} |", 1)[1].split("\n\n")[0].splitlines()[2:]
    return {cells[1].strip(" `"): cells[2].strip() for cells in (re.split(r"(?<!\\)\|", line) for line in lines)}


def test_every_key_stands_there_with_its_default():
    fields = {field.name: field.default for field in attrs.fields(ConsulConfig)}
    told = table("key | default | meaning")
    assert told.keys() == fields.keys()
    for name, default in fields.items():
        if isinstance(default, attrs.Factory):
            default = default.factory()
        assert told[name] == ("–" if default in (None, "") else f"`{json.dumps(default)}`"), name


def test_every_fact_stands_there():
    told = {name.replace("NAME", "") for name in table("fact | what it is")}
    assert told == set(ConsulConfig.FACTS)
