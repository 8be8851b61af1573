"""Sources are asked again and again; what cannot be believed changes nothing."""

from __future__ import annotations

import attrs
import pytest
import trio
import trio.testing
from source_kit import STANDS, Heard, Mortal, Scripted, bad_row, check, endpoint

from counted import Comparisons
from scavenge.core.roster import Added, Changed, Removed
from scavenge.errors import ConfigError, PluginError, Problem, SourceError
from scavenge.listings import BadRow, CheckedListing, Listing
from scavenge.runtime.poller import ROWS_TOLD
from scavenge.status import SourceStatus
from scavenge.types import Endpoint, EndpointId, Url


def named(listing: Listing) -> tuple[BadRow, ...]:
    """Its bad rows, each of an endpoint of its own."""
    names = [str(row) for row in listing.endpoints if str(row)[0] == "?"]
    return tuple(attrs.evolve(bad_row(name), url=Url(name)) for name in names)


# --- the start


async def test_the_first_listing_is_there_before_the_start(autojump_clock):
    heard = Heard(Scripted("a b"))
    await heard.run(0)
    assert heard.changes == [Added(endpoint("a")), Added(endpoint("b"))]
    assert trio.current_time() == 0


async def test_without_any_source_a_start_waits_for_nothing(autojump_clock):
    await Heard().run(1)
    assert trio.current_time() == 1


async def test_every_wrong_row_of_every_source_is_told_at_the_start(autojump_clock):
    error = await Heard(Scripted("a !x !y"), Scripted("!z")).refused()
    assert isinstance(error, ConfigError)
    assert [problem.what for problem in error.problems] == ["!x is bad", "!y is bad", "!z is bad"]


async def test_a_row_that_lacks_a_fact_costs_itself_at_the_start_of_an_elastic_run_and_refuses_another(autojump_clock):
    heard = Heard(Scripted("a ?x"))
    await heard.run(0)
    assert heard.changes == [Added(endpoint("a"))]
    assert heard.told == [(False, "listing: ?x is bad; this row is left out")]
    error = await Heard(Scripted("a ?x !y")).refused()
    assert isinstance(error, ConfigError)
    assert [problem.what for problem in error.problems] == ["!y is bad"]
    error = await Heard(Scripted("a ?x"), elastic=False).refused()
    assert isinstance(error, ConfigError)
    assert [problem.what for problem in error.problems] == ["?x is bad"]


async def test_a_source_that_fails_at_the_start_is_waited_for_only_when_elastic(autojump_clock):
    failing = Scripted(SourceError("source0: no such file"))
    heard = Heard(failing)
    await heard.run(0)
    assert heard.told == [(False, "source0: no such file; it has listed nothing yet")]
    error = await Heard(failing, elastic=False).refused()
    assert isinstance(error, ConfigError)
    assert str(error) == "source0: no such file"


async def test_a_source_that_hangs_at_the_start_holds_an_elastic_run_back_for_seconds_only(autojump_clock):
    heard = Heard(Scripted(20.0), Scripted("b"))
    await heard.run(0)
    assert trio.current_time() == 5
    assert heard.told == [(False, "no answer within 5 s; it has listed nothing yet")]
    assert heard.changes == [Added(endpoint("b", "source1"))]


async def test_a_slow_first_answer_is_taken_after_the_start(autojump_clock):
    heard = Heard(Scripted(20.0))
    await heard.run(16)
    assert heard.changes == [Added(endpoint("a"))]
    assert heard.told[-1] == (True, "readable again after 0:15")


async def test_a_run_that_is_not_elastic_gives_a_source_a_minute(autojump_clock):
    heard = Heard(Scripted(59.0), elastic=False)
    await heard.run(0)
    assert heard.changes == [Added(endpoint("a"))]
    error = await Heard(Scripted(61.0), elastic=False).refused()
    assert str(error) == "source0: no answer within 60 s"


async def test_answers_at_the_start_are_taken_in_the_order_of_the_sources(autojump_clock):
    slow, quick = Scripted(3.0), Scripted("a")
    heard = Heard(slow, quick)
    await heard.run(0)
    assert heard.changes == [Added(endpoint("a", "source0"))]


async def test_a_source_waits_until_its_first_answer_was_taken(autojump_clock):
    quick = Scripted("a", SourceError("gone"))
    heard = Heard(quick, Scripted(1e9), interval_s=1.0)
    await heard.run(0)
    assert heard.changes == [Added(endpoint("a"))]
    assert quick.asked <= 2


@pytest.mark.parametrize("elastic", [True, False])
async def test_a_source_that_cannot_be_opened_at_the_start_is_its_plugins_error_at_once(autojump_clock, elastic):
    broken = Mortal(opening=[ConnectionError("nobody there")])
    error = await Heard(broken, Scripted(1e9), elastic=elastic).refused()
    assert isinstance(error, PluginError)
    assert str(error) == "plugin plugin: source0 cannot be opened: ConnectionError: nobody there"
    assert trio.current_time() == 0
    error = await Heard(Scripted("a"), Mortal(opening=[OSError()]), elastic=elastic).refused()
    assert str(error) == "plugin source1: source1 cannot be opened: OSError"


async def test_a_source_that_opens_slowly_is_waited_for_like_one_that_answers_slowly(autojump_clock):
    elastic = Heard(Mortal(opening=[50.0]))
    await elastic.run(46)
    assert elastic.changes == [Added(endpoint("a"))]
    error = await Heard(Mortal(opening=[1e9]), elastic=False).refused()
    assert "within 60 s" in str(error)


async def test_without_elastic_a_source_is_asked_once_and_stays_open_for_what_it_lists(autojump_clock):
    mortal = Mortal("lives")
    heard = Heard(mortal, elastic=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(heard.poller.run_poller)
        await trio.sleep(1000)
        assert mortal.open_now == 1
        nursery.cancel_scope.cancel()
    assert (mortal.open_now, len(mortal.opened_at)) == (0, 1)
    asked = Scripted("a", "b")
    await Heard(asked, elastic=False).run(1000)
    assert asked.asked == 1


async def test_without_elastic_a_source_that_dies_later_is_told_and_not_opened_again(autojump_clock):
    mortal = Mortal(ConnectionError("watch lost"))
    heard = Heard(mortal, elastic=False)
    await heard.run(1000)
    assert heard.told == [(False, f"died: ConnectionError: watch lost{STANDS}")]
    assert heard.changes == [Added(endpoint("a"))]
    assert mortal.opened_at == [0]


# --- listings


async def test_a_failing_source_keeps_its_last_listing_and_is_told_of_once_at_each_change(autojump_clock):
    steps = ["a b", SourceError("half a file"), SourceError("half a file"), SourceError("gone"), "a b"]
    heard = Heard(Scripted(*steps))
    await heard.run(100)
    assert heard.changes == [Added(endpoint("a")), Added(endpoint("b"))]
    stands = "; the last good listing, 2 endpoints, stands"
    assert heard.told == [
        (False, f"half a file{stands}"), (False, f"gone{stands}"), (True, "readable again after 0:30"),
    ]  # fmt: skip


async def test_the_status_tells_the_age_of_the_listing_that_stands(autojump_clock):
    heard = Heard(Scripted("a b", SourceError("gone")), Scripted(SourceError("never")), Scripted("c d e"))
    await heard.run(65)
    assert heard.poller.status(trio.current_time()) == (
        SourceStatus("source0", 2, 65.0, "gone", 0),
        SourceStatus("source1", 0, None, "never", 0),
        SourceStatus("source2", 3, 5.0, None, 0),
    )


async def test_a_plugin_that_raises_or_returns_something_else_costs_only_its_listing(autojump_clock):
    group = ExceptionGroup("g", [ValueError("x"), ValueError("x"), ExceptionGroup("h", [SourceError("y")])])
    heard = Heard(Scripted("a", KeyError("bug"), ["no listing"], group, Listing(7), "a"))  # type: ignore[arg-type]
    await heard.run(100)
    assert heard.changes == [Added(endpoint("a"))]
    assert [message.split("; the")[0] for ok, message in heard.told if not ok] == [
        "KeyError: 'bug'",
        "list_endpoints() returned list, not a Listing",
        "ValueError: x; y",
        "TypeError: 'int' object is not iterable",
    ]
    assert heard.poller.status(0)[0].restarts == 0


async def test_an_error_that_cannot_say_what_it_is_is_told_by_its_name(autojump_clock):
    class Mute(Exception):
        def __str__(self) -> str:
            raise LookupError("no text")

    heard = Heard(Scripted("a", Mute()))
    await heard.run(15)
    assert heard.told == [(False, f"Mute{STANDS}")]


async def test_what_a_source_raises_is_told_on_one_line_that_ends(autojump_clock):
    heard = Heard(Scripted("a", SourceError("<html>\n" + "x" * 100_000)))
    await heard.run(15)
    ((_, message),) = heard.told
    assert "\n" not in message
    assert len(message) < 600


async def test_a_source_that_hangs_is_asked_again_and_does_not_hold_up_another(autojump_clock):
    hanging, good = Scripted("a", 1e9, "a"), Scripted("b", "b c")
    heard = Heard(hanging, good)
    await heard.run(100)
    assert Added(endpoint("c", "source1")) in heard.changes
    assert hanging.asked >= 3
    assert good.asked >= 9
    assert heard.told[0] == (False, f"no answer within 60 s{STANDS}")


async def test_a_source_that_polls_long_may_hold_its_answer(autojump_clock):
    source = Scripted("a", 3600.0)
    source.long_poll = True  # type: ignore[attr-defined]
    heard = Heard(source)
    await heard.run(10_000)
    assert heard.told == []
    assert source.asked == 4


async def test_a_source_that_polls_long_may_not_hold_its_first_answer(autojump_clock):
    source = Scripted(3600.0, "a", 3600.0)
    source.long_poll = True  # type: ignore[attr-defined]
    heard = Heard(source)
    await heard.run(3000)
    assert [ok for ok, _ in heard.told] == [False, True]
    assert heard.changes == [Added(endpoint("a"))]
    assert source.asked == 3


async def test_a_source_that_answers_at_once_is_asked_no_more_often_than_the_interval_says(autojump_clock):
    quick = Scripted("a")
    quick.long_poll = True  # type: ignore[attr-defined]
    await Heard(quick).run(99)
    assert quick.asked == 10


async def test_a_bad_row_is_left_out_and_told_of_once_until_it_is_right(autojump_clock):
    heard = Heard(Scripted("a", "a !x", "a !x", "a !x !y", "a"))
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
    await heard.run(100)
    assert [ok for ok, _ in heard.told] == [False, True]


def bad(name: str) -> str:
    return f"listing: !{name} is bad; this row is left out"


async def test_a_row_that_is_right_again_is_told_while_another_is_still_wrong(autojump_clock):
    heard = Heard(Scripted("a", "a !x !y", "a !y", "a"))
    await heard.run(100)
    assert heard.told[-2:] == [
        (False, f"still: {bad('y')}; no longer so: {bad('x')}"),
        (True, "every row is right again"),
    ]


async def test_a_row_that_is_still_wrong_is_told_again_when_its_source_is_readable_again(autojump_clock):
    heard = Heard(Scripted("a", "a !x", SourceError("gone"), "a !x"))
    await heard.run(35)
    assert [(ok, message.partition(";")[0]) for ok, message in heard.told] == [
        (False, "listing: !x is bad"),
        (False, "gone"),
        (True, "readable again after 0:10"),
        (False, "listing: !x is bad"),
    ]


async def test_an_endpoint_that_vanishes_drains_and_then_goes(autojump_clock):
    heard = Heard(Scripted("a b", "b"))
    await heard.run(25)
    assert [type(change) for change in heard.changes] == [Added, Added, Changed, Removed]


async def test_an_empty_listing_drains_to_zero_when_it_comes_twice(autojump_clock):
    heard = Heard(Scripted("a", ""))
    await heard.run(15)
    assert heard.changes == [Added(endpoint("a"))]
    heard = Heard(Scripted("a", ""))
    await heard.run(25)
    assert heard.changes == [Added(endpoint("a")), Removed(endpoint("a"))]
    assert heard.told == []


async def test_every_endpoint_names_the_source_that_lists_it_now(autojump_clock):
    first, second = Scripted("a b", "b", "b", SourceError("gone")), Scripted("a c")
    heard = Heard(first, second)
    await heard.run(100)
    other = endpoint("a", "source1")
    assert heard.changes == [
        Added(endpoint("a")), Added(endpoint("b")), Added(endpoint("c", "source1")), Changed(other, ("source",)),
    ]  # fmt: skip
    assert {one.url: one.source for one in heard.poller.roster} == {"a": "source1", "b": "source0", "c": "source1"}


async def test_what_wrong_rows_cost_does_not_grow_with_their_square(autojump_clock):
    compared = Comparisons()

    def url(number: int) -> Url:
        return Url(compared.of(f"http://{number}.test/v1"))

    count, pool = 300, EndpointId("pool")
    good = tuple(Endpoint(pool, "m", url(number)) for number in range(count))
    problem = Problem("listing", "wrong")
    bad = tuple(BadRow((problem,), pool, url(number), number, incomplete=True) for number in range(count, 2 * count))
    heard = Heard(Scripted("a"))
    heard.poller.check = lambda listing, present: CheckedListing(good, bad)
    await heard.run(15)
    assert compared.count < 100 * count


async def test_of_many_rows_that_go_wrong_at_once_the_first_are_told_and_the_others_counted(autojump_clock):
    many = [" ".join(f"?{word}{number}" for number in range(ROWS_TOLD + 5)) for word in ("x", "y")]
    heard = Heard(Scripted("a", f"a {many[0]}", f"a {many[0]} {many[1]}", f"a {many[1]}"))
    heard.poller.check = lambda listing, present: attrs.evolve(check(listing, present), bad=named(listing))
    await heard.run(35)
    texts = [text for _, text in heard.told]
    first = [f"listing: ?x{number} is bad; this row is left out" for number in range(ROWS_TOLD)]
    assert texts[: ROWS_TOLD + 1] == [*first, "5 more of its rows"]
    assert len(texts) == 2 * (ROWS_TOLD + 1) + 1
    assert texts[-1].startswith("still: listing: ?y0 is bad")
    assert texts[-1].endswith("; no longer so: " + "; ".join([*first, "5 more of its rows"]))
