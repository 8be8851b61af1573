"""Which calls of foreign clients the log tells of."""

from __future__ import annotations

import pytest

from scavenge.core.call_lines import TELL_EVERY_S, CallLines
from scavenge.events import CallEnded
from scavenge.types import EndpointId


def call(outcome: str, attempts: int = 3, pool: str = "glm") -> CallEnded:
    return CallEnded(EndpointId(pool), outcome, True, 12.0, attempts)


@pytest.mark.parametrize(
    ("outcome", "level", "said"),
    [
        ("ok", "debug", "glm: a call was answered after 12.0s, sent 3 times"),
        ("hung up", "debug", "glm: a call is over after 12.0s, sent 3 times: hung up"),
        ("rejected", "debug", "glm: a call is over after 12.0s, sent 3 times: rejected"),
        ("ended", "debug", "glm: a call is over after 12.0s, sent 3 times: ended"),
        ("stalled", "warning", "glm: a call was given up after 12.0s, sent 3 times: stalled"),
        ("lost", "warning", "glm: a call was given up after 12.0s, sent 3 times: lost"),
    ],
)
def test_only_what_is_given_up_is_a_warning(outcome, level, said):
    line = CallLines().line(call(outcome), 0.0)
    assert (line.level, line.text) == (level, said)


def test_of_many_that_are_given_up_one_a_minute_is_told_with_the_number_of_the_others():
    lines = CallLines()
    told = [lines.line(call("lost", 1), second) for second in range(121)]
    warnings = [line.text for line in told if line.level == "warning"]
    begin = "glm: a call was given up after 12.0s, sent 1 time: lost"
    assert warnings == [begin, *[f"{begin} (59 more since this was last told)"] * 2]
    assert len(told) - len(warnings) == 118


def test_the_first_after_a_quiet_minute_counts_no_others():
    lines = CallLines()
    lines.line(call("lost"), 0.0)
    lines.line(call("ok"), 1.0)
    line = lines.line(call("lost"), TELL_EVERY_S)
    assert (line.level, "more" in line.text) == ("warning", False)


def test_each_pool_is_told_of_by_itself_and_no_name_breaks_a_line():
    lines = CallLines()
    assert [lines.line(call("lost", pool=name), 0.0).level for name in ("a", "b\nc", "a")] == [
        "warning", "warning", "debug",
    ]  # fmt: skip
    assert "\n" not in lines.line(call("ok", pool="b\nc"), 0.0).text
