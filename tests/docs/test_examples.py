"""The examples in the README and the docs do what the text around them says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tomli
from pages import DOCS, ROOT, blocks, read

from scavenge.app.options import RunOptions
from scavenge.app.parts import resolve
from scavenge.config.endpoint_rows import check_listing
from scavenge.config.load import parse_run
from scavenge.core.listing_text import listing_tables
from scavenge.listings import Listing
from scavenge.testing import SimulatedFleet

README = (ROOT / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "requirements" / "README.md"]
EXAMPLES = [(page, text) for page in PAGES for text in blocks(page.read_text(encoding="utf-8"), "toml")]


def scavenge(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scavenge", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def code_of_the_readme() -> tuple[str, str]:
    """The first two code blocks: what runs the quickstart, and what runs the tests."""
    found = re.findall(r"^```[a-z]*\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return found[0].strip(), found[1].strip()


def test_the_readme_begins_with_two_commands_of_one_line_that_install_what_is_locked():
    for command in code_of_the_readme():
        assert "\n" not in command
        assert "-c requirements/lock.txt" in command


def test_continuous_integration_runs_the_readmes_test_command_as_it_stands():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert lines.count(code_of_the_readme()[1]) == 1
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"    {code_of_the_readme()[1]}\n" in contributing


def test_the_readmes_first_command_ends_with_a_run_that_answers_every_question(tmp_path):
    run = shlex.split(code_of_the_readme()[0].rpartition(" && ")[2])
    assert run[:2] == [".venv/bin/scavenge", "run"]
    done = scavenge(ROOT, *run[1:], "--output-dir", str(tmp_path), "--json", "--no-progress")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert [(one["ok"], one["error"]) for one in summary["evals"]] == [(300, 0)]
    assert len(summary["endpoints"]) == 3
    assert sum(one["failures"].get("lost", 0) for one in summary["endpoints"]) > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize(("page", "text"), EXAMPLES, ids=[f"{page.name}-{i}" for i, (page, _) in enumerate(EXAMPLES)])
def test_every_toml_example_is_a_right_file(page, text):
    document = tomli.loads(text)
    if "endpoint" in document:
        names = {row["key"]: "secret" for row in document["endpoint"] if "key" in row}
        checked = check_listing(Listing(document["endpoint"]), names)
        assert len(checked.endpoints) == len(document["endpoint"])
        assert not checked.bad
    elif "project" not in document:
        parse_run(text.encode(), page.parent, page.name, need_evals="eval" in document)


def test_the_tutorials_files_pass_the_check_before_a_run(tmp_path):
    endpoints, evaluation = blocks(read("tutorial/own-servers.md"), "toml")
    (questions,) = blocks(read("tutorial/own-servers.md"), "json")
    for name, text in (("endpoints.toml", endpoints), ("eval.toml", evaluation), ("questions.jsonl", questions)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    settings = resolve(tmp_path / "eval.toml", RunOptions())
    assert [one.pool_id for one in settings.evals] == ["my-model"]
    assert len(questions.splitlines()) == 3


async def test_the_source_that_a_plugin_author_copies_lists_what_is_in_its_folder(tmp_path):
    (code,) = blocks(read("how-to/write-an-endpoint-source.md"), "python")
    names: dict[str, object] = {}
    exec(compile(code, "scavenge_spool.py", "exec"), names)
    (tmp_path / "one").write_text("http://10.0.0.7:8000/v1\n")
    (kind,) = names["scavenge_endpoint_sources"]()  # type: ignore[operator]  # the example's hook
    async with kind.open(kind.config(folder=tmp_path, model="m")) as source:
        checked = check_listing(await source.list_endpoints(), {})
        assert [one.url for one in checked.endpoints] == ["http://10.0.0.7:8000/v1"]
        (tmp_path / "one").unlink()
        tmp_path.rmdir()
        with pytest.raises(Exception, match="cannot be read"):
            await source.list_endpoints()


def test_the_page_that_an_author_of_listings_copies_is_one():
    (text,) = blocks(read("how-to/endpoints-from-a-url-or-a-program.md"), "json")
    checked = check_listing(Listing(listing_tables(text.encode(), "application/json")), {})
    assert [one.drain_deadline is not None for one in checked.endpoints] == [False, True]
    assert not checked.bad


@pytest.mark.parametrize(
    ("section", "printed"),
    [
        ("## In a test, on a virtual clock", ["ok", "lost", "1"]),
        ("## A random life", ["t=603.76", "join", "ep3", "2626"]),
    ],
)
def test_the_simulated_fleet_prints_what_its_page_says(section, printed):
    text = read("how-to/simulated-fleet.md")
    indented = re.search(r"(?:^    .*\n|^\n)+(?=^prints)", text[text.index(section) :], re.MULTILINE)
    assert indented is not None
    assert SimulatedFleet.__name__ in indented.group()
    code = "\n".join(line[4:] for line in indented.group().splitlines())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == printed, done.stderr
