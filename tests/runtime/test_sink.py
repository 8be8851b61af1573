"""The one writer of results."""

from __future__ import annotations

import threading

import attrs
import pytest
import trio
import trio.testing

from scavenge.core.records import parse_line
from scavenge.edge.threads import LimitedThreads
from scavenge.errors import ResultsError
from scavenge.rollouts import RolloutKey, RolloutRecord
from scavenge.runtime.ports import Threads
from scavenge.runtime.sink import PENDING_MAX, Sink
from scavenge.testing.sweep import cancel_at_every_step


def record(n: int, reward: float = 1.0) -> RolloutRecord:
    return RolloutRecord(RolloutKey("e", str(n), 0), "chat", reward)


@attrs.define(eq=False)
class MemoryLog:
    """A result log in memory, on a disk of limited size."""

    room: int = 10**9
    batches: list[list[str]] = attrs.field(factory=list)
    lines: list[bytes] = attrs.field(factory=list)
    gate: threading.Event = attrs.field(factory=threading.Event)
    """An append does not return before this is set."""
    entered: threading.Event = attrs.field(factory=threading.Event)

    def __attrs_post_init__(self) -> None:
        self.gate.set()

    def append(self, lines):
        self.entered.set()
        self.gate.wait()
        if self.room < len(lines):
            raise ResultsError("results.jsonl", "no space left on device")
        self.room -= len(lines)
        self.lines += lines
        self.batches.append([parse_line(line).key.example_id for line in lines])

    @property
    def written(self) -> list[str]:
        return [name for batch in self.batches for name in batch]


class InPlace:
    """Steps like a thread as far as cancellation goes, but on the virtual clock."""

    async def run(self, step, *, abandon_on_cancel=False):
        await trio.lowlevel.checkpoint_if_cancelled()
        found = step()
        await trio.lowlevel.cancel_shielded_checkpoint()
        return found


@attrs.define(eq=False)
class Bench:
    """A sink with its log and what it counted, along with how much was on disk then."""

    log: MemoryLog = attrs.field(factory=MemoryLog)
    counted: list[str] = attrs.field(factory=list)
    threads: Threads = attrs.field(factory=lambda: LimitedThreads(1))
    some_counted: trio.Event = attrs.field(factory=trio.Event)
    sink: Sink = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sink = Sink(self.log, self.count, self.threads)

    def count(self, done: RolloutRecord) -> None:
        assert done.key.example_id in self.log.written, "counted before it was on disk"
        self.counted.append(done.key.example_id)
        self.some_counted.set()


async def test_what_is_put_is_written_then_counted_in_order():
    bench = Bench()
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.sink.run_sink)
        for n in range(50):
            await bench.sink.put(record(n))
        bench.sink.close()
    assert bench.log.written == bench.counted == [str(n) for n in range(50)]
    assert bench.sink.pending == 0


async def test_what_comes_while_a_batch_is_written_goes_out_together_in_the_next():
    bench = Bench()
    bench.log.gate.clear()
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.sink.run_sink)
        bench.sink.put_nowait(record(0))
        await trio.to_thread.run_sync(bench.log.entered.wait)
        for n in range(1, 400):
            bench.sink.put_nowait(record(n))
        bench.log.gate.set()
        bench.sink.close()
    assert [len(batch) for batch in bench.log.batches] == [1, 399]


async def test_a_record_is_written_as_it_was_when_it_was_put():
    bench, info = Bench(), {"turns": ["a"]}
    bench.sink.put_nowait(attrs.evolve(record(1), info=info))
    info["turns"].append("b")
    bench.sink.close()
    await bench.sink.run_sink()
    assert parse_line(bench.log.lines[0]).info == {"turns": ["a"]}


async def test_a_reward_that_is_no_number_is_counted_as_the_error_that_is_on_disk():
    found = []
    log = MemoryLog()
    sink = Sink(log, found.append, InPlace())
    sink.put_nowait(record(1, float("nan")))
    sink.close()
    await sink.run_sink()
    assert found[0].error.type == "BadReward"
    assert found[0].reward is None


async def test_a_putter_waits_only_when_too_many_are_pending_and_goes_on_when_they_are_written():
    bench = Bench()
    for n in range(PENDING_MAX - 1):
        bench.sink.put_nowait(record(n))
    await bench.sink.put(record(PENDING_MAX - 1))
    went_on = []

    async def put(n):
        await bench.sink.put(record(n))
        went_on.append(n)

    async with trio.open_nursery() as services:
        async with trio.open_nursery() as work:
            for n in range(3):
                work.start_soon(put, PENDING_MAX + n)
            await trio.testing.wait_all_tasks_blocked()
            assert went_on == []
            assert bench.sink.pending == PENDING_MAX + 3
            services.start_soon(bench.sink.run_sink)
        assert len(went_on) == 3
        bench.sink.close()
    assert len(bench.counted) == PENDING_MAX + 3


@pytest.mark.parametrize("ahead", [0, PENDING_MAX + 5])
async def test_a_cancelled_put_has_taken_the_record_in(ahead):
    bench = Bench()
    for n in range(ahead):
        bench.sink.put_nowait(record(n))
    with trio.CancelScope() as scope:
        scope.cancel()
        await bench.sink.put(record(10**6))
    assert scope.cancelled_caught
    bench.sink.close()
    await bench.sink.run_sink()
    assert bench.counted[-1] == str(10**6)


async def test_a_cancelled_writer_still_writes_what_the_unwinding_work_hands_in():
    """Everything is cancelled at once, and a rollout that was finishing puts its record while it unwinds."""
    bench = Bench()

    async def work():
        try:
            await trio.sleep_forever()
        finally:
            bench.sink.put_nowait(record(2))
            bench.sink.close()

    async with trio.open_nursery() as everything:
        await everything.start(bench.sink.run_sink)
        everything.start_soon(work)
        bench.sink.put_nowait(record(1))
        await trio.testing.wait_all_tasks_blocked(0.01)
        everything.cancel_scope.cancel()
    assert bench.counted == ["1", "2"]


async def test_a_cancelled_writer_waits_for_the_append_under_way():
    bench = Bench()
    bench.log.gate.clear()
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.sink.run_sink)
        bench.sink.put_nowait(record(1))
        await trio.to_thread.run_sync(bench.log.entered.wait)
        nursery.cancel_scope.cancel()
        bench.log.gate.set()
        bench.sink.close()
    assert bench.counted == ["1"]


async def test_a_cancelled_writer_that_nobody_closes_gives_up_after_two_seconds(autojump_clock):
    bench = Bench()
    with trio.move_on_after(1):
        await bench.sink.run_sink()
    assert trio.current_time() == pytest.approx(3)


def test_cancelled_at_any_step_it_counts_each_record_exactly_once():
    benches = []

    async def put_all(bench):
        with trio.CancelScope(shield=True):
            for n in range(10):
                await bench.sink.put(record(n))
            bench.sink.close()

    async def use():
        benches.append(Bench(threads=InPlace()))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put_all, benches[-1])
            await benches[-1].sink.run_sink()

    def check():
        assert benches[-1].counted == benches[-1].log.written == [str(n) for n in range(10)]

    assert cancel_at_every_step(use, check) > 10


async def test_a_failed_write_ends_the_writer_and_counts_nothing_that_was_not_written():
    bench = Bench(MemoryLog(room=1))
    with pytest.RaisesGroup(ResultsError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.sink.run_sink)
            bench.sink.put_nowait(record(0))
            await bench.some_counted.wait()
            bench.sink.put_nowait(record(1))
            bench.sink.put_nowait(record(2))
            await trio.sleep_forever()
    bench.sink.put_nowait(record(3))
    await bench.sink.put(record(4))
    assert bench.counted == bench.log.written == ["0"]
    assert bench.sink.pending == 0


async def test_a_failed_write_lets_waiting_putters_go():
    bench = Bench(MemoryLog(room=0))
    for n in range(PENDING_MAX + 1):
        bench.sink.put_nowait(record(n))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.sink.put, record(-1))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ResultsError):
            await bench.sink.run_sink()
    assert bench.counted == []


async def test_a_counter_that_fails_ends_the_writer_but_loses_no_line():
    log = MemoryLog()

    def count(done):
        raise ZeroDivisionError

    sink = Sink(log, count, InPlace())
    sink.put_nowait(record(1))
    sink.close()
    with pytest.raises(ZeroDivisionError):
        await sink.run_sink()
    assert log.written == ["1"]


def test_putting_into_a_closed_sink_is_a_mistake():
    sink = Bench().sink
    sink.close()
    with pytest.raises(RuntimeError):
        sink.put_nowait(record(1))
