"""The keys: what is refused and with which words, and the command line that follows."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest
from scavenge_slurm.config import SlurmConfig, squeue_command, squeue_environment
from slurm_kit import settings

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "endpoints-from-slurm.md"


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"job_name": None}, "set job_name, comment or both"),
        ({"job_name": " "}, "job_name must not be empty"),
        ({"comment": ""}, "comment must not be empty"),
        ({"user": None, "command": ["ssh", "login1", "squeue"]}, "set user to your name on the cluster"),
        ({"user": "-u"}, "user must be"),
        ({"user": "a;reboot"}, "user must be"),
        ({"user": ""}, "user must be"),
        ({"command": []}, "command must be a program"),
        ({"command": [""]}, "command must be a program"),
        ({"command": ["squeue", "a\0b"]}, "command must be a program"),
        ({"drain_before_s": -1.0}, "drain_before_s must be at least 0 seconds"),
        ({"interval_s": 15.5}, "interval_s must be 0 to 15 seconds"),
        ({"timeout_s": 0.0}, "timeout_s must be 0.1 to 40 seconds"),
        ({"timeout_s": 41.0}, "timeout_s must be 0.1 to 40 seconds"),
        ({"url": "http://{hots}:1"}, 'no fact "hots"; did you mean "host"?'),
        ({"model": "{comment.}"}, 'no fact "comment."'),
    ],
)
def test_a_wrong_key_is_refused_with_its_name_and_the_remedy(keys, what):
    with pytest.raises(ValueError, match=re.escape(what)):
        settings(**keys)


def test_the_user_need_not_be_told_where_squeue_runs_here():
    assert settings(user=None).is_local
    assert settings(user=None, command=["/opt/slurm/bin/squeue", "-M", "gpu"]).is_local


def test_the_command_asks_for_the_users_jobs_that_run_or_end():
    assert squeue_command(settings(), "alice") == [
        "squeue",
        "--json",
        "--noheader",
        "--user=alice",
        "--states=RUNNING,COMPLETING",
    ]
    text = squeue_command(settings(format="text", command=["ssh", "l", "squeue"]), "*")
    assert text[:3] == ["ssh", "l", "squeue"]
    assert text[4:] == ["--array", "--states=RUNNING,COMPLETING"]


def test_no_variable_of_the_users_shell_narrows_what_is_listed():
    environ = {"SQUEUE_PARTITION": "debug", "SQUEUE_SORT": "i", "SLURM_CONF": "/etc/s", "LC_ALL": "de_DE"}
    assert squeue_environment(environ) == {"SLURM_CONF": "/etc/s", "LC_ALL": "C"}


# --- the page


def _table(section: str) -> dict[str, list[str]]:
    """The rows of the first table under a heading, by what stands in backquotes in the first column."""
    text = PAGE.read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for line in text[text.index(f"## {section}\n") :].split("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            found.update(dict.fromkeys(re.findall(r"`([^`]+)`", cells[0]), cells[1:]))
    return found


@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not there")
def test_the_page_has_every_key_with_its_default():
    told = _table("Keys")
    shown = {None: "–", False: "false", True: "true"}
    for field in attrs.fields(SlurmConfig):
        default = field.default
        if default is attrs.NOTHING:
            expected = "required"
        elif field.name == "command":
            expected = '`["squeue"]`'
        elif isinstance(default, str):
            expected = f'`"{default}"`'
        elif isinstance(default, float):
            expected = f"{default:g}"
        else:
            expected = shown[default]
        assert told.pop(field.name)[0] == expected, field.name
    assert not told


@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not there")
def test_the_page_has_every_fact():
    assert {name.removesuffix("KEY") for name in _table("Facts")} == set(SlurmConfig.FACTS)
