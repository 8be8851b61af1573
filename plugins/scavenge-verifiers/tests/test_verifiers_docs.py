"""The page about the package tells what the package says of itself. Skipped without scavenge's own docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomli
from scavenge_verifiers import failures
from scavenge_verifiers.base import MODEL

PACKAGE = Path(__file__).parents[1]
PAGE = PACKAGE.parents[1] / "docs" / "how-to" / "verifiers-environments.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the docs are not part of this package")


def test_the_versions_of_verifiers_are_those_that_the_package_allows():
    project = tomli.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (allowed,) = [one for one in project["dependencies"] if one.startswith("verifiers")]
    told = re.findall(r"\| `(verifiers\S+)` \|", PAGE.read_text(encoding="utf-8"))
    assert told[-1] == allowed
    assert told[0] == "verifiers>=0.3.1,<0.4"


def test_the_errors_and_the_models_name_are_those_of_the_package():
    page = PAGE.read_text(encoding="utf-8")
    assert f"`{failures.RolloutFailed.__name__}`" in page
    assert f"as `{MODEL}`" in page
