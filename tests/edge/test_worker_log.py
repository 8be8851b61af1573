"""The log files of worker processes: all that they print, and of that the end, fit to be shown."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_process_kit import hear_all, launcher, nothing_left

from scavenge.core.worker_messages import Beat


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


async def test_what_it_prints_does_not_disturb_what_it_says(tmp_path: Path):
    script = """
    for number in range(10):
        print(f"{number} " * 1000 * 500)
    say(Beat())
    print("in the end")
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        assert await hear_all(worker) == [Beat()]
        assert worker.log_tail() == "in the end"
    assert (tmp_path / "logs" / "w.log").stat().st_size > 10_000_000


async def test_the_end_of_a_huge_log_is_read_within_bounds(tmp_path: Path):
    script = """
    os.truncate(1, 2**30)
    print("x" * 9000)
    print(*range(100), sep="\\n")
    """
    async with launcher(tmp_path, script).open_worker("w") as worker:
        await hear_all(worker)
        tracemalloc.start()
        try:
            assert worker.log_tail() == "\n".join(map(str, range(80, 100)))
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()


async def test_the_end_of_the_log_is_what_this_start_printed_made_fit_to_be_shown(tmp_path: Path):
    script = r"""
    sys.stdout.buffer.write(b"\x1b[31mred\x1b[0m \xff\0 a\tb\r\n 10 %\r 20 %\r 30 %\r\n\n\x1b]0;title\x07no line end")
    """
    async with launcher(tmp_path, "print('before'); raise SystemExit('sorry')").open_worker("w") as worker:
        await hear_all(worker)
        assert worker.log_tail() == "before\nsorry"
    async with launcher(tmp_path, script).open_worker("w") as worker:
        await hear_all(worker)
        assert worker.log_tail() == "red \N{REPLACEMENT CHARACTER} a    b\n 30 %\nno line end"
    async with launcher(tmp_path, "pass").open_worker("w") as worker:
        await hear_all(worker)
        assert worker.log_tail() == ""
    log = (tmp_path / "logs" / "w.log").read_text(errors="replace")
    assert log.count("--- 'w' started ") == 3


async def test_a_log_that_is_gone_or_was_emptied_has_no_end(tmp_path: Path):
    async with launcher(tmp_path, "print('x' * 100)").open_worker("w") as worker:
        await hear_all(worker)
        (tmp_path / "logs" / "w.log").write_text("short")
        assert worker.log_tail() == ""
        (tmp_path / "logs" / "w.log").unlink()
        assert worker.log_tail() == ""


@pytest.mark.parametrize(
    "name", ["../../out", "a/b", ".hidden", "-rf", "", "nul\0", "lone \udc80", "x" * 1000, "two\nlines", "ü"]
)
async def test_any_name_gives_a_log_file_in_the_folder(name: str, tmp_path: Path):
    async with launcher(tmp_path, "print('here')").open_worker(name) as worker:
        await hear_all(worker)
        assert worker.log_tail() == "here"
    (log,) = (tmp_path / "logs").iterdir()
    assert log.suffix == ".log"
    assert not log.name.startswith((".", "-"))


async def test_names_that_are_alike_when_made_safe_have_files_of_their_own(tmp_path: Path):
    here = launcher(tmp_path, "pass")
    for name in ("a/b", "a_b", "a b"):
        async with here.open_worker(name) as worker:
            await hear_all(worker)
    assert len(list((tmp_path / "logs").iterdir())) == 3
