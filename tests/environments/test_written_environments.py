"""The examples of the guides for environments, scorers and plugins do what the guides say."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from canned import CannedModel

from scavenge.config import structure_arguments, structure_plugin
from scavenge.environments.loader import EnvironmentLoader
from scavenge.environments.references import importable, load_scorer
from scavenge.listings import EndpointSpec
from scavenge.plugins.manager import load_plugins

DOCS = Path(__file__).parents[2] / "docs"


def python_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = set(sys.modules)
    with importable(tmp_path):
        yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


async def test_the_environment_of_the_guide_plays(folder: Path) -> None:
    environment_code, plugin_code, *_ = python_of("how-to/write-an-environment.md")
    (folder / "guessing.py").write_text(environment_code)
    (folder / "guessing_plugin.py").write_text(plugin_code)
    import guessing_plugin  # type: ignore[import-not-found]  # written above

    registry = load_plugins({}, entry_points=(), plugins={"guessing": guessing_plugin})
    loader = EnvironmentLoader(registry, structure_plugin, structure_arguments, folder)
    for env_id in ("guessing:Guessing", "guessing"):
        environment = loader.load(env_id, {"count": 2, "turns": 3}, where="eval.toml: eval[0]").environment
        assert environment is not None
        first, second = environment.examples()
        assert (await environment.play(first, CannedModel("0"))).reward == 1.0
        lost = await environment.play(second, CannedModel("0"))
        assert (lost.reward, lost.metrics) == (0.0, {"turns": 3})


def test_the_scorer_of_the_reference_scores(folder: Path) -> None:
    (code,) = python_of("reference/scorers.md")
    (folder / "my_scorers.py").write_text(code)
    scorer = load_scorer("my_scorers:score", "here")
    assert scorer.score("two words", None, {"most_words": 2}) == 1.0
    assert scorer.score("three words now", None, {"most_words": 2}) == 0.0


async def test_the_plugin_of_the_reference_lists_its_hosts(folder: Path) -> None:
    code, _ = python_of("reference/plugins.md")
    (folder / "scavenge_hosts.py").write_text(code)
    import scavenge_hosts  # type: ignore[import-not-found]  # written above

    kind = load_plugins({}, entry_points=(), plugins={"hosts": scavenge_hosts}).source_type("hosts")
    async with kind.open(structure_plugin(kind.config, {"hosts": ["10.0.0.7"]}, "x", folder)) as source:
        (endpoint,) = (await source.list_endpoints()).endpoints
    assert endpoint.url == "http://10.0.0.7:8000/v1"


def test_the_template_of_the_reference_makes_a_row() -> None:
    names: dict[str, Any] = {}
    exec(compile(python_of("reference/plugins.md")[1], "plugins.md", "exec", dont_inherit=True), names)
    made = names["config"].row({"address": "10.0.0.7", "label.model": "m"})
    assert made == EndpointSpec(endpoint_id="pool", model="m", url="http://10.0.0.7:8000/v1")


def test_every_hook_and_scorer_is_in_the_reference() -> None:
    import scavenge.plugin

    plugins, scorers = ((DOCS / f"reference/{page}.md").read_text() for page in ("plugins", "scorers"))
    for name in scavenge.plugin.__all__:
        assert not name.startswith("scavenge_") or f"| `{name}` | `() -> Sequence[" in plugins
    (own,) = load_plugins({}, entry_points=()).plugins
    for name in (name for kind, name in own.adds if kind == "scorer"):
        assert f"| `{name}` |" in scorers
