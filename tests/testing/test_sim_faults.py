"""The script language: what it means, and what it says of what it does not understand."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.errors import ConfigError
from scavenge.testing import faults
from scavenge.testing.faults import Step, absent_at_start, format_script, parse_script, read_steps

NAMES = ["ep1", "ep2", "ep3", "ep4"]

WORDS = {
    "kill": faults.Kill(),
    "restart": faults.Restart(),
    "join": faults.Join(),
    "leave": faults.Leave(),
    "drain": faults.Drain(),
    "abort": faults.Abort(),
    "heal": faults.Heal(),
    "busy": faults.Busy(),
    "busy {} retry_after=3 status=503 for=9": faults.Busy(3.0, 503, 9.0),
    "freeze": faults.Freeze(),
    "freeze {} for=10": faults.Freeze(10.0),
    "slow": faults.Slow(),
    "slow {} for=5 x=3": faults.Slow(3.0, 5.0),
    "kv": faults.Kv(),
    "kv {} x=0.25 for=9": faults.Kv(0.25, 9.0),
    "error": faults.Error(),
    "error {} status=502 rate=0.02 for=1.5": faults.Error(502, 0.02, 1.5),
    "garbage": faults.Garbage(),
    "garbage {} for=0": faults.Garbage(0.0),
    "cap {} max_concurrent=3": faults.Cap(max_concurrent=3),
    "cap {} slots=2": faults.Cap(slots=2),
    "cap {} slots=2 max_concurrent=1": faults.Cap(1, 2),
    "notice {} in=30": faults.Notice(30.0),
}
OF_THE_LISTING = {
    "outage": faults.Outage(),
    "outage {} for=60": faults.Outage(60.0),
    "empty": faults.Empty(),
    "empty {} for=0.5": faults.Empty(0.5),
    "hang": faults.Hang(),
    "hang {} for=5": faults.Hang(5.0),
    "heal": faults.Heal(),
}


@pytest.mark.parametrize(("text", "fault"), WORDS.items())
def test_each_word_means_its_fault(text, fault):
    statement = text.format("ep2") if "{}" in text else f"{text} ep2"
    assert parse_script(f"t=2.5 {statement}", NAMES) == (Step(2.5, "ep2", fault),)


@pytest.mark.parametrize(("text", "fault"), OF_THE_LISTING.items())
def test_a_word_about_the_listing_has_the_fleet_in_the_place_of_a_server(text, fault):
    statement = text.format("fleet") if "{}" in text else f"{text} fleet"
    assert parse_script(f"t=2.5 {statement}", NAMES) == (Step(2.5, "fleet", fault),)


def test_every_fault_has_its_word():
    assert {type(fault) for fault in WORDS.values()} == set(faults.Fault.__args__)
    assert {type(fault) for fault in OF_THE_LISTING.values()} == set(faults.ListingFault.__args__)


TIMES = st.floats(0, 1e9).map(abs)
OPTIONAL_TIMES = st.none() | TIMES
CAPS = st.integers(1, 1_000_000)
FAULTS = st.one_of(
    *(st.just(kind()) for kind in (faults.Kill, faults.Restart, faults.Join, faults.Leave, faults.Drain)),
    *(st.just(kind()) for kind in (faults.Abort, faults.Heal)),
    *(st.builds(kind, OPTIONAL_TIMES) for kind in (faults.Freeze, faults.Garbage)),
    st.builds(faults.Busy, OPTIONAL_TIMES, st.integers(400, 599), OPTIONAL_TIMES),
    st.builds(faults.Slow, st.floats(0.001, 1_000_000), OPTIONAL_TIMES),
    st.builds(faults.Kv, st.floats(0.001, 1000), OPTIONAL_TIMES),
    st.builds(faults.Error, st.integers(400, 599), st.floats(0, 1).map(abs), OPTIONAL_TIMES),
    st.builds(faults.Cap, CAPS, st.none() | CAPS),
    st.builds(faults.Cap, st.none(), CAPS),
    st.builds(faults.Notice, TIMES),
)
OF_THE_FLEET = st.one_of(*(st.builds(kind, OPTIONAL_TIMES) for kind in (faults.Outage, faults.Empty, faults.Hang)))
STEPS = st.builds(Step, TIMES, st.sampled_from(NAMES), FAULTS) | st.builds(Step, TIMES, st.just("fleet"), OF_THE_FLEET)


@given(st.lists(STEPS, max_size=8))
def test_steps_that_are_written_as_a_script_are_read_as_the_same_steps(steps):
    assert parse_script(format_script(steps), NAMES) == read_steps(steps, NAMES)


def test_a_script_leaves_out_what_goes_without_saying():
    steps = [Step(1, "ep1", faults.Busy()), Step(2.5, "ep2", faults.Busy(3, for_s=9)), Step(3, "fleet", faults.Hang())]
    assert format_script(steps) == "t=1 busy ep1\nt=2.5 busy ep2 retry_after=3 for=9\nt=3 hang fleet\n"


def test_steps_about_what_is_not_there_are_refused():
    steps = [Step(0, "ep1", faults.Kill()), Step(1, "ep9", faults.Kill()), Step(2, "ep1", faults.Hang())]
    with pytest.raises(ConfigError) as caught:
        read_steps(steps, NAMES)
    assert [str(problem) for problem in caught.value.problems] == [
        'step[1]: unknown server "ep9", did you mean "ep4"?',
        'step[2]: hang happens to the listing of the whole fleet: expected "fleet", got "ep1"',
    ]


def test_statements_are_separated_by_semicolons_and_lines_and_sorted_by_time():
    script = """
        t=9 kill ep1 ; t=1 join ep4   # comes first
        # nothing here
        t=9 restart ep1;;
    """
    assert parse_script(script, NAMES) == (
        Step(1.0, "ep4", faults.Join()),
        Step(9.0, "ep1", faults.Kill()),
        Step(9.0, "ep1", faults.Restart()),
    )


@pytest.mark.parametrize("script", ["", " ; \n;", "# only a comment"])
def test_an_empty_script_has_no_steps(script):
    assert parse_script(script, NAMES) == ()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill ep1", 'script:1:1: expected "t=SECONDS WORD SERVER", got "kill ep1"'),
        ("t=1", 'script:1:1: expected a word and a server after "t=1", as in "t=1 kill ep1"'),
        ("t=1 kill", 'script:1:1: expected a word and a server after "t=1", as in "t=1 kill ep1"'),
        ("t= kill ep1", 'script:1:1: t: expected a number of at least 0, got ""'),
        ("t=-1 kill ep1", 'script:1:1: t: expected a number of at least 0, got "-1"'),
        ("t=nan kill ep1", 'script:1:1: t: expected a number of at least 0, got "nan"'),
        ("t=inf kill ep1", 'script:1:1: t: expected a number of at least 0, got "inf"'),
        ("t=1_0 kill ep1", 'script:1:1: t: expected a number of at least 0, got "1_0"'),
        ("t=1e400 kill ep1", 'script:1:1: t: expected a number of at least 0, got "1e400"'),
        ("t=1 kil ep1", 'script:1:1: unknown word "kil", did you mean "kill"?'),
        ("t=1 kill ep9", 'script:1:1: unknown server "ep9", did you mean "ep4"?'),
        ("t=1 kill host", 'script:1:1: unknown server "host", expected one of ep1, ep2, ep3, ep4'),
        ("t=1 kill ep1 for=3", 'script:1:1: kill takes no options, got "for=3"'),
        ("t=1 busy ep1 retry-after=3", 'script:1:1: unknown option of busy "retry-after", did you mean "retry_after"?'),
        ("t=1 busy ep1 for", 'script:1:1: expected "for=VALUE", got "for"'),
        ("t=1 busy ep1 for=1 for=2", 'script:1:1: option "for" is given twice'),
        ("t=1 error ep1 rate=1.5", 'script:1:1: rate: expected a number from 0 to 1, got "1.5"'),
        ("t=1 error ep1 status=200", 'script:1:1: status: expected an HTTP status from 400 to 599, got "200"'),
        ("t=1 error ep1 status=9999", 'script:1:1: status: expected an HTTP status from 400 to 599, got "9999"'),
        ("t=1 cap ep1", "script:1:1: cap needs max_concurrent=VALUE or slots=VALUE"),
        ("t=1 cap ep1 slots=0", 'script:1:1: slots: expected a whole number from 1 to 1000000, got "0"'),
        ("t=1 cap ep1 slots=1.5", 'script:1:1: slots: expected a whole number from 1 to 1000000, got "1.5"'),
        ("t=1 notice ep1", "script:1:1: notice needs in=VALUE"),
        ("t=1 notice ep1 in=-1", 'script:1:1: in: expected a number of at least 0, got "-1"'),
        (
            "t=1 kill fleet",
            'script:1:1: kill happens to a server, not to the listing of the fleet, as in "kill ep1"',
        ),
        (
            "t=1 outage ep1",
            'script:1:1: outage happens to the listing of the whole fleet: expected "fleet", got "ep1"',
        ),
        ("t=1 slow ep1 x=0", 'script:1:1: x: expected a number from 0.001 to 1e+06, got "0"'),
    ],
)
def test_a_wrong_statement_is_named_with_the_remedy(script, message):
    with pytest.raises(ConfigError) as caught:
        parse_script(script, NAMES)
    assert str(caught.value) == message


def test_all_that_is_wrong_is_told_at_once_with_line_and_column():
    with pytest.raises(ConfigError) as caught:
        parse_script("t=1 kill ep1;  t=2 kil ep1\n\n   t=x kill ep1", NAMES)
    assert [problem.where for problem in caught.value.problems] == ["script:1:16", "script:3:4"]


def test_a_server_that_joins_first_is_absent_at_the_start():
    steps = parse_script("t=1 join ep1; t=2 kill ep2; t=3 join ep2; t=4 leave ep1", NAMES)
    assert absent_at_start(steps) == {"ep1"}


@given(st.text(alphabet="t=1 kilbusyep\n;#.forx-\u2028\0é", max_size=60))
def test_any_text_is_a_script_or_a_config_error(text):
    with suppress(ConfigError):
        parse_script(text, NAMES)
