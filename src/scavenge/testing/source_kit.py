"""What an endpoint source has to hold to, whatever happens around it: the checks for authors of sources.

    from scavenge.testing import SourceFault, check_endpoint_source

    async def test_my_source_is_one(registry):
        await check_endpoint_source(
            lambda: open_mine(MineConfig(url=registry.url, ...)),
            expect=registry.urls,
            change=registry.move,
            faults=[SourceFault("token refused", registry.refuse)],
        )

versionadded: 0.1
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager

import trio

from scavenge.core.naming import shown
from scavenge.errors import single_error
from scavenge.runtime.ports import EndpointSource
from scavenge.testing.source_checks import (
    check_calm,
    check_closing_under_a_listing,
    sweep_closing,
    sweep_listing,
    sweep_opening,
)
from scavenge.testing.source_probe import Probe
from scavenge.testing.source_trial import Trial
from scavenge.testing.source_troubles import SourceFault, check_changes, check_fault


async def check_endpoint_source(
    open_source: Callable[[], AbstractAsyncContextManager[EndpointSource]],
    *,
    expect: Callable[[], Collection[str]] | None = None,
    change: Callable[[], Awaitable[object]] | None = None,
    faults: Sequence[SourceFault] = (),
    secrets: Collection[str] = (),
    answers_within_s: float = 10.0,
    max_steps: int = 300,
) -> None:
    """Check an endpoint source, which *open_source* opens afresh each time.

    *expect* tells the URLs that have to be listed now; *change* makes another set of servers be there; in each of the
    *faults* the source must raise, hold its answer, or say what was there before; none of the *secrets* may stand in
    what it raises. ``change`` and ``faults`` need ``expect``. An answer, and a change or the end of a fault in the
    answers, may take *answers_within_s*. Cancellation is tried at every step, or at *max_steps* of them.

    Runs on the clock of the test that it is called in: the real one, or for a source in memory a
    :class:`trio.testing.MockClock` that jumps by itself. Raises :class:`AssertionError`, which says what was done, what
    came, and what to do, and :class:`TypeError` for what it cannot work with. Cancelled, it closes what it opened.

    versionadded: 0.1
    """
    _check_arguments(open_source, faults)
    if expect is None and (change is not None or faults):
        raise ValueError("change= and faults= need expect=, which tells the URLs that have to be listed")
    probe = Probe()
    trio.lowlevel.add_instrument(probe)
    try:
        with single_error():
            async with trio.open_nursery() as nursery:
                trial = Trial(open_source, expect, change, secrets, answers_within_s, max_steps, nursery, probe)
                await _check(trial, faults)
    finally:
        trio.lowlevel.remove_instrument(probe)


def _check_arguments(open_source: object, faults: object) -> None:
    opened = hasattr(open_source, "__aenter__") and not isinstance(open_source, type)
    if opened or not callable(open_source):
        what = "an async context manager, which opens only once" if opened else shown(open_source)
        raise TypeError(f"open_source= is {what}; pass what makes one: lambda: open_x(config)")
    if isinstance(faults, SourceFault) or not isinstance(faults, Iterable):
        raise TypeError(f"faults= is {shown(faults)}; pass a list: [SourceFault(name, apply)]")
    for fault in faults:
        if not isinstance(fault, SourceFault):
            raise TypeError(f"faults= has {shown(fault)} in it; name it: SourceFault(name, apply)")


async def _check(trial: Trial, faults: Sequence[SourceFault]) -> None:
    await check_calm(trial)
    if trial.change is not None:
        await check_changes(trial)
    for fault in faults:
        await check_fault(trial, fault)
    await sweep_opening(trial)
    await sweep_listing(trial)
    await sweep_closing(trial)
    await check_closing_under_a_listing(trial)
