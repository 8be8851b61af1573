"""Which installed packages are environments, told from their files: nothing is imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import scavenge_verifiers
from scavenge_verifiers.installed import Kind, installed_environments, needs_verifiers
from verifiers_kit import needs_classic

from scavenge import ConfigError


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(site: Path, name: str, files: dict[str, str], requires: str = "verifiers>=0.1") -> None:
    """Put a distribution there."""
    info = site / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\nRequires-Dist: {requires}\n")
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    importlib.invalidate_caches()


def kind_of(name: str) -> Kind | None:
    return next((one.kind for one in installed_environments() if one.name == name), None)


def test_each_is_an_environment_that_any_owner_may_name():
    kinds = {kind.name: kind for kind in scavenge_verifiers.scavenge_environments()}
    assert {"plus-one", "plus-one-tasks", "rg-arithmetic"} <= kinds.keys()
    assert "scavenge-verifiers" not in kinds
    assert all(kind.with_owner for kind in kinds.values())
    assert (kind_of("plus-one"), kind_of("plus-one-tasks")) == (Kind.FUNCTION, Kind.TASKSET)


def test_none_is_imported_nor_is_verifiers(site):
    install(site, "bomb-env", {"bomb_env.py": "raise SystemExit\ndef load_environment(): ..."})
    before = set(sys.modules)
    assert kind_of("bomb-env") is Kind.FUNCTION
    assert not {name for name in set(sys.modules) - before if name.partition(".")[0] in ("verifiers", "bomb_env")}


@pytest.mark.parametrize(
    ("requirement", "needed"),
    [
        ("verifiers", True),
        ("verifiers>=0.1.9", True),
        ("verifiers[e2b] (>=0.3)", True),
        ("verifiers ; extra == 'prime'", True),
        ("verifiers-monitor", False),
        ("verifiers_tools", False),
        ("koan-verifiers", False),
    ],
)
def test_a_package_counts_by_what_it_requires(requirement, needed):
    assert needs_verifiers(f"Name: x\nRequires-Dist: {requirement}\n") is needed


def test_what_stands_in_a_description_does_not_count():
    assert not needs_verifiers("Name: x\nVersion: 1\n\nRequires-Dist: verifiers\n")


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"math_env.py": "def load_environment(**kw): ..."}, Kind.FUNCTION),
        (
            {"math_env/__init__.py": "from .main import load_environment", "math_env/main.py": "load_environment = 1"},
            Kind.FUNCTION,
        ),
        ({"math_env/__init__.py": "from other import load_environment"}, Kind.FUNCTION),
        ({"math_env.py": "try:\n    import x\nexcept ImportError:\n    def load_environment(): ..."}, Kind.FUNCTION),
        ({"math_env.py": "class A(vf.Taskset[T, C]): ...\n__all__ = ['A']"}, Kind.TASKSET),
        ({"math_env.py": "class A(vf.Env[C]): ...\n__all__ = ('A',)"}, Kind.TASKSET),
        ({"math_env.py": "from other import MathTaskset\n__all__ = ['MathTaskset']"}, Kind.TASKSET),
        (
            {
                "math_env/__init__.py": "from math_env.tasks import A\n__all__ = ['A']",
                "math_env/tasks/__init__.py": "from ..core import B as A",
                "math_env/core.py": "class B(Taskset[T]): ...",
            },
            Kind.TASKSET,
        ),
        (
            {"math_env.py": "class A(vf.SingleTurnEnv): ...\ndef load_environment(): ...\n__all__ = ['A']"},
            Kind.FUNCTION,
        ),
        ({"math_env.py": "class A(vf.Taskset): ...\ndef load_environment(): ...\n__all__ = ['A']"}, Kind.TASKSET),
        ({"math_env.py": "class A(vf.Taskset): ..."}, None),
        ({"math_env.py": "def helper(): ...\n__all__ = ['helper']"}, None),
        ({"math_env/__init__.py": "from .a import x\n__all__ = ['x']", "math_env/a.py": "from . import x"}, None),
        ({"math_env.py": "def load_environment(:"}, Kind.UNREADABLE),
        ({"something_else.py": "def load_environment(): ..."}, None),
        ({"math_env/readme.txt": "a folder without a module"}, None),
    ],
)
def test_the_kind_is_told_from_the_source(site, files, kind):
    install(site, "math-env", files)
    assert kind_of("math-env") is kind


def test_a_name_is_taken_in_its_normal_form(site):
    install(site, "Math_Env.v2", {"math_env_v2.py": "def load_environment(): ..."})
    assert kind_of("math-env-v2") is Kind.FUNCTION


def test_metadata_that_cannot_be_read_costs_its_package_only(site):
    install(site, "good-env", {"good_env.py": "def load_environment(): ..."})
    broken = site / "broken-1.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_bytes(b"Name: \xff\xfe\nRequires-Dist: verifiers\n")
    assert kind_of("good-env") is Kind.FUNCTION


def created(name: str, **arguments: object) -> object:
    kind = next(kind for kind in scavenge_verifiers.scavenge_environments() if kind.name == name)
    return kind.create(kind.config(arguments))


def test_a_broken_source_is_told_of_when_the_environment_is_asked_for(site):
    install(site, "bad-env", {"bad_env.py": "def load_environment(:"})
    with pytest.raises(ValueError, match=r"bad-env 1\.2 is broken: .*bad_env\.py cannot be read: invalid syntax"):
        created("bad-env")


@needs_classic
def test_arguments_are_checked_against_the_source():
    with pytest.raises(ConfigError) as caught:
        created("plus-one", count="3", score="best")
    assert [str(problem) for problem in caught.value.problems] == [
        "count: expected int, got str '3'",
        "score: expected 'correct' or 'fussy' or 'judged' or 'compared', got str 'best'",
    ]


def test_an_api_that_the_installed_verifiers_lacks_is_named_with_the_remedy(site, monkeypatch):
    install(site, "verifiers", {"verifiers/__init__.py": ""}, requires="x")
    monkeypatch.delitem(sys.modules, "verifiers", raising=False)
    with pytest.raises(
        ValueError, match=r'classic API, which verifiers 1\.2 lacks; pip install "verifiers>=0\.3\.1,<0\.4"'
    ):
        created("plus-one")
    with pytest.raises(ValueError, match=r"written for verifiers\.v1, which verifiers 1\.2 lacks; pip install"):
        created("plus-one-tasks")
