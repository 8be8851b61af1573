"""Which environments are played in workers, which of them are made in this process, and what a worker makes itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import hosted_kinds
import pytest

from scavenge.config import structure_arguments, structure_plugin
from scavenge.environments.loader import EnvironmentLoader, Staged
from scavenge.errors import ConfigError, Problem
from scavenge.plugin import Environment, EnvironmentType, Example, ModelSession, Rollout, hookimpl, rest
from scavenge.plugins.manager import load_plugins


@attrs.frozen
class Config:
    options: Mapping[str, Any] = rest()


class Given(Environment):
    def __init__(self, config: Config) -> None:
        if "odd" in config.options:
            raise ConfigError([Problem("odd", "is odd")])
        hosted_kinds.made.append(config)

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


def given(name: str = "given", **attributes: object) -> EnvironmentType:
    return EnvironmentType(name, Config, type("Kind", (Given,), attributes))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    hosted_kinds.made.clear()
    yield tmp_path
    hosted_kinds.made.clear()


def loader(folder: Path, *kinds: EnvironmentType) -> EnvironmentLoader:
    registry = load_plugins({}, entry_points=(), plugins={"mine": Plugin(*kinds)})
    return EnvironmentLoader(registry, structure_plugin, structure_arguments, folder)


def load(
    folder: Path, env_id: str, in_worker: bool | None = None, *, workers: bool = True, **env_args: object
) -> Staged:
    kinds = (given(), given("asking", in_worker=True), given("looping", backend="asyncio"))
    where = "eval.toml: eval[0]"
    return loader(folder, *kinds).load(env_id, env_args, where=where, in_worker=in_worker, workers=workers)


# --- where it is played

HERE = "here"
HOSTED_UNMADE = "in workers, and not made here"
HOSTED_MADE = "in workers, and dropped here"


@pytest.mark.parametrize(
    ("env_id", "keys", "outcome"),
    [
        ("hosted_kinds:Here", {}, HERE),
        ("hosted_kinds:Here", {"in_worker": False}, HERE),
        ("hosted_kinds:Here", {"in_worker": True}, HOSTED_UNMADE),
        ("hosted_kinds:Here", {"workers": False}, HERE),
        ("hosted_kinds:Asking", {}, HOSTED_UNMADE),
        ("hosted_kinds:Asking", {"in_worker": False}, HERE),
        ("hosted_kinds:Asking", {"workers": False}, HERE),
        ("hosted_kinds:Asking", {"in_worker": False, "workers": False}, HERE),
        ("hosted_kinds:Loops", {}, HOSTED_UNMADE),
        ("hosted_kinds:Loops", {"in_worker": True}, HOSTED_UNMADE),
        ("hosted_kinds:Blocks", {}, HOSTED_UNMADE),
        ("hosted_kinds:BlocksAtBothEnds", {}, HOSTED_UNMADE),
        ("hosted_kinds:Wrapped", {}, HOSTED_UNMADE),
        ("hosted_kinds:Ducks", {}, HOSTED_UNMADE),
        ("hosted_kinds:Deciding", {}, HERE),
        ("hosted_kinds:Deciding", {"count": 2}, HOSTED_MADE),
        ("hosted_kinds:ByProperty", {}, HERE),
        ("hosted_kinds:ByProperty", {"count": 2}, HOSTED_MADE),
        ("hosted_kinds:ByProperty", {"count": 2, "in_worker": True}, HOSTED_UNMADE),
        ("hosted_kinds:Maker", {}, HOSTED_MADE),
        ("hosted_kinds:Maker", {"in_worker": True}, HOSTED_UNMADE),
        ("hosted_kinds:make", {"count": 1}, HERE),
        ("hosted_kinds:make", {"count": 1, "in_worker": True}, HOSTED_UNMADE),
        ("hosted_kinds:make_loops", {}, HOSTED_MADE),
        ("given", {}, HERE),
        ("given", {"in_worker": True}, HOSTED_MADE),
        ("asking", {}, HOSTED_MADE),
        ("asking", {"in_worker": False}, HERE),
        ("asking", {"workers": False}, HERE),
        ("looping", {}, HOSTED_MADE),
    ],
)
def test_where_an_environment_is_played_and_whether_it_is_made_here(
    folder: Path, env_id: str, keys: dict[str, Any], outcome: str
) -> None:
    staged = load(folder, env_id, **keys)
    assert staged.hosted == (outcome != HERE)
    assert len(hosted_kinds.made) == (outcome != HOSTED_UNMADE)


ONLY = "and is played in worker processes only"


@pytest.mark.parametrize(
    ("env_id", "keys", "error"),
    [
        (
            "hosted_kinds:Loops",
            {"in_worker": False},
            f'eval[0].in_worker: is false, but the environment has backend = "asyncio" {ONLY}; leave in_worker',
        ),
        (
            "hosted_kinds:Blocks",
            {"in_worker": False, "workers": False},
            'in_worker: is false, but the environment has backend = "sync"',
        ),
        ("looping", {"in_worker": False}, 'in_worker: is false, but the environment has backend = "asyncio"'),
        (
            "hosted_kinds:Blocks",
            {"workers": False},
            f'eval[0].env_id: the environment has backend = "sync" {ONLY}, but [workers] has enabled = false; set it',
        ),
        (
            "hosted_kinds:make_loops",
            {"workers": False},
            f'backend = "asyncio" {ONLY}, but [workers] has enabled = false',
        ),
        ("looping", {"workers": False}, f'backend = "asyncio" {ONLY}, but [workers] has enabled = false'),
        (
            "hosted_kinds:Here",
            {"in_worker": True, "workers": False},
            "eval[0].in_worker: is true, but [workers] has enabled = false; change one of the two",
        ),
        ("given", {"in_worker": True, "workers": False}, "eval[0].in_worker: is true, but [workers] has enabled"),
    ],
)
def test_wishes_that_no_place_fulfils_are_refused(folder: Path, env_id: str, keys: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, env_id, **keys)
    assert error in str(caught.value)


# --- what is wrong with it


@pytest.mark.parametrize(
    ("env_id", "keys", "error"),
    [
        ("hosted_kinds:Loops", {"counts": 1}, 'env_args.counts: unknown key; did you mean "count"?'),
        ("hosted_kinds:Loops", {"count": "1"}, "env_args.count: expected an integer"),
        ("hosted_kinds:make", {"in_worker": True}, "env_args.count: this key is required"),
        ("hosted_kinds:make_late", {"in_worker": True}, "env_id: hosted_kinds:make_late is a coroutine function"),
        ("hosted_kinds:make_wrapped", {}, "env_id: hosted_kinds:make_wrapped is a coroutine function"),
        ("hosted_kinds:make_exit", {}, 'env_args: "hosted_kinds:make_exit" cannot be made: SystemExit: 3'),
        ("hosted_kinds:Endless", {}, "eval[0].env_id: hosted_kinds:Endless lacks close; subclass scavenge.Environment"),
        (
            "hosted_kinds:LoopsPlainly",
            {},
            'env_id: LoopsPlainly: play must be an async function with backend = "asyncio"; write `async def play',
        ),
        (
            "hosted_kinds:LoopsClosing",
            {},
            'LoopsClosing: close must be an async function with backend = "asyncio"; write `async def close(self)`',
        ),
        (
            "hosted_kinds:BlocksAwaiting",
            {},
            'BlocksAwaiting: play must be a plain function with backend = "sync"; write `def play(',
        ),
        ("hosted_kinds:BlocksYielding", {}, "BlocksYielding: play must be a plain function"),
        ("hosted_kinds:BlocksWithoutOpening", {}, "BlocksWithoutOpening: open must be a plain function"),
        ("hosted_kinds:Listed", {}, "Listed: examples must be a plain function, `def examples(self)`"),
        ("hosted_kinds:BlocksOpening", {}, "BlocksOpening: open must be a plain function"),
        (
            "hosted_kinds:BlocksPlayless",
            {},
            "BlocksPlayless has no play of its own; give it `def play(self, example, model)`",
        ),
        ("hosted_kinds:LoopsRowless", {}, "LoopsRowless has no examples of its own; give it `def examples(self)`"),
        ("given", {"in_worker": True, "odd": 1}, "eval[0].env_args.odd: is odd"),
    ],
)
def test_what_workers_could_not_play_is_told_before_one_is_started(
    folder: Path, env_id: str, keys: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, env_id, **keys)
    assert error in str(caught.value)
    assert hosted_kinds.made == []


# --- what a worker makes


@pytest.mark.parametrize(
    "env_id",
    ["hosted_kinds:Here", "hosted_kinds:Loops", "hosted_kinds:Blocks", "hosted_kinds:Maker", "hosted_kinds:make_loops"],
)
def test_a_worker_makes_whatever_is_named(folder: Path, env_id: str) -> None:
    environment = loader(folder).load_hosted(env_id, {"count": 3}, where="eval.toml: eval[0]")
    assert vars(environment)["count"] == 3
    assert len(hosted_kinds.made) == 1


def test_a_worker_makes_what_a_plugin_registers(folder: Path) -> None:
    kind = given("looping", backend="asyncio")
    environment = loader(folder, kind).load_hosted("looping", {"split": "x"}, where="eval.toml: eval[0]")
    assert environment.backend == "asyncio"
    assert hosted_kinds.made == [Config({"split": "x"})]


@pytest.mark.parametrize(
    ("env_id", "count", "error"),
    [
        (
            "hosted_kinds:Loops",
            -1,
            'eval[0].env_args: "hosted_kinds:Loops" cannot be made: ValueError: count below nothing (hosted_kinds.py',
        ),
        ("hosted_kinds:BlocksOpening", 1, "eval[0].env_id: BlocksOpening: open must be a plain function"),
    ],
)
def test_a_worker_checks_all_that_could_not_be_checked_before(
    folder: Path, env_id: str, count: int, error: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loader(folder).load_hosted(env_id, {"count": count}, where="eval.toml: eval[0]")
    assert error in str(caught.value)
