"""The page about this source has every key and fact, and the program on it does what the page says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import attrs
import pytest
from scavenge_ec2.config import Ec2Config
from scavenge_ec2.departures import SHUTDOWN
from scavenge_ec2.source import ANSWER_WITHIN_S

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "endpoints-from-ec2.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the pages are in scavenge's repository")


def section(head: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text.split(f"\n## {head}\n")[1].split("\n## ")[0]


def table(head: str) -> dict[str, str]:
    """The second cells of a section's table by its first, which is code."""
    return dict(re.findall(r"^\| `([^`]+)` \| ([^|]*?) \|", section(head), re.MULTILINE))


def test_the_page_has_every_key_with_its_default():
    fields = {field.name: field for field in attrs.fields(Ec2Config)}
    told = table("Keys")
    assert set(told) == set(fields)
    for name, field in fields.items():
        if field.default is attrs.NOTHING:
            assert told[name] == "required"
        elif field.default is not None:
            written = str(field.default).lower() if isinstance(field.default, bool) else f'"{field.default}"'
            assert told[name] == f"`{written}`"
        else:
            assert "required" not in told[name]


def test_the_page_has_every_fact():
    names = {re.sub(r"^tag\..*", "tag.", name) for name in table("Facts")}
    assert names == set(Ec2Config.FACTS)


def test_the_page_has_the_figures():
    assert f"for {SHUTDOWN.total_seconds():.0f} seconds" in section("What happens")
    assert f"after {ANSWER_WITHIN_S:.0f} seconds" in section("When EC2 does not answer")


CURL = """#!/bin/sh
for last; do :; done
case "$last" in
*/api/token) echo t ;;
*/placement/region) echo eu-west-1 ;;
*/instance-id) echo i-1 ;;
*/rebalance) [ -e rebalance ] && echo '{"noticeTime": "x"}' ;;
*/instance-action) [ -e notice ] && echo '{"action": "terminate", "time": "2030-01-01T12:00:00Z"}' ;;
esac
"""
SLEEP = """#!/bin/sh
echo . >> rounds
case $(wc -l < rounds) in
2) touch rebalance ;;
4) touch notice ;;
7) exit 1 ;;
esac
"""


def test_the_program_on_the_page_tells_each_thing_once_in_the_tag(tmp_path):
    (program,) = re.findall(r"^```sh\n(.*?)^```$", section("Let an instance say it itself"), re.MULTILINE | re.DOTALL)
    for name, text in {"curl": CURL, "sleep": SLEEP, "aws": '#!/bin/sh\necho "$@" >> told\n'}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    subprocess.run(["/bin/sh", "-c", program], cwd=tmp_path, env={"PATH": path}, check=True, timeout=30)
    head = "ec2 create-tags --region eu-west-1 --resources i-1 --tags Key=scavenge:drain,Value="
    assert (tmp_path / "told").read_text().splitlines() == [f"{head}rebalance", f"{head}2030-01-01T12:00:00Z"]
