"""The page about the store tells every key with its default. Skipped without scavenge's own docs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import attrs
import pytest
from scavenge_modelscope.config import TOKEN_VARIABLE, ModelScopeConfig
from scavenge_modelscope.store import CUTS, TRIES

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "ship-images-by-modelscope.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="scavenge's documentation is not beside the package")


def default(field: attrs.Attribute[object]) -> str:
    if field.default is attrs.NOTHING:
        return "required"
    return "–" if field.default is None else f"`{json.dumps(field.default)}`"


def test_every_key_stands_there_with_its_default():
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == {field.name: default(field) for field in attrs.fields(ModelScopeConfig)}


def test_the_figures_and_names_in_the_text_are_those_of_the_code():
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert (CUTS, TRIES) == (5, 5)
    assert "five times in a row without a byte between" in text
    assert "begins anew, five times at most" in text
    assert f"`{TOKEN_VARIABLE}`, where that is set" in text
