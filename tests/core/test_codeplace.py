from __future__ import annotations

import pytest

from scavenge.core.codeplace import code_place


@pytest.mark.parametrize(
    ("path", "module", "place"),
    [
        ("/home/ann/venv/site-packages/scavenge/runtime/pool.py", "scavenge.runtime.pool", "scavenge/runtime/pool.py"),
        ("/home/ann/venv/site-packages/trio/__init__.py", "trio", "trio/__init__.py"),
        ("/home/ann/project/envs.py", "envs", "envs.py"),
        ("/home/ann/project/main.py", "__main__", "main.py"),
        ("/home/ann/project/odd.py", "package.of.another.name", "odd.py"),
        ("/home/ann/project/odd.py", "", "odd.py"),
        ("<string>", "scavenge.core", "<string>"),
        ("<frozen importlib._bootstrap>", "importlib._bootstrap", "<frozen importlib._bootstrap>"),
    ],
)
def test_a_place_in_code_is_told_from_its_package_on_and_never_by_its_whole_path(path, module, place):
    assert code_place(path, module, 7, "run") == f"{place}:7 run"
