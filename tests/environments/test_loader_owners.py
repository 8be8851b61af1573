"""Environments that are called by their names with an owner before them, and what an unknown one is told."""

from __future__ import annotations

import importlib
from pathlib import Path

import attrs
import pytest

from scavenge.config import structure_arguments, structure_plugin
from scavenge.environments.loader import EnvironmentLoader
from scavenge.errors import ConfigError, PluginError
from scavenge.plugin import Environment, EnvironmentType, Example, ModelSession, Rollout, hookimpl
from scavenge.plugins.manager import load_plugins


@attrs.frozen
class Nothing:
    """A configuration without keys."""


class Named(Environment):
    def __init__(self, name: str) -> None:
        self.name = name

    def examples(self) -> list[Example]:
        return []

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        raise NotImplementedError


class Plugin:
    def __init__(self, *kinds: EnvironmentType) -> None:
        self.kinds = kinds

    @hookimpl
    def scavenge_environments(self) -> list[EnvironmentType]:
        return list(self.kinds)


def given(name: str, *, with_owner: bool = False) -> EnvironmentType:
    return EnvironmentType(name, Nothing, lambda _: Named(name), with_owner=with_owner)


def load(folder: Path, env_id: str, *kinds: EnvironmentType) -> Named:
    registry = load_plugins({}, entry_points=(), plugins={"mine": Plugin(*kinds)})
    loader = EnvironmentLoader(registry, structure_plugin, structure_arguments, folder)
    environment = loader.load(env_id, {}, where="eval.toml: eval[0]").environment
    assert isinstance(environment, Named)
    return environment


def test_any_owner_may_stand_before_a_name_that_says_so(tmp_path: Path) -> None:
    for env_id in ("math-env", "primeintellect/math-env", "Some One/math-env"):
        assert load(tmp_path, env_id, given("math-env", with_owner=True)).name == "math-env"


def test_a_whole_name_goes_before_a_name_with_any_owner(tmp_path: Path) -> None:
    kinds = (given("org/env"), given("env", with_owner=True))
    for env_id, name in (("org/env", "org/env"), ("other/env", "env"), ("env", "env")):
        assert load(tmp_path, env_id, *kinds).name == name


@pytest.mark.parametrize("env_id", ["org/env", "/env", "a/b/env", "org/", "org//env", "env/org"])
def test_other_names_have_no_owner(tmp_path: Path, env_id: str) -> None:
    kinds = (given("env", with_owner=env_id != "org/env"),)
    with pytest.raises(ConfigError, match="unknown environment"):
        load(tmp_path, env_id, *kinds)


def test_a_name_with_an_owner_that_two_plugins_add_stands_for_nothing(tmp_path: Path) -> None:
    plugins = {"one": Plugin(given("env", with_owner=True)), "two": Plugin(given("env", with_owner=True))}
    registry = load_plugins({}, entry_points=(), plugins=plugins)
    for env_id in ("env", "org/env"):
        with pytest.raises(PluginError, match=r'plugin one and two: each adds the environment "env"; turn one off'):
            registry.find_environment(env_id)
    plugins["two"] = Plugin(given("env"))
    registry = load_plugins({}, entry_points=(), plugins=plugins)
    assert registry.environment("org/env").with_owner
    with pytest.raises(PluginError, match="each adds"):
        registry.find_environment("env")


@pytest.mark.parametrize(
    ("env_id", "hint"),
    [
        ("primeintellect/maths-env", 'did you mean "primeintellect/math-env"?'),
        ("primeintellect/unlike", 'valid: "chat", "math-env", "org/given"'),
        ("org/gven", 'did you mean "org/given"?'),
        ("math-evn", 'did you mean "math-env"?'),
    ],
)
def test_an_unknown_name_with_an_owner_is_told_with_the_nearest(tmp_path: Path, env_id: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, env_id, given("math-env", with_owner=True), given("org/given"))
    message = str(caught.value)
    assert hint in message
    assert f'the package "{env_id.rpartition("/")[2]}" that would register it is not installed' in message


def install(folder: Path, name: str, requirement: str = "attrs") -> None:
    info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\nRequires-Dist: {requirement}\n"
    (info / "METADATA").write_text(text)


def test_a_package_of_a_library_with_a_plugin_names_that_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "math-env", "Verifiers>=0.1.5")
    install(tmp_path, "other-env", "verifiers-like")
    state = 'the package "math-env" 1.2 is installed but does not register it'
    with pytest.raises(ConfigError, match=f"{state}; install scavenge-verifiers, which does so"):
        load(tmp_path, "primeintellect/math-env")
    with pytest.raises(ConfigError, match=r'"other-env" 1\.2 is installed but does not register it; valid'):
        load(tmp_path, "primeintellect/other-env")
    install(tmp_path, "scavenge-verifiers")
    importlib.invalidate_caches()
    with pytest.raises(ConfigError, match=f"{state}; valid"):
        load(tmp_path, "primeintellect/math-env")
