"""Listings become joins, changes and departures."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from counted import Comparisons
from scavenge.core.roster import Added, Changed, Removed, Roster, never_listed, not_listed
from scavenge.listings import BadRow, CheckedListing
from scavenge.types import Endpoint, EndpointId, Url

POOL = EndpointId("pool")


def endpoint(name: str, pool: str = "pool", **settings: object) -> Endpoint:
    return Endpoint(EndpointId(pool), "m", Url(f"http://{name}/v1"), **settings)  # type: ignore[arg-type]


def listing(*endpoints: Endpoint, bad: tuple[BadRow, ...] = ()) -> CheckedListing:
    return CheckedListing(endpoints, bad)


def bad(pool: str | None, name: str | None) -> BadRow:
    return BadRow((), pool and EndpointId(pool), name and Url(f"http://{name}/v1"), 0)  # type: ignore[arg-type]


A, B = endpoint("a"), endpoint("b")
DRAINING_A = attrs.evolve(A, draining=True)


def test_a_first_listing_adds_and_the_same_again_changes_nothing():
    roster = Roster.of(1)
    assert roster.update(0, listing(A, B)) == (Added(A), Added(B))
    assert roster.update(0, listing(A, B)) == ()
    assert list(roster) == [A, B]


def test_a_row_that_vanished_drains_at_once_and_is_gone_after_the_second_listing_without_it():
    roster = Roster.of(1)
    roster.update(0, listing(A, B))
    assert roster.update(0, listing(B)) == (Changed(DRAINING_A, ("draining",)),)
    assert roster.update(0, listing(B)) == (Removed(DRAINING_A),)


def test_a_row_that_comes_back_in_between_works_on():
    roster = Roster.of(1)
    roster.update(0, listing(A, B))
    roster.update(0, listing(B))
    assert roster.update(0, listing(A, B)) == (Changed(A, ("draining",)),)
    assert roster.update(0, listing(B)) == (Changed(DRAINING_A, ("draining",)),)


def test_an_empty_listing_has_no_effect_until_the_next_is_empty_too():
    roster = Roster.of(1)
    roster.update(0, listing(A, B))
    assert roster.update(0, listing()) == ()
    assert roster.update(0, listing(A, B)) == ()
    assert roster.update(0, listing()) == ()
    assert roster.update(0, listing()) == (Removed(A), Removed(B))


def test_changed_settings_are_told_by_name():
    roster = Roster.of(1)
    roster.update(0, listing(A))
    new = attrs.evolve(A, key="K2", secret="s", max_concurrent=4)
    assert roster.update(0, listing(new)) == (Changed(new, ("key", "secret", "max_concurrent")),)


def test_a_bad_row_keeps_the_endpoint_it_speaks_of():
    roster = Roster.of(1)
    roster.update(0, listing(A, B))
    for row in (bad("pool", "a"), bad(None, "a"), bad("pool", None), bad(None, None)):
        for _ in range(3):
            assert roster.update(0, listing(B, bad=(row,))) == ()


def test_where_more_endpoints_are_missing_than_vague_rows_may_mean_they_drain_and_are_not_gone():
    roster = Roster.of(1)
    c = endpoint("c")
    roster.update(0, listing(A, B, c))
    changes = roster.update(0, listing(c, bad=(bad("pool", None),)))
    assert changes == (
        Changed(DRAINING_A, ("draining",)),
        Changed(attrs.evolve(B, draining=True), ("draining",)),
    )
    for _ in range(4):
        assert roster.update(0, listing(c, bad=(bad(None, None),))) == ()
    assert roster.update(0, listing(A, c, bad=(bad("pool", None),))) == (Changed(A, ("draining",)),)
    assert roster.update(0, listing(A, c)) == (Removed(attrs.evolve(B, draining=True)),)


def test_a_bad_row_of_another_endpoint_or_pool_keeps_nobody():
    for row in (bad("pool", "c"), bad("other", "a"), bad("other", None)):
        roster = Roster.of(1)
        roster.update(0, listing(A, B))
        assert roster.update(0, listing(B, bad=(row,))) == (Changed(DRAINING_A, ("draining",)),)


def test_the_first_source_wins_an_endpoint_and_the_second_takes_over_when_it_lets_go():
    mine, theirs = attrs.evolve(A, max_concurrent=1), attrs.evolve(A, max_concurrent=9)
    roster = Roster.of(2)
    assert roster.update(1, listing(theirs)) == (Added(theirs),)
    assert roster.update(0, listing(mine, B)) == (Changed(mine, ("max_concurrent",)), Added(B))
    assert roster.update(1, listing(theirs)) == ()
    assert roster.update(0, listing(B)) == (Changed(theirs, ("max_concurrent",)),)
    assert roster.update(0, listing(B)) == ()


def test_an_endpoint_that_all_its_sources_let_go_drains_and_is_gone_with_the_last_of_them():
    roster = Roster.of(2)
    for source in (0, 1):
        roster.update(source, listing(A, B))
    assert roster.update(0, listing(B)) == ()
    assert roster.update(1, listing(B)) == (Changed(DRAINING_A, ("draining",)),)
    assert roster.update(0, listing(B)) == ()
    assert roster.update(1, listing(B)) == (Removed(DRAINING_A),)


def test_a_change_of_hands_alone_is_told_by_the_sources_name():
    mine, theirs = attrs.evolve(A, source="mine"), attrs.evolve(A, source="theirs")
    roster = Roster.of(2)
    roster.update(0, listing(mine, B))
    assert roster.update(1, listing(theirs)) == ()
    assert roster.update(0, listing(B)) == (Changed(theirs, ("source",)),)
    assert roster.update(0, listing(mine, B)) == (Changed(mine, ("source",)),)


def test_a_source_that_says_nothing_more_keeps_its_endpoints_whatever_another_says():
    roster = Roster.of(2)
    roster.update(0, listing(A))
    for _ in range(3):
        roster.update(1, listing(B))
        roster.update(1, listing())
    assert A in list(roster)


def test_one_sources_empty_listing_takes_nothing_from_the_other():
    roster = Roster.of(2)
    roster.update(0, listing(A))
    roster.update(1, listing(B))
    roster.update(0, listing())
    assert roster.update(0, listing()) == (Removed(A),)
    assert list(roster) == [B]


def test_an_answer_that_lacks_another_endpoint_each_time_loses_none_of_them():
    roster, c = Roster.of(1), endpoint("c")
    roster.update(0, listing(A, B, c))
    for step in range(9):
        changes = roster.update(0, listing(*[one for index, one in enumerate((A, B, c)) if index != step % 3]))
        assert all(isinstance(change, Changed) for change in changes)
    assert len(list(roster)) == 3


NAMES = st.sets(st.sampled_from("abcd"))


@given(st.lists(st.tuples(st.integers(0, 1), NAMES, st.booleans())))
def test_changes_add_up_to_what_is_present(steps: list[tuple[int, set[str], bool]]):
    roster, told = Roster.of(2), {}
    for source, names, unreadable in steps:
        rows = (bad(None, None),) if unreadable else ()
        for change in roster.update(source, listing(*(endpoint(name) for name in sorted(names)), bad=rows)):
            match change:
                case Added(new):
                    assert new.url not in told
                    told[new.url] = new
                case Changed(new, keys):
                    assert keys
                    assert told[new.url] != new
                    told[new.url] = new
                case Removed(old):
                    assert told.pop(old.url) == old
        assert {e.url: e for e in roster} == told


def test_what_a_listing_costs_does_not_grow_with_the_square_of_what_vanishes_or_is_wrong_at_once():
    compared = Comparisons()

    def name(number: int) -> Url:
        return Url(compared.of(f"http://{number}/v1"))

    count, pool = 300, EndpointId(compared.of("pool"))
    roster = Roster.of(1)
    roster.update(0, listing(*(Endpoint(pool, "m", name(number)) for number in range(count))))
    wrong = tuple(BadRow((), pool, name(number), number) for number in range(count, 2 * count))
    compared.count = 0
    for _ in range(2):
        roster.update(0, listing(bad=wrong))
    assert compared.count < 100 * count
    assert list(roster) == []


def test_an_id_that_nobody_has_is_told_with_all_that_there_are_and_the_nearest():
    listed_ids = [endpoint("a", "qwen"), endpoint("b", "glm"), endpoint("c", "glm")]
    why = "no endpoint has this id; listed are 'glm', 'qwen'"
    assert not_listed(EndpointId("gml"), listed_ids) == f"{why}; did you mean 'glm'?"
    assert not_listed(EndpointId("other"), listed_ids) == why
    assert not_listed(EndpointId("glm"), []) == "no endpoint is listed"
    problem = never_listed(EndpointId("glm"), "no endpoint is listed")
    assert str(problem) == "endpoint_id 'glm': no endpoint is listed; with elastic = false nothing is asked again"
