"""What the first and what a later signal does."""

from __future__ import annotations

import signal

import trio
import trio.testing

from scavenge.runtime.shutdown import PATIENCE_S, SIGNALS, signals_end_the_run


async def test_the_first_signal_stops_and_only_one_that_comes_much_later_kills():
    stopped: list[signal.Signals] = []
    killed: list[signal.Signals] = []
    now = [0.0]
    before = [signal.getsignal(number) for number in SIGNALS]
    with signals_end_the_run(stopped.append, killed.append, lambda: now[0]):
        for number, at in ((signal.SIGTERM, 100.0), (signal.SIGINT, 105.0), (signal.SIGINT, 100.0 + PATIENCE_S)):
            now[0] = at
            signal.raise_signal(number)
            await trio.testing.wait_all_tasks_blocked()
    assert stopped == [signal.SIGTERM]
    assert killed == [signal.SIGINT]
    assert [signal.getsignal(number) for number in SIGNALS] == before


async def test_ending_a_run_writes_out_nothing_of_it():
    class Run:
        """Knows everything of a run, which may be much."""

        def __call__(self, number: signal.Signals) -> None: ...

        def __repr__(self) -> str:
            raise AssertionError("it takes seconds, and nobody reads it")

    await trio.lowlevel.checkpoint()
    with signals_end_the_run(Run(), Run(), lambda: 0.0):
        pass


async def test_the_signal_that_kills_needs_no_task_to_run():
    await trio.lowlevel.checkpoint()
    killed: list[signal.Signals] = []
    now = [0.0]
    with signals_end_the_run(lambda number: None, killed.append, lambda: now[0]):
        signal.raise_signal(signal.SIGINT)
        now[0] = PATIENCE_S
        signal.raise_signal(signal.SIGINT)  # the loop has not run in between
        assert killed == [signal.SIGINT]


async def test_the_first_signal_wakes_a_loop_that_sleeps():
    scope = trio.CancelScope()
    before = signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGTERM))
    try:
        with trio.fail_after(5), scope, signals_end_the_run(lambda _: scope.cancel(), lambda _: None, lambda: 0.0):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            await trio.sleep_forever()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert scope.cancelled_caught


async def test_of_several_runs_all_are_stopped_and_the_last_to_end_leaves_the_handler_from_before():
    stopped: list[str] = []
    before = [signal.getsignal(number) for number in SIGNALS]
    runs = {
        name: signals_end_the_run(lambda _, name=name: stopped.append(name), lambda _: None, lambda: 0.0)
        for name in ("first", "second", "third")
    }
    for run in runs.values():
        run.__enter__()
    runs.pop("second").__exit__(None, None, None)
    signal.raise_signal(signal.SIGTERM)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(stopped) == ["first", "third"]
    for name in ("first", "third"):
        runs[name].__exit__(None, None, None)
    assert [signal.getsignal(number) for number in SIGNALS] == before
