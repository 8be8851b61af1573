"""The order of the suite: nothing is lost, and what takes long comes first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from suite_order import LONG, is_long, long_first


def collected(count: int, *long_at: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(name=f"{LONG[0]}[{n}]" if n in long_at else f"test_{n}") for n in range(count)]


def test_each_process_begins_with_its_share_of_the_long_ones():
    items = collected(30, 3, 8, 20, 21, 29)
    ordered = long_first(items, 3)
    assert [[is_long(item) for item in ordered[at : at + 3]] for at in (0, 10, 20)] == [
        [True, True, False],
        [True, True, False],
        [True, False, False],
    ]
    assert [item for item in ordered if not is_long(item)] == [item for item in items if not is_long(item)]


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 31])
@pytest.mark.parametrize("long_at", [(), (0,), range(5), range(31)])
def test_every_test_is_run_once(count, long_at, processes):
    items = collected(count, *long_at)
    ordered = long_first(items, processes)
    assert sorted(map(id, ordered)) == sorted(map(id, items))


def test_what_is_said_to_take_long_is_there():
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*/test_*.py"))
    assert [name for name in LONG if f"def {name}(" not in sources] == []
