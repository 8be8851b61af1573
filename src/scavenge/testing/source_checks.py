"""The checks of a source while all is well: it says the same again, and takes cancellation at every moment.

Decides what is tried; what is right is decided in :mod:`scavenge.testing.source_trial`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio

from scavenge.testing.source_answers import CLOSED_WITHIN_S, Answer, Held, Raised, ask, told
from scavenge.testing.source_leftovers import belongings
from scavenge.testing.source_life import Asking, Life
from scavenge.testing.source_probe import Knife
from scavenge.testing.source_trial import HOLD_S, Trial

HOT_MOMENTS = 2_000
"""How many moments a source that polls long may take while it holds an answer for a moment."""

HOT_ANSWERS = 20
"""How often such a source may answer in that time with nothing new."""

CLOSE_AT = (1, 2, 3, 5, 8, 13, 21)
"""The moments of a listing at which the source is closed under it."""


async def check_calm(trial: Trial) -> None:
    """Open it twice in a row, and two at a time; ask it again."""
    for turn in ("opened once", "opened a second time"):
        async with trial.opened(turn) as life:
            await check_again(trial, life, await trial.first(life))
    async with trial.opened("opened") as life:
        answer = await trial.first(life)
        async with trial.opened("opened beside another that is open") as other:
            await trial.first(other)
        await check_again(trial, life, answer, "asked again after the other was closed")


async def check_again(
    trial: Trial, life: Life, before: Answer, doing: str = "asked again with nothing changed"
) -> None:
    """While nothing changes a source says the same; one that polls long holds its answer."""
    where = f"{life.doing}, {doing}"
    if life.long_poll:
        await _check_holding(trial, life, before, where)
    else:
        check_same(trial.answered(await trial.ask(life, where), where), before, where)


def check_same(answer: Answer, before: Answer, doing: str) -> None:
    """Two listings between which nothing changed, order aside."""
    if wrong := answer.differs_from(before):
        raise AssertionError(
            f"{doing}: the listing came {wrong}, although nothing changed; say all that there is each time"
        )


async def _check_holding(trial: Trial, life: Life, before: Answer, doing: str) -> None:
    ends_at = trio.current_time() + HOLD_S
    for _ in range(HOT_ANSWERS):
        left_s = ends_at - trio.current_time()
        outcome = await trial.ask(life, doing, max(left_s, 0.0), most_moments=HOT_MOMENTS)
        if isinstance(outcome, Held):
            return
        check_same(trial.answered(outcome, doing), before, doing)
    what = f"a source with long_poll answered {HOT_ANSWERS} times within {HOLD_S:g} s with nothing new"
    raise AssertionError(f"{doing}: {what}; hold the answer until something changed, or pause before you ask again")


# --- cancellation at every moment


async def sweep(run: Callable[[float], Awaitable[Knife]], most: int) -> None:
    """*run* a piece of code, to its end and then cut at every moment, or at *most* of them, evenly spread."""
    moments = (await run(math.inf)).moments
    stride = max(1, math.ceil(moments / most))
    for at in range(1, stride * most + 1, stride):
        if not (await run(at)).fell:
            return


def cut_at(doing: str, at: float) -> str:
    """What is done, and at which moment it is cancelled."""
    return doing if at == math.inf else f"{doing}, cancelled at moment {at:g}"


async def sweep_opening(trial: Trial) -> None:
    """Cancel the opening at every moment; the next one is as if nothing had been."""

    async def run(at: float) -> Knife:
        doing = cut_at("opening", at)
        before = belongings(trial.probe.tasks)
        life = await trial.start(doing, opening_at=at)
        await check_cut_life(trial, life, life.opening)
        await trial.nothing_left(before, doing)
        async with trial.opened(f"opened again after {doing}") as again:
            await trial.first(again)
        return life.opening

    await sweep(run, trial.max_steps)


async def sweep_closing(trial: Trial) -> None:
    """Cancel the closing at every moment; the next opening is as if nothing had been."""

    async def run(at: float) -> Knife:
        doing = cut_at("closing", at)
        before = belongings(trial.probe.tasks)
        life = await trial.start(doing, closing_at=at)
        await trial.first(life)
        await check_cut_life(trial, life, life.closing)
        await trial.nothing_left(before, doing)
        return life.closing

    await sweep(run, trial.max_steps)
    async with trial.opened("opened again after its closing was cancelled") as again:
        await trial.first(again)


async def check_cut_life(trial: Trial, life: Life, knife: Knife) -> None:
    """A life that may have been cut ends in time, with its cancellation or without any word."""
    life.dismiss()
    await life.over.wait()
    if life.wrong is not None:
        raise life.wrong
    if life.end is not None:
        raise AssertionError(f"{life.doing}: it raised {told(life.end)}") from life.end
    if knife.cut_at is None:
        return
    late_s = life.ended_at - knife.cut_at
    if late_s > CLOSED_WITHIN_S:
        remedy = "shield nothing that may take long"
        raise AssertionError(f"{life.doing}: it took {late_s:.1f} s to end; {remedy}")


async def sweep_listing(trial: Trial) -> None:
    """Cancel a listing at every moment; the same life then says what there is, without waiting."""
    async with trial.opened("opened for listings that are cancelled") as life:
        long_poll = life.long_poll

        async def run(at: float) -> Knife:
            return await cut_listing(trial, life, at)

        if not long_poll:
            await sweep(run, trial.max_steps)
            return

    async def run_first(at: float) -> Knife:
        async with trial.opened("opened for a first listing that is cancelled") as life:
            return await cut_listing(trial, life, at)

    await sweep(run_first, trial.max_steps)


async def cut_listing(trial: Trial, life: Life, at: float) -> Knife:
    """Ask, cancel that, and ask again."""
    doing = cut_at("listing", at)
    asking = life.begin(Asking(doing, trial.answers_within_s, at))
    outcome = await trial.heard(life, asking)
    if isinstance(outcome, Answer):
        trial.check_expected(outcome, doing)
    elif not (asking.knife.fell and isinstance(outcome, Held)):
        trial.answered(outcome, doing)
    if asking.knife.fell and not (life.long_poll and isinstance(outcome, Answer)):
        await trial.first(life, f"asked again after {doing}")
    return asking.knife


async def check_closing_under_a_listing(trial: Trial) -> None:
    """Close it while another task asks it."""
    for at in CLOSE_AT:
        doing = f"closed at moment {at} of a listing"
        async with trial.opened(doing) as life:
            knife = Knife(life.dismiss, at)
            scope = trio.CancelScope(deadline=trio.current_time() + HOLD_S)
            outcome = await ask(life.source, trial.probe, knife, scope, doing)
            match outcome:
                case Answer():
                    trial.check_expected(outcome, doing)
                case Raised(error):
                    trial.check_text(error, doing)
        if not knife.fell:
            return
