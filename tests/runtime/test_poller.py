"""Sources are asked again and again; what cannot be believed changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from scavenge.core.roster import Added, Change, Changed, Removed
from scavenge.errors import ConfigError, Problem, SourceError
from scavenge.events import Event, SourceChanged
from scavenge.runtime.poller import Poller
from scavenge.types import BadRow, CheckedListing, Endpoint, EndpointId, Listing, Url


def endpoint(name: str) -> Endpoint:
    return Endpoint(EndpointId("pool"), "m", Url(name))


def check(listing: Listing, present: Sequence[Endpoint]) -> CheckedListing:
    """Rows are names; one that begins with ``bad`` is a bad row of nobody in particular."""
    names = [str(row) for row in listing.endpoints]
    bad = [name for name in names if name[0] == "!"]
    return CheckedListing(tuple(endpoint(name) for name in names if name not in bad), tuple(map(bad_row, bad)))


def bad_row(name: str) -> BadRow:
    return BadRow((Problem("listing", f"{name} is bad"),), EndpointId("other"), None, 0)


class Scripted:
    """Answers with the next step of its script each time; a step may be names, an error, or a wait."""

    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)
        self.asked = 0

    async def list_endpoints(self) -> Listing:
        self.asked += 1
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        await trio.lowlevel.checkpoint()
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, float):
            await trio.sleep(step)
            step = "a"
        return step if not isinstance(step, str) else Listing(step.split())  # type: ignore[return-value,arg-type]


class Heard:
    def __init__(self, *sources: object, elastic: bool = True) -> None:
        self.changes: list[Change] = []
        self.events: list[Event] = []
        named = [(f"source{index}", source) for index, source in enumerate(sources)]
        self.poller = Poller(named, check, self.changes.extend, self.events.append, 10.0, elastic)  # type: ignore[arg-type]

    @property
    def told(self) -> list[tuple[bool, str]]:
        return [(event.ok, event.message) for event in self.events if isinstance(event, SourceChanged)]

    async def run(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for index in range(len(self.poller.sources)):
                    nursery.start_soon(self.poller.run_source, index)


async def test_the_first_listing_is_there_before_the_start(autojump_clock):
    heard = Heard(Scripted("a b"))
    await heard.poller.ask_first()
    assert heard.changes == [Added(endpoint("a")), Added(endpoint("b"))]
    assert trio.current_time() == 0


async def test_every_wrong_row_of_every_source_is_told_at_the_start(autojump_clock):
    heard = Heard(Scripted("a !x !y"), Scripted("!z"))
    with pytest.raises(ConfigError) as caught:
        await heard.poller.ask_first()
    assert [problem.what for problem in caught.value.problems] == ["!x is bad", "!y is bad", "!z is bad"]


async def test_a_source_that_fails_at_the_start_is_waited_for_only_when_elastic(autojump_clock):
    failing = Scripted(SourceError("source0: no such file"))
    await Heard(failing).poller.ask_first()
    with pytest.raises(ConfigError, match=r"^source0: no such file$"):
        await Heard(failing, elastic=False).poller.ask_first()


async def test_a_source_that_hangs_at_the_start_holds_an_elastic_run_back_for_seconds_only(autojump_clock):
    heard = Heard(Scripted(1e9))
    await heard.poller.ask_first()
    assert trio.current_time() == 5
    assert "no answer within 5 s" in heard.told[0][1]


async def test_a_failing_source_keeps_its_last_listing_and_is_told_of_once_at_each_change(autojump_clock):
    steps = ["a b", SourceError("half a file"), SourceError("half a file"), SourceError("gone"), "a b"]
    heard = Heard(Scripted(*steps))
    await heard.poller.ask_first()
    await heard.run(100)
    assert heard.changes == [Added(endpoint("a")), Added(endpoint("b"))]
    stands = "; the last good listing stands"
    assert heard.told == [(False, f"half a file{stands}"), (False, f"gone{stands}"), (True, "readable again")]


async def test_a_plugin_that_raises_or_returns_something_else_costs_only_its_listing(autojump_clock):
    heard = Heard(Scripted("a", KeyError("bug"), ["no listing"], ExceptionGroup("g", [ValueError("x")]), "a"))
    await heard.poller.ask_first()
    await heard.run(100)
    assert heard.changes == [Added(endpoint("a"))]
    assert [message.split(";")[0] for ok, message in heard.told if not ok] == [
        "KeyError: 'bug'", "list_endpoints() returned list, not a Listing", "ExceptionGroup: g (1 sub-exception)",
    ]  # fmt: skip


async def test_a_source_that_hangs_is_asked_again_and_does_not_hold_up_another(autojump_clock):
    hanging, good = Scripted("a", 1e9, "a"), Scripted("b", "b c")
    heard = Heard(hanging, good)
    await heard.poller.ask_first()
    await heard.run(100)
    assert Added(endpoint("c")) in heard.changes
    assert hanging.asked >= 3
    assert good.asked >= 9
    assert heard.told[0] == (False, "no answer within 60 s; the last good listing stands")


async def test_a_source_that_polls_long_may_hold_its_answer(autojump_clock):
    source = Scripted("a", 3600.0)
    source.long_poll = True  # type: ignore[attr-defined]
    heard = Heard(source)
    await heard.poller.ask_first()
    await heard.run(10_000)
    assert heard.told == []


async def test_a_bad_row_is_left_out_and_told_of_once_until_it_is_right(autojump_clock):
    heard = Heard(Scripted("a", "a !x", "a !x", "a !x !y", "a"))
    await heard.poller.ask_first()
    await heard.run(100)
    assert heard.changes == [Added(endpoint("a"))]
    assert heard.told == [
        (False, "listing: !x is bad; this row is left out"),
        (False, "listing: !y is bad; this row is left out"),
        (True, "every row is right again"),
    ]


async def test_a_file_that_is_broken_elsewhere_each_time_is_told_of_once(autojump_clock):
    steps = ["a", *(SourceError(f"line {line}: half a row") for line in (5, 6, 17)), "a"]
    heard = Heard(Scripted(*steps))
    await heard.poller.ask_first()
    await heard.run(100)
    assert [ok for ok, _ in heard.told] == [False, True]


async def test_a_row_that_is_right_again_is_told_while_another_is_still_wrong(autojump_clock):
    heard = Heard(Scripted("a", "a !x !y", "a !y", "a"))
    await heard.poller.ask_first()
    await heard.run(100)
    assert [message for ok, message in heard.told if ok] == [
        "no longer so: listing: !x is bad; this row is left out", "every row is right again",
    ]  # fmt: skip


async def test_an_endpoint_that_vanishes_drains_and_then_goes(autojump_clock):
    heard = Heard(Scripted("a b", "b"))
    await heard.poller.ask_first()
    await heard.run(25)
    assert [type(change) for change in heard.changes] == [Added, Added, Changed, Removed]
