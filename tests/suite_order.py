"""In which order the processes that share the suite go through it: each begins with its share of what takes long.

What takes long does so mostly by waiting. Begun last, it would be all that is left to do at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

LONG = (
    "test_a_network_that_is_lost_is_told_as_what_it_is_and_ejects_nobody",
    "test_the_readmes_first_command_ends_with_a_run_that_answers_every_question",
    "test_the_requests_on_a_host_whose_packets_vanish_are_answered_by_others_and_it_is_used_again",
    "test_servers_that_are_killed_and_told_to_go_are_used_again_once_they_are_back",
    "test_a_server_that_freezes_and_a_host_whose_packets_vanish_are_used_again_after_it",
    "test_hours_of_churn_cost_no_sample",
    "test_a_thousand_rollouts_through_four_workers_of_which_one_is_killed_every_second_come_once_each",
    "test_a_server_that_refuses_what_is_beyond_three_is_asked_seldom_and_answers_all",
    "test_few_descriptors_for_many_slots_cost_time_and_nobody_is_ejected",
    "test_killed_again_and_again_at_any_moment_a_run_ends_with_one_result_for_every_sample",
    "test_a_server_that_comes_and_one_that_goes_are_seen_and_a_lost_board_changes_nothing",
)


class Named(Protocol):
    """A collected test."""

    name: str


AnyNamed = TypeVar("AnyNamed", bound=Named)


def long_first(items: Sequence[AnyNamed], processes: int) -> list[AnyNamed]:
    """The same tests, the long ones dealt to the beginnings of the even parts that pytest-xdist gives out at first."""
    long = [item for item in items if is_long(item)]
    others = [item for item in items if not is_long(item)]
    ordered: list[AnyNamed] = []
    for index in range(processes):
        ordered += long[index::processes]
        room = max(0, len(items) * (index + 1) // processes - len(ordered))
        ordered += others[:room]
        del others[:room]
    return ordered


def is_long(item: Named) -> bool:
    """Whether a test, with any parameters, is one of those."""
    return item.name.partition("[")[0] in LONG
