"""The checks of a source in a world that moves: servers come and go, and the service that knows them fails.

Decides what is tried, and what a source may say when it cannot know. What is right else is decided in
:mod:`scavenge.testing.source_trial`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import attrs
import trio

from scavenge.core.naming import shown
from scavenge.testing.source_answers import Answer, Held, Outcome
from scavenge.testing.source_checks import cut_at, sweep
from scavenge.testing.source_life import Asking, Died, Life
from scavenge.testing.source_probe import Knife
from scavenge.testing.source_trial import HOLD_S, PAUSE_S, Trial

ASKED_IN_A_FAULT = 3
"""How often a source is asked while its service fails."""


@attrs.frozen
class SourceFault:
    """A state of the service in which a source cannot know what there is.

    ``apply()`` gives an async context manager, inside which the fault lasts.

    versionadded: 0.1
    """

    name: str
    apply: Callable[[], AbstractAsyncContextManager[object]]


# --- changes


async def check_changes(trial: Trial) -> None:
    """What changes is told, also by an answer that is held, and there and back again."""
    await _check_a_change(trial)
    await _check_flapping(trial)
    async with trial.opened("opened to be changed under", alone=False) as life:
        if not life.long_poll:
            return
        await _check_a_held_answer(trial, life)
        await _sweep_held_answers(trial, life)


async def change(trial: Trial) -> frozenset[str]:
    """Have the author change what is there; what has to be listed then."""
    assert trial.change is not None
    changed: object = trial.change()
    if not inspect.isawaitable(changed):
        raise TypeError(f"change= gave {shown(changed)}, which cannot be awaited; make it an `async def`")
    await changed
    return trial.wanted()


async def _check_a_change(trial: Trial) -> None:
    async with trial.opened("opened, then changed under", alone=False) as life:
        before = await trial.first(life)
        wanted = await change(trial)
        if wanted == before.urls:
            raise AssertionError("change() changed nothing that expect() tells; make another set of servers be there")
        await trial.shows(life, wanted, "after a change")


async def _check_flapping(trial: Trial) -> None:
    async with trial.opened("opened, then changed under, there and back", alone=False) as life:
        await trial.first(life)
        await change(trial)
        wanted = await change(trial)
        await trial.shows(life, wanted, "after two changes at once")
        doing = f"{life.doing}, asked again after two changes at once"
        if life.long_poll and isinstance(await trial.ask(life, doing, HOLD_S), Held):
            return
        await trio.sleep(PAUSE_S)
        await trial.shows(life, wanted, "asked again after two changes at once")


async def _check_a_held_answer(trial: Trial, life: Life) -> None:
    await trial.first(life)
    asking = life.begin(Asking(f"{life.doing}, a held answer", trial.answers_within_s))
    await trio.sleep(HOLD_S)
    wanted = await change(trial)
    await _check_the_change_is_told(trial, life, asking, wanted, "after a change under a held answer")


async def _check_the_change_is_told(
    trial: Trial, life: Life, asking: Asking, wanted: frozenset[str], when: str
) -> None:
    """By the answer that was held, or else by the next one."""
    doing = f"{asking.doing}, {when}"
    outcome = await trial.heard(life, asking)
    if isinstance(outcome, Held):
        if not asking.knife.fell:
            raise trial.still(outcome, wanted, doing)
    elif trial.answered(outcome, doing).urls == wanted:
        return
    await trial.shows(life, wanted, when)


async def _sweep_held_answers(trial: Trial, life: Life) -> None:
    async def run(at: float) -> Knife:
        doing = cut_at(f"{life.doing}, a held answer to a change", at)
        asking = life.begin(Asking(doing, trial.answers_within_s, at))
        await trio.sleep(PAUSE_S)
        wanted = await change(trial)
        await _check_the_change_is_told(trial, life, asking, wanted, "after that answer was cancelled")
        return asking.knife

    await sweep(run, max(1, trial.max_steps // 10))


# --- faults


async def check_fault(trial: Trial, fault: SourceFault) -> None:
    """In a fault a source raises, holds, or says what was there before; after it, it is right again by itself."""
    async with trial.opened(f'opened before the fault "{fault.name}"', mortal=True, alone=False) as life:
        before = await trial.first(life)
        held = [_ask_in_a_fault(trial, life)] if life.long_poll else []
        await trio.sleep(HOLD_S * life.long_poll)
        async with fault.apply():
            other = await trial.start(f'opened in the fault "{fault.name}"')
            lives = [life] * (not held) + [other] * other.opened.is_set()
            await _check_answers_in_a_fault(trial, held + [_ask_in_a_fault(trial, one) for one in lives], before)
        for one in (other, life):
            await _check_recovery(trial, one, before)
        await trial.close(other, mortal=True)
    async with trial.opened(f'opened after the fault "{fault.name}"') as life:
        await trial.shows(life, trial.wanted(), "soon after it")


def _ask_in_a_fault(trial: Trial, life: Life) -> tuple[Life, Asking]:
    return life, life.begin(Asking(f"{life.doing}, asked in it", trial.answers_within_s))


async def _check_answers_in_a_fault(trial: Trial, asked: list[tuple[Life, Asking]], before: Answer) -> None:
    """Take the answers of all lives, and ask again a few times; one that holds its answer is not asked again."""
    for turn in range(ASKED_IN_A_FAULT):
        speaking = []
        for life, asking in asked if turn == 0 else [_ask_in_a_fault(trial, life) for life, _ in asked]:
            outcome = await trial.heard(life, asking)
            check_in_a_fault(outcome, before, asking.doing)
            speaking += [(life, asking)] * (not isinstance(outcome, Held | Died))
        asked = speaking
        await trio.sleep(PAUSE_S)


def check_in_a_fault(outcome: Outcome | Died, before: Answer, doing: str) -> None:
    """An answer has to be what was there before, to the last setting."""
    remedy = "raise SourceError when the service cannot know"
    if not isinstance(outcome, Answer):
        return
    if before.endpoints and not outcome.endpoints:
        raise AssertionError(f"{doing}: an empty listing came, which says that every server is gone; {remedy}")
    if wrong := outcome.differs_from(before):
        raise AssertionError(f"{doing}: the listing came {wrong}; {remedy}")


async def _check_recovery(trial: Trial, life: Life, before: Answer) -> None:
    """A source that lives has to come round by itself: scavenge opens none again that only raises."""
    when = "asked when it was over"
    doing = f"{life.doing}, {when}"

    def never(outcome: Outcome | Died) -> None:
        check_in_a_fault(outcome, before, doing)

    if not life.long_poll or not life.answered:
        await trial.shows(life, trial.wanted(), when, never=never, mortal=True)
        return
    never(await trial.ask(life, doing, HOLD_S))  # which may hold: nothing has changed
    if trial.change is not None:
        await trial.shows(life, await change(trial), f"{when}, and then changed under", mortal=True)
