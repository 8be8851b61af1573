"""The pages on container images say what the code does: outcomes, states, numbers; the environment in them plays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import attrs
import click
import pytest
from pages import blocks, keyed, read, section, table_rows, words

import scavenge.images
from scavenge.cli.images import images as images_group
from scavenge.config.schema import ImageSettings
from scavenge.core.failure import checked_rows
from scavenge.core.image_lines import LOG_EVERY_S
from scavenge.core.images import plan_settings
from scavenge.core.images.reference import canonical, under
from scavenge.core.images_view import ImagesView
from scavenge.core.progress_view import ProgressView
from scavenge.core.report.history import IMAGES_TOLD
from scavenge.core.report.images import MOST_KEPT
from scavenge.events import ImagesChanged, ImageTrouble
from scavenge.runtime import imageline, imagepool, runner
from scavenge.status import DeliveryStatus, ImagesStatus

WHY = " ".join(read("explanation/images.md").split())
HOW_TO = read("how-to/images.md")
HOW = " ".join(HOW_TO.split())
EVENTS = read("reference/events.md")
CLI = section(read("reference/cli.md"), "scavenge images")
COMING = DeliveryStatus("docker.io/library/python:3.12", "docker.io", 540_000_000, 1_200_000_000, 47.0)
WORDS_FOR = {2: "two", 3: "three", 60: "a minute", 120: "two minutes"}


def test_every_outcome_of_a_delivery_is_told_by_the_name_that_its_event_has():
    told = keyed(section(read("explanation/images.md"), "What an answer means")).keys()
    assert told == set(re.findall(r"``([a-z ]+)``", (ImageTrouble.__doc__ or "").partition("retry_s")[0])) - {"outcome"}
    ends = set(scavenge.images.DeliveryEnd.split(" | ")) - {"Delivered"}
    assert {name.title().replace(" ", "") for name in told} == ends
    assert set(words(keyed(EVENTS)["ImageTrouble"][1])) == {*told, "outcome", "retry_s"}


def test_every_state_is_told_as_the_status_tells_it():
    states = set(re.findall(r"``([a-z-]+)``[:;]", ImagesStatus.__doc__ or "")) - {"why"}
    assert len(states) == 5
    assert keyed(section(read("explanation/images.md"), "What is shown")).keys() == states


def test_the_status_is_told_with_all_that_it_has():
    told = words(keyed(EVENTS)["ImagesChanged"][1])[1:]
    fields = [field.name for kind in (ImagesStatus, DeliveryStatus) for field in attrs.fields(kind)]
    assert sorted(told) == sorted(fields)


def test_the_lines_of_the_progress_are_as_shown():
    first, second = [
        line.strip()
        for line in read("explanation/images.md").splitlines()
        if "images 12/50" in line or "none has come" in line
    ]
    view = ImagesView()
    status = ImagesStatus("delivering", 50, 12, 0, 8, (COMING, attrs.evolve(COMING, image="docker.io/a/b:1")))
    view.on_event(ImagesChanged(status), 0.0)
    assert f" | {view.figures()} | " in first
    assert ProgressView(0.0).summary_line(0.0).count(" | ") + 1 == first.count(" | ")
    view.on_event(ImagesChanged(attrs.evolve(status, deliveries=(COMING,))), 5.0)
    assert list(view.notes(48.0)) == [second]


def test_the_numbers_are_those_of_the_code():
    plan, settings = plan_settings, plan_settings.PlanSettings()
    assert f"`workers` images are delivered at once, {ImageSettings().workers} if nothing is said" in WHY
    assert f"at most {plan.LOOK_AHEAD} images are fetched" in WHY
    assert f"Up to {imageline.PARKED_MOST} rollouts of an evaluation" in WHY
    assert f"growing pauses, up to {plan.ENGINE_LONGEST_S:g} seconds" in WHY
    assert f"After {plan.ASSUME_AFTER_S:g} seconds of silence" in WHY
    assert runner.IMAGE_RETRIES == 2
    assert "plays the rollout again, twice at most" in WHY
    assert f"or {plan.SHUT_FIRST_S / 60:g} minutes, and longer each time" in WHY
    assert f"up to {WORDS_FOR[settings.attempts]} tries a round" in WHY
    assert f"waited for `wait_timeout` seconds ({ImageSettings().wait_timeout:g})" in WHY
    whole, stopped = imagepool.RELEASE_WITHIN_S, imagepool.STOPPED_RELEASE_WITHIN_S
    assert f"(in {WORDS_FOR[whole]} at most; in {WORDS_FOR[stopped]} seconds" in WHY
    assert plan.LEAST_TTL_S == 1.0
    assert "more than once a second" in read("reference/evaluation-file.md")
    assert f"written every {LOG_EVERY_S:g} seconds" in " ".join(EVENTS.split())
    report = " ".join(read("how-to/read-a-report.md").split())
    assert f"the {MOST_KEPT} that took longest" in report
    assert IMAGES_TOLD == 10
    assert "the first ten images that no source gave" in report


def test_the_name_at_a_mirror_is_the_one_that_is_told():
    name = canonical("python:3.12")
    assert f"The image `{name}` is asked for as `{under('mirror.example:5000/hub', name)}`" in HOW


def test_names_that_are_told_to_be_one_image_are_one():
    names = re.search(r"with everything said: `([^`]+)`, `([^`]+)` and `([^`]+)` are one image", WHY)
    assert names is not None
    assert {canonical(name) for name in names.groups()} == {names[3]}


# --- the command line


def test_every_command_is_there_with_its_arguments():
    told = {usage.replace("\\|", "|") for usage in re.findall(r"^\| `([a-z][^`]*)` \|", CLI, re.MULTILINE)}
    assert told == {f"{name} {_usage(command)}".strip() for name, command in images_group.commands.items()}


def _usage(command: click.Command) -> str:
    names = [
        argument.make_metavar(click.Context(command))
        for argument in command.params
        if isinstance(argument, click.Argument)
    ]
    return " ".join(name.replace("...", "…") for name in names)


def test_every_option_is_there_with_the_commands_that_have_it():
    told: dict[str, set[str]] = {}
    for option, of, _ in [row for row in table_rows(CLI) if row[0].startswith("`--")]:
        told.setdefault(words(option)[0].split()[0], set()).update(words(of))
    actual: dict[str, set[str]] = {}
    for name, command in images_group.commands.items():
        for option in command.params:
            if isinstance(option, click.Option):
                actual.setdefault(option.opts[0], set()).add(name)
    assert told == actual


# --- the environment that authors copy


@pytest.fixture(scope="module")
def repair() -> Mapping[str, Any]:
    (code,) = blocks(HOW_TO, "python")
    module = ModuleType("repair")
    exec(compile(code, "repair.py", "exec"), module.__dict__)
    return module.__dict__


def test_each_row_of_the_environment_that_authors_copy_has_its_image(repair):
    environment = repair["Repair"]()
    rows = list(checked_rows(environment.examples(), environment))
    assert [row.images for row in rows] == [
        ("docker.io/library/python:3.11",),
        ("docker.io/library/python:3.12",),
    ]
    assert not any(row.error for row in rows)


class Model:
    """Says one thing."""

    async def chat(self, messages: object) -> Any:
        return attrs.make_class("Reply", ["text"])("python --version")


@pytest.mark.parametrize(
    ("script", "reward"),
    [("echo Python 3.12.1", 1.0), ("echo Python 2.7; exit 1", 0.0), ("echo oops >&2; exit 125", 0.0)],
)
async def test_the_environment_that_authors_copy_scores_what_the_container_prints(
    repair, tmp_path, monkeypatch, script, reward
):
    docker(tmp_path, monkeypatch, script)
    environment = repair["Repair"]()
    *_, example = environment.examples()
    assert (await environment.play(example, Model())).reward == reward


async def test_the_environment_that_authors_copy_tells_of_an_image_that_is_gone(repair, tmp_path, monkeypatch):
    docker(
        tmp_path, monkeypatch, 'echo "docker: Error response from daemon: No such image: python:3.12." >&2; exit 125'
    )
    environment = repair["Repair"]()
    *_, example = environment.examples()
    with pytest.raises(scavenge.ImageMissing, match=r"python:3\.12"):
        await environment.play(example, Model())


def docker(folder: Any, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have a program called docker that does this."""
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
