"""What results depend on where an environment says so late: once a worker has loaded it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scavenge.app.resume import RunIdentity
from scavenge.edge.run_folder import RunFolder, open_run_folder
from scavenge.errors import ConfigError
from scavenge.types import EndpointId

POOLS = {"late": EndpointId("pool")}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "config.toml").touch()
    with open_run_folder(tmp_path) as folder:
        yield folder


def part(folder: RunFolder, told: dict[str, object] | None, *, hosted: bool = True) -> None:
    """One part of a run whose environment says *told* in a worker; ``None``: it is killed before one is ready."""
    here = {} if hosted or told is None else {"data": "told", **{f"data.{key}": value for key, value in told.items()}}
    identity = RunIdentity(folder, POOLS, {"late": {"env_id": "mine:Env", **here}}, ["late"] if hosted else [])
    identity.take_over()
    identity.keep()
    if hosted and told is not None:
        identity.learn_environment("late", told)
        identity.keep()


@pytest.mark.parametrize("told", [{}, {"digest": "one"}])
def test_a_later_part_that_hears_the_same_goes_on(folder, told):
    part(folder, told)
    part(folder, told)


@pytest.mark.parametrize(("before", "now"), [({"digest": "one"}, {"digest": "two"}), ({}, {"digest": "one"})])
@pytest.mark.parametrize("hosted", [True, False])
def test_a_later_part_that_hears_something_else_is_refused_by_its_key(folder, before, now, hosted):
    part(folder, before)
    with pytest.raises(ConfigError, match=r"eval 'late': data.digest: the results in the run folder were made with"):
        part(folder, now, hosted=hosted)


@pytest.mark.parametrize("hosted", [True, False])
def test_a_part_that_was_killed_before_it_heard_anything_refuses_nothing(folder, hosted):
    part(folder, None)
    part(folder, {"digest": "one"}, hosted=hosted)


def test_what_was_heard_outlives_a_part_that_heard_nothing(folder):
    part(folder, {"digest": "one"})
    part(folder, None)
    with pytest.raises(ConfigError):
        part(folder, {"digest": "two"})
