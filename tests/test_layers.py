"""Who may import whom: the rings of docs/explanation/architecture.md, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "scavenge"
GROUND = {"errors", "types", "calls", "listings", "rollouts", "status", "signals", "events", "images"}
MAY_SEE: dict[str, set[str]] = {
    "errors": set(),
    "calls": {"types"},
    "types": {"errors"},
    "listings": {"errors", "types"},
    "rollouts": {"types"},
    "status": {"types", "signals"},
    "signals": set(),
    "images": set(),
    "events": {"errors", "types", "rollouts", "status"},
    "core": GROUND | {"core"},
    "runtime": GROUND | {"core", "runtime"},
    "edge": GROUND | {"core", "runtime.ports", "edge"},
    "environments": GROUND | {"core", "runtime.ports", "plugin", "environments"},
    "config": GROUND | {"core", "config"},
    "plugin": GROUND | {"core.doorwords", "core.endpoint_template", "runtime.ports", "runtime.filestore"},
    "plugins": GROUND | {"core", "runtime.ports", "plugin", "plugins", "edge", "environments", "testing"},
    "testing": GROUND | {"core", "runtime.ports", "testing", "config", "plugin"},
    "worker": GROUND | {"core", "runtime.ports", "edge", "environments", "config", "plugin", "plugins", "worker"},
    "app": GROUND | {"core", "runtime", "edge", "environments", "config", "plugin", "plugins", "app"},
    "cli": GROUND | {"app", "config", "cli"},
    "": {"errors", "types", "listings", "rollouts", "signals", "status", "plugin", "app", "runtime.ports"},
    "__main__": {"cli"},
}
NOT_IN_CORE = {"trio", "httpx", "os", "time", "random", "logging", "socket", "subprocess", "threading", "asyncio"}
NOT_IN_CORE |= {"pathlib"}
NOT_IN_RUNTIME = {"httpx", "h11", "os", "socket", "subprocess", "threading", "asyncio", "time", "logging", "pathlib"}


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found.append((".".join(part for part in parts if part != "__init__"), path))
    return found


def imports(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every import in a file, also those inside functions: the module, and the names taken from it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, ()
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield node.module or "", tuple(alias.name for alias in node.names)


def room(module: str) -> str:
    return module.split(".")[0]


def allowed(target: str, may_see: set[str]) -> bool:
    return any(target == seen or target.startswith(f"{seen}.") for seen in may_see)


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name or "scavenge" for name, _ in modules()])
def test_a_module_sees_only_the_rooms_that_it_may(module: str, path: Path):
    may_see = MAY_SEE[room(module)]
    for imported, names in imports(path):
        if room(imported) == "scavenge":
            target = imported.partition(".")[2]
            targets = [target] if target else list(names)
            for one in targets:
                assert allowed(one, may_see), f"{module} imports scavenge.{one}"


@pytest.mark.parametrize(
    ("module", "path"),
    [(name, path) for name, path in modules() if room(name) in ("core", "runtime")],
    ids=[name for name, _ in modules() if room(name) in ("core", "runtime")],
)
def test_core_is_pure_and_runtime_touches_nothing_of_the_world(module: str, path: Path):
    forbidden = NOT_IN_CORE if room(module) == "core" else NOT_IN_RUNTIME
    for imported, names in imports(path):
        taken = {imported.split(".")[0]}
        if imported == "random" and names == ("Random",):
            continue  # the class is handed in, made elsewhere
        assert not taken & forbidden, f"{module} imports {imported}"


def test_every_room_has_a_rule():
    assert {room(name) for name, _ in modules()} <= MAY_SEE.keys()


def test_a_plugin_package_sees_only_what_is_public():
    for path in (SOURCE.parents[1] / "plugins").glob("*/src/**/*.py"):
        for imported, _ in imports(path):
            if room(imported) == "scavenge":
                assert allowed(imported, {"scavenge.plugin", "scavenge.testing"}) or imported == "scavenge", path
