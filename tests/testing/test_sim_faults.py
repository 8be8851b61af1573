"""The script language: what it means, and what it says of what it does not understand."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.errors import ConfigError
from scavenge.testing import faults
from scavenge.testing.faults import Step, parse_script, starts_absent

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
    "error": faults.Error(),
    "error {} status=502 rate=0.02 for=1.5": faults.Error(502, 0.02, 1.5),
    "garbage": faults.Garbage(),
    "garbage {} for=0": faults.Garbage(0.0),
}


@pytest.mark.parametrize(("text", "fault"), WORDS.items())
def test_each_word_means_its_fault(text, fault):
    statement = text.format("ep2") if "{}" in text else f"{text} ep2"
    assert parse_script(f"t=2.5 {statement}", NAMES) == (Step(2.5, "ep2", fault),)


def test_every_fault_has_its_word():
    assert {type(fault) for fault in WORDS.values()} == set(faults.Fault.__args__)


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
    assert [starts_absent(name, steps) for name in NAMES] == [True, False, False, False]


@given(st.text(alphabet="t=1 kilbusyep\n;#.forx-\u2028\0é", max_size=60))
def test_any_text_is_a_script_or_a_config_error(text):
    with suppress(ConfigError):
        parse_script(text, NAMES)
