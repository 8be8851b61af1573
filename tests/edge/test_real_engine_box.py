"""What the tests against real engines rely on: an engine ends with the process that opened it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from real_engine import PRODUCTS, listens, open_engine

HOLDER = """
import sys
from pathlib import Path
from real_engine import open_engine

with open_engine(sys.argv[1], Path(sys.argv[2])) as engine:
    print(engine.address, engine.group, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("product", PRODUCTS)
def test_an_engine_is_gone_when_its_owner_was_killed_and_the_next_one_removes_the_rest(product, tmp_path):
    tests = Path(__file__).parent
    (first := tmp_path / "1").mkdir()
    (second := tmp_path / "2").mkdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, product, str(first)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": f"{tests}:{tests.parent}"},
    )
    assert holder.stdout is not None
    address, group = holder.stdout.readline().split()
    holder.kill()
    holder.communicate()  # whoever waits for the end of those in the box has the same standard error
    assert not listens(address)
    with open_engine(product, second):
        assert not Path(group).exists()
