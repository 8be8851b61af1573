"""The page about this source has every key, fact and figure."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest
import tomli
from scavenge_kubernetes import access, source
from scavenge_kubernetes.config import KubernetesConfig

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "endpoints-from-kubernetes.md"
README = Path(__file__).parents[1] / "README.md"

needs_page = pytest.mark.skipif(not PAGE.exists(), reason="the pages are in scavenge's repository")


def section(head: str) -> str:
    return PAGE.read_text(encoding="utf-8").split(f"\n## {head}\n")[1].split("\n## ")[0]


def table(head: str) -> dict[str, str]:
    """The second cells of a section's table by its first, which is code."""
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]*?) \|", section(head), re.MULTILINE))


@needs_page
def test_the_page_has_every_key_with_its_default():
    fields, told = {field.name: field for field in attrs.fields(KubernetesConfig)}, table("Keys")
    assert set(told) == set(fields)
    for name, field in fields.items():
        if field.default is attrs.NOTHING:
            assert told[name] == "required"
        elif field.default is not None:
            written = field.default if isinstance(field.default, float) else f'"{field.default}"'
            assert told[name] == f"`{written}`"
        else:
            assert "required" not in told[name]


@needs_page
def test_the_page_has_every_fact():
    assert {re.sub(r"\..*", ".", name) for name in table("Facts")} == set(KubernetesConfig.FACTS)


@needs_page
def test_the_page_has_the_figures():
    assert f"has {access.LOADED_WITHIN_S:.0f} seconds" in " ".join(section("What it may do").split())
    trouble = " ".join(section("When the cluster does not answer").split())
    assert f"within {source.LISTED_WITHIN_S:.0f} seconds" in trouble
    assert f"grow to {source.PAUSE_MAX_S:.0f} seconds" in trouble


@pytest.mark.parametrize("page", [PAGE, README], ids=["how-to", "README"])
def test_the_sources_in_the_examples_are_right(page):
    if not page.exists():
        pytest.skip("the pages are in scavenge's repository")
    examples = re.findall(r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert examples
    for text in examples:
        (table,) = tomli.loads(text)["source"]
        assert table.pop("type") == "kubernetes"
        KubernetesConfig(**table)
