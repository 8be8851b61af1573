"""From env_id and env_args to an environment, or to what is wrong with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from canned import CannedModel

from scavenge.config import structure_arguments, structure_plugin
from scavenge.environments.loader import EnvironmentLoader
from scavenge.environments.references import importable
from scavenge.errors import ConfigError, PluginError, Problem, SourceError, UsageError
from scavenge.plugin import Environment, EnvironmentType, Example, Rollout, hookimpl
from scavenge.plugins.manager import load_plugins
from scavenge.runtime.ports import ModelSession

PLUS_ONE = """
import scavenge.plugin as scavenge

class PlusOne(scavenge.Environment):
    def __init__(self, count: int = 10) -> None:
        if count < 0:
            raise RuntimeError("count below nothing")
        self.count = count

    def examples(self):
        for i in range(self.count):
            yield scavenge.Example(id=str(i), data={"question": f"What is {i} + 1?", "answer": str(i + 1)})

    async def play(self, example, model):
        reply = await model.chat([{"role": "user", "content": example.data["question"]}])
        return scavenge.Rollout(completion=reply.text, reward=float(reply.text == example.data["answer"]))

class Odd(PlusOne):
    backend = "threads"

class Unsure(PlusOne):
    in_worker = "no"

class Counted(PlusOne):
    multi_turn = 2

class Raising(PlusOne):
    @property
    def backend(self):
        raise RuntimeError("not yet")

class Playless(scavenge.Environment):
    def examples(self):
        return []

class Rowless(scavenge.Environment):
    async def play(self, example, model):
        return None

class Plain(PlusOne):
    def play(self, example, model):
        return None

class PlainOpen(PlusOne):
    def open(self):
        pass

class Late(PlusOne):
    async def examples(self):
        yield 1

def make(count: int):
    return PlusOne(count)

def broken():
    return object()

async def late():
    return PlusOne(1)

def remote():
    raise scavenge.SourceError("the data are elsewhere")

NUMBER = 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "mine.py").write_text(PLUS_ONE)
    (tmp_path / "raising.py").write_text("raise RuntimeError('at import')\n")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "needing.py").write_text("import a_package_that_nobody_has\n")
    before = set(sys.modules)
    with importable(tmp_path):
        yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@attrs.frozen
class Config:
    count: int = 1
    path: Path = Path()


class Given(Environment):
    def __init__(self, config: Config) -> None:
        self.config = config

    def examples(self) -> list[Example]:
        return []

    async def play(self, example: Example, model: ModelSession) -> Rollout:
        raise NotImplementedError


class Plugin:
    @hookimpl
    def scavenge_environments(self) -> list[EnvironmentType]:
        def raising(error: BaseException) -> EnvironmentType:
            def create(config: Config) -> Environment:
                raise error

            return EnvironmentType(type(error).__name__, Config, create)

        return [
            EnvironmentType("org/given", Config, Given),
            raising(RuntimeError("no\nluck")),
            raising(ValueError("count is odd")),
            raising(ConfigError([Problem("count", "odd"), Problem("path", "long")])),
            raising(UsageError("not like this")),
            raising(SystemExit(3)),
        ]


def load(folder: Path, env_id: str, **env_args: object) -> Environment:
    registry = load_plugins({}, entry_points=(), plugins={"mine": Plugin(), "bad": object()})
    loader = EnvironmentLoader(registry, structure_plugin, structure_arguments, folder)
    staged = loader.load(env_id, env_args, where="eval.toml: eval[0]")
    assert staged.environment is not None
    return staged.environment


async def test_a_class_beside_the_evaluation_file_is_an_environment(folder: Path) -> None:
    environment = load(folder, "mine:PlusOne", count=3)
    one, *rest = environment.examples()
    assert len(rest) == 2
    assert (await environment.play(one, CannedModel("1"))).reward == 1.0
    assert (await environment.play(one, CannedModel("2"))).reward == 0.0


def test_a_function_may_make_the_environment(folder: Path) -> None:
    assert len(list(load(folder, "mine:make", count=2).examples())) == 2


def test_a_registered_environment_gets_its_checked_configuration(folder: Path) -> None:
    environment = load(folder, "org/given", count=4, path="a/b")
    assert isinstance(environment, Given)
    assert environment.config == Config(4, folder / "a" / "b")


@pytest.mark.parametrize(
    ("env_id", "env_args", "error"),
    [
        ("mine:PlusTwo", {}, 'eval[0].env_id: there is no "PlusTwo" in '),
        ("mine:PlusTwo", {}, 'did you mean "PlusOne"?'),
        ("mine:PlusOne.count", {}, 'there is no "count"'),
        ("mine:", {}, 'expected "package.module:name", got "mine:"'),
        ("a/b:c", {}, 'expected "package.module:name"'),
        ("nowhere:X", {}, 'eval[0].env_id: no module "nowhere": neither installed nor beside the evaluation file'),
        ("nowhere.sub:X", {}, 'no module "nowhere"'),
        ("mine.sub:X", {}, 'no module "mine.sub"'),
        ("needing:X", {}, 'the module "needing" needs "a_package_that_nobody_has", which is not installed'),
        ("raising:X", {}, 'the module "raising" cannot be imported: RuntimeError: at import (raising.py, line 1)'),
        ("leaving:X", {}, 'the module "leaving" cannot be imported: SystemExit: 3'),
        ("mine:NUMBER", {}, '"mine:NUMBER" is no class and no function'),
        ("mine:PlusOne", {"counts": 1}, "eval[0].env_args"),
        ("mine:PlusOne", {"count": "1"}, "eval[0].env_args.count"),
        (
            "mine:PlusOne",
            {"count": -1},
            'env_args: "mine:PlusOne" cannot be made: RuntimeError: count below nothing (mine.py, line 7)',
        ),
        ("mine:make", {}, "eval[0].env_args"),
        ("mine:broken", {}, "mine:broken made object, which lacks examples; subclass scavenge.Environment"),
        ("mine:late", {}, "mine:late is a coroutine function"),
        (
            "mine:Plain",
            {},
            'Plain: play must be an async function with backend = "trio"; write `async def play(self, example, model)',
        ),
        (
            "mine:PlainOpen",
            {},
            'PlainOpen: open must be an async function with backend = "trio"; write `async def open',
        ),
        ("mine:Late", {}, "Late: examples must be a plain function, `def examples(self)`; it may block"),
        (
            "mine:Playless",
            {},
            "eval[0].env_id: Playless has no play of its own; give it `async def play(self, example, model)`",
        ),
        ("mine:Rowless", {}, "eval[0].env_id: Rowless has no examples of its own; give it `def examples(self)`"),
        ("mine:Odd", {}, 'backend is "threads", must be one of "trio", "asyncio", "sync"'),
        ("mine:Unsure", {}, 'eval[0].env_id: in_worker of Unsure is "no", must be True or False'),
        ("mine:Counted", {}, "eval[0].env_id: multi_turn of Counted is 2, must be True or False"),
        (
            "mine:Raising",
            {},
            "mine:Raising made Raising, whose backend cannot be read: RuntimeError: not yet (mine.py, ",
        ),
        ("org/given", {"count": "1"}, "eval[0].env_args.count: expected an integer"),
        ("ValueError", {}, "eval.toml: eval[0].env_args: count is odd"),
        ("ConfigError", {}, "eval.toml: eval[0].env_args.count: odd\neval.toml: eval[0].env_args.path: long"),
    ],
)
def test_what_cannot_be_loaded_is_named_with_its_key(
    folder: Path, env_id: str, env_args: dict[str, object], error: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, env_id, **env_args)
    assert error in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_environment_of_no_plugin_names_the_package_that_was_looked_for(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, "primeintellect/math-env")
    message = str(caught.value)
    assert message.startswith('eval.toml: eval[0].env_id: unknown environment "primeintellect/math-env": the package')
    assert '"math-env" that would register it is not installed' in message
    assert "package.module:factory" in message
    assert "plugins not loaded: bad: implements no hook" in message


def test_a_package_that_is_installed_without_the_environment_is_told_from_one_that_is_not(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r'the package "attrs" \S+ is installed but does not register it'):
        load(folder, "org/attrs")
    with pytest.raises(ConfigError, match='the package "" that would register it is not installed'):
        load(folder, "org/")


def test_a_plugin_that_fails_to_make_its_environment_is_named(folder: Path) -> None:
    made = r'plugin mine: environment "RuntimeError" cannot be made: RuntimeError: no luck'
    with pytest.raises(PluginError, match=rf"{made} \(test_loader\.py, line \d+\)$"):
        load(folder, "RuntimeError")
    with pytest.raises(UsageError, match="not like this"):
        load(folder, "UsageError")
    with pytest.raises(PluginError, match='environment "SystemExit" cannot be made: SystemExit: 3'):
        load(folder, "SystemExit")


def test_an_error_that_a_factory_raises_on_purpose_stays_what_it_is(folder: Path) -> None:
    with pytest.raises(SourceError, match="the data are elsewhere"):
        load(folder, "mine:remote")


async def test_what_the_base_class_only_names_says_so() -> None:
    class Bare(Environment):
        pass

    with pytest.raises(NotImplementedError, match="Bare has no examples of its own"):
        Bare().examples()
    with pytest.raises(NotImplementedError, match="Bare has no play of its own"):
        await Bare().play(Example("1", {}), CannedModel())
