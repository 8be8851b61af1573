"""How a worker reads its dataset: where it is asked, in one thread, as much as one message holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from worker_child_envs import Rows as Dataset
from worker_child_kit import open_child

from scavenge.core.worker_messages import ReadRows, Rows, RowsFailed
from scavenge.worker.rows import TEXT_CHARACTERS, DatasetReader


def read(reader: DatasetReader, skip: int, count: int) -> Rows:
    answer = reader.answer(ReadRows(skip, count))
    assert isinstance(answer, Rows)
    assert answer.skip == skip
    return answer


def numbers(rows: Rows) -> list[object]:
    return [row.data["i"] for row in rows.examples]


def test_a_stream_that_is_read_in_order_is_begun_once():
    dataset = Dataset(10)
    reader = DatasetReader(dataset)
    answers = [read(reader, 0, 4), read(reader, 4, 4), read(reader, 8, 4), read(reader, 10, 4), read(reader, 10, 4)]
    assert [numbers(rows) for rows in answers] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [], []]
    assert [rows.last for rows in answers] == [False, False, True, True, True]
    assert dataset.begun == 1


def test_a_stream_is_begun_anew_for_another_place():
    dataset = Dataset(10)
    reader = DatasetReader(dataset)
    assert numbers(read(reader, 6, 2)) == [6, 7]
    assert numbers(read(reader, 2, 3)) == [2, 3, 4]
    assert dataset.begun == 2
    assert read(reader, 99, 3) == Rows(99, (), last=True)


def test_a_message_holds_no_more_than_its_share_and_nothing_is_lost():
    reader = DatasetReader(Dataset(7, "long"))
    seen: list[object] = []
    answers = 0
    last = False
    while not last:
        rows = read(reader, len(seen), 100)
        assert 1 <= len(rows.examples) <= 3
        seen += numbers(rows)
        last = rows.last
        answers += 1
    assert seen == list(range(7))
    assert answers == 3


def test_a_stream_that_fails_is_told_with_its_place_and_fails_again():
    reader = DatasetReader(Dataset(10, "raises"))
    for _ in range(2):
        failed = reader.answer(ReadRows(0, 5))
        assert isinstance(failed, RowsFailed)
        assert failed.message.startswith("KeyError: 'row 3' (worker_child_envs.py, line ")
    assert numbers(read(reader, 0, 3)) == [0, 1, 2]
    assert isinstance(reader.answer(ReadRows(3, 2)), RowsFailed)
    assert isinstance(reader.answer(ReadRows(3, 2)), RowsFailed), "a stream that failed is no stream that ended"


@pytest.mark.parametrize(
    ("trouble", "message"),
    [("exits", "SystemExit: 0 (worker_child_envs.py"), ("odd", "TypeError: examples() yields str, not scavenge.Exa")],
)
def test_what_a_stream_may_not_do_is_told(trouble: str, message: str):
    failed = DatasetReader(Dataset(10, trouble)).answer(ReadRows(0, 5))
    assert isinstance(failed, RowsFailed)
    assert failed.message.startswith(message)


def test_a_long_error_is_cut():
    class Loud(Dataset):
        def examples(self):  # type: ignore[no-untyped-def]
            raise ValueError("x" * 1_000_000)

    failed = DatasetReader(Loud()).answer(ReadRows(0, 5))
    assert isinstance(failed, RowsFailed)
    assert len(failed.message) < TEXT_CHARACTERS + 100


def test_a_row_that_is_no_json_is_an_example_with_an_error():
    rows = read(DatasetReader(Dataset(10, "set")), 2, 3)
    assert [row.error for row in rows.examples] == [None, "its data cannot be written as JSON: odd (set)", None]


def test_rows_are_read_in_one_thread_while_rollouts_are_played(tmp_path: Path):
    with open_child(tmp_path) as child:
        child.load("OnTrio", "count = 5")
        child.play(1, do="wait")
        child.say(ReadRows(0, 3))
        first = child.hear_a(Rows)
        child.say(ReadRows(3, 3))
        second = child.hear_a(Rows)
        assert [*numbers(first), *numbers(second)] == [0, 1, 2, 3, 4]
        assert len({row.data["thread"] for row in (*first.examples, *second.examples)}) == 1
        child.say(ReadRows(5, 3))
        assert child.hear() == Rows(5, (), last=True)
