"""The reference pages name every key, default, event, error and rule that the code has, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest
import tomli
from pages import keyed, read, section, words

import scavenge.errors
import scavenge.events
import scavenge.plugin
import scavenge.types
import test_layers
from scavenge.config.assemble import RUN_KEYS
from scavenge.config.endpoint_rows import EndpointRow
from scavenge.config.schema import (
    EvalSettings,
    GatewaySettings,
    ImageSettings,
    RunSettings,
    SourceSettings,
    WorkerSettings,
)
from scavenge.core.health_settings import HealthSettings
from scavenge.core.health_state import State
from scavenge.core.plan import OrderSettings
from scavenge.environments.chat import ChatSettings
from scavenge.plugins.builtin import BuiltinPlugin
from scavenge.types import ApiType, Outcome, RequestFailed

FILE = read("reference/evaluation-file.md")
BY_OTHERS = {"name": "file's name", "output_dir": '`"runs"`', "base_dir": "file's folder"}
"""Defaults of the run that follow from the evaluation file's place."""


def defaults(cls: type) -> dict[str, object]:
    """Each field of an attrs class with its default; ``attrs.NOTHING`` where it is required."""
    found = {}
    for field in attrs.fields(cls):
        default: object = field.default
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # a class at run time
            default = None if default.takes_self else default.factory()
        default = list(default) if isinstance(default, tuple) else default
        found[field.name] = default.value if isinstance(default, ApiType) else default
    return found


def shown(cell: str) -> object:
    """The default that a cell tells."""
    match cell:
        case "required":
            return attrs.NOTHING
        case "–":
            return None
        case _:
            (value,) = words(cell)
            return tomli.loads(f"value = {value}")["value"]


def documented(table: Mapping[str, list[str]], column: int = 0) -> dict[str, object]:
    return {key: shown(cells[column]) for key, cells in table.items()}


def test_every_key_of_a_run_is_there_with_its_default():
    table = keyed(section(FILE, "The run"))
    assert table.keys() == {*RUN_KEYS, "endpoints_path"}
    told = {key: cells[0] for key, cells in table.items()}
    assert {key: told.pop(key) for key in BY_OTHERS} == BY_OTHERS
    assert told.pop("endpoints_path") == "–"
    actual = defaults(RunSettings)
    assert {key: shown(cell) for key, cell in told.items()} == {key: actual[key] for key in told}


def test_every_key_of_an_eval_is_there_with_its_default():
    table = keyed(section(FILE, "`[[eval]]`").partition("What `env_args`")[0])
    assert table.pop("name")[0] == "`env_id`"
    actual = defaults(EvalSettings)
    del actual["name"]
    assert documented(table) == actual


def test_every_argument_of_chat_is_there_with_its_default():
    table = keyed(section(FILE, "`[[eval]]`").partition("What `env_args`")[2])
    assert documented(table) == defaults(ChatSettings)


@pytest.mark.parametrize(
    ("head", "cls"),
    [
        ("`[order]`", OrderSettings),
        ("`[health]`", HealthSettings),
        ("`[workers]`", WorkerSettings),
        ("`[images]`", ImageSettings),
        ("`[gateway]`", GatewaySettings),
    ],
)
def test_every_key_of_a_plain_table_is_there_with_its_default(head, cls):
    assert documented(keyed(section(FILE, head))) == defaults(cls)


def test_the_key_of_a_source_is_told():
    (source,) = keyed(section(FILE, "`[[source]]`").partition("\n### ")[0])
    assert source in defaults(SourceSettings)


def test_every_built_in_source_is_there_and_every_key_of_those_in_text_with_its_default():
    head, *parts = section(FILE, "`[[source]]`").split("\n### ")
    kinds = {kind.name: kind.config for kind in BuiltinPlugin(pytest.fail).scavenge_endpoint_sources()}
    assert set(words(keyed(head)["type"][1])) == kinds.keys()
    told = {part.splitlines()[0].strip("`"): documented(keyed(part)) for part in parts}
    assert told.keys() == kinds.keys() - {"simulated"}
    for name, table in told.items():
        actual = {key: str(value) if isinstance(value, Path) else value for key, value in defaults(kinds[name]).items()}
        assert table == actual, name


def test_every_built_in_image_store_is_there_and_every_key_with_its_default():
    head, *parts = section(FILE, "`[[images.store]]`").split("\n### ")
    kinds = {kind.name: kind.config for kind in BuiltinPlugin(pytest.fail).scavenge_image_stores()}
    assert set(words(keyed(head)["type"][1])) == kinds.keys()
    told = {part.splitlines()[0].strip("`"): documented(keyed(part)) for part in parts}
    assert told == {name: defaults(config) for name, config in kinds.items()}


def test_every_hook_is_there_with_its_signature():
    hooks = {name: hook for name, hook in vars(scavenge.plugin).items() if hasattr(hook, "scavenge_spec")}
    told = {name: cells[0] for name, cells in keyed(section(read("reference/plugins.md"), "Hooks")).items()}
    assert told == {name: f"`() -> {hook.__annotations__['return']}`" for name, hook in hooks.items()}


def test_every_key_of_an_endpoint_is_there_with_its_alias_and_default():
    table = keyed(read("reference/endpoints-file.md"))
    assert documented(table, 1) == defaults(EndpointRow)
    aliases = {field.name: field.metadata.get("alias", "–") for field in attrs.fields(EndpointRow)}
    assert {key: cells[0].strip("`") for key, cells in table.items()} == aliases


def test_every_event_is_there_with_its_keys():
    kinds = [getattr(scavenge.events, name) for name in scavenge.events.Event.split(" | ")]
    actual = {kind.__name__: [field.name for field in attrs.fields(kind)] for kind in kinds}
    assert {name: words(cells[0]) for name, cells in keyed(read("reference/events.md")).items()} == actual


def test_every_error_is_there_with_its_exit_code():
    table = keyed(read("reference/errors.md"))
    found = [one for one in vars(scavenge.errors).values() if isinstance(one, type)]
    errors = [one for one in found if issubclass(one, scavenge.errors.ScavengeError)] + [RequestFailed]
    codes = {one.__name__: str(one.exit_code) for one in errors}
    codes["Interrupted"] = "128 + n"
    assert {name: cells[0] for name, cells in table.items()} == codes


def test_every_outcome_and_every_state_of_health_is_there():
    outcomes = [getattr(scavenge.types, name).name for name in Outcome.split(" | ")]
    assert keyed(read("reference/outcomes.md")).keys() == set(outcomes)
    assert keyed(read("explanation/health.md")).keys() == {state.value for state in State}


def test_the_architecture_page_has_the_rule_of_every_room():
    told = {}
    for room, (cell,) in keyed(section(read("explanation/architecture.md"), "Who may import whom")).items():
        told[room] = set(words(cell)) | (test_layers.GROUND if cell.startswith("the ground") else set())
    rules = {room: may_see for room, may_see in test_layers.MAY_SEE.items() if room}
    assert told == rules
    assert test_layers.MAY_SEE[""] == {
        "errors",
        "types",
        "listings",
        "rollouts",
        "signals",
        "status",
        "plugin",
        "app",
        "runtime.ports",
    }


def test_the_architecture_page_names_every_module_of_the_core_and_the_runtime():
    told = read("explanation/architecture.md").partition("\n## ")[0].split()
    for room in ("core", "runtime"):
        modules = {path.name for path in (test_layers.SOURCE / room).glob("*.py")} - {"__init__.py"}
        assert modules - set(told) == set()
