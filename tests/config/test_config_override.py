"""``--set KEY=VALUE``."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.config import parse_run, structure_plugin
from scavenge.config.override import parse_override
from scavenge.errors import ConfigError

TWO = """
endpoints_path = "e.toml"
max_retries = 1
[[eval]]
env_id = "a"
endpoint_id = "p"
env_args = { list = [1, 2] }
[[eval]]
env_id = "b"
endpoint_id = "p"
max_retries = 2
"""


def run_of(*overrides: str):
    return parse_run(TWO.encode(), Path("/folder"), "eval.toml", overrides)


def problems_of(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        run_of(*overrides)
    return [str(problem) for problem in caught.value.problems]


def test_an_index_means_one_eval_and_none_means_all():
    assert [one.max_retries for one in run_of("eval[0].max_retries=5").evals] == [5, 2]
    assert [one.max_retries for one in run_of("eval.max_retries=5").evals] == [5, 5]


def test_a_default_at_the_top_does_not_win_over_an_eval():
    assert [one.max_retries for one in run_of("max_retries=5").evals] == [5, 2]


def test_tables_that_are_not_there_are_made():
    run = run_of("admission.policy=fixed", "admission.limit=3", "eval[1].sampling_args.temperature=0.5")
    assert (run.admission.policy, run.admission.keys) == ("fixed", {"limit": 3})
    assert [one.sampling_args for one in run.evals] == [{}, {"temperature": 0.5}]


def test_an_item_of_a_list_and_a_quoted_key_can_be_set():
    run = run_of("eval[0].env_args.list[1]=9", """eval[0].env_args."a b".'c.d'=true""")
    assert run.evals[0].env_args == {"list": [1, 9], "a b": {"c.d": True}}


def test_a_value_for_all_evals_is_each_evals_own():
    run = run_of("eval.env_args={a=1}", "eval[0].env_args.a=2")
    assert [one.env_args for one in run.evals] == [{"a": 2}, {"a": 1}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        (" 3", 3),
        ("true", True),
        ("2030-01-01", date(2030, 1, 1)),
        ("[1, 2]", [1, 2]),
        ("{a = 1}", {"a": 1}),
        ('"3"', "3"),
        ("fixed", "fixed"),
        ("", ""),
        ("a=b", "a=b"),
        ("1\nother = 2", "1\nother = 2"),
        ("[" * 5000, "[" * 5000),
    ],
)
def test_a_value_is_what_toml_makes_of_it_or_a_string(text, value):
    assert parse_override(f"key={text}").value == value


def test_a_key_deeper_than_any_file_is_an_error():
    (told,) = problems_of("a." * 2000 + "a=1")
    assert told.endswith("expected KEY=VALUE, such as eval[0].max_retries=5")


def test_blanks_around_the_equals_sign_are_ignored():
    assert parse_override("a.b = 3").path == ("a", "b")


@pytest.mark.parametrize(
    "text", ["foo", "", "=3", "a..b=1", ".a=1", "[0]=1", "a[0]b=1", "a[x]=1", "a[-1]=1", "a b=1", 'a."b=1', "a.=1"]
)
def test_what_is_no_key_and_value_is_an_error_without_the_value(text):
    assert problems_of(text) == [
        f"--set {text.split('=', maxsplit=1)[0]}: expected KEY=VALUE, such as eval[0].max_retries=5"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("eval[2].name=x", "--set eval[2].name: eval has no [2]; it has 2, counted from 0"),
        ("max_retries[0]=x", "--set max_retries[0]: max_retries is no list, so it has no [0]"),
        ("admission[0]=x", "--set admission[0]: admission is no list, so it has no [0]"),
        ("max_retries.x=1", "--set max_retries.x: max_retries is no table"),
        ("eval[0].env_args.list.x=1", "--set eval[0].env_args.list.x: eval[0].env_args.list is no table"),
        ("eval.max_retries=x", '--set eval.max_retries: expected an integer ≥ 0, got "x"'),
        ("eval[1].max_retires=3", '--set eval[1].max_retires: unknown key; did you mean "max_retries"?'),
        ("eval[0]={x=3, env_id='a', endpoint_id='a'}", '--set eval[0].x: unknown key; valid: "api_base_url"'),
        ("elastic=1", "--set elastic: expected true or false, got 1"),
        ("eval[0].sampling_args.a=nan", "eval.toml: eval[0].sampling_args: must hold what JSON can write, got nan"),
    ],
)
def test_an_error_names_the_option_that_made_it(text, problem):
    (told,) = problems_of(text)
    assert told.startswith(problem)


def test_evals_cannot_be_set_where_there_are_none():
    with pytest.raises(ConfigError) as caught:
        parse_run(b"", Path("/folder"), "eval.toml", ["eval.max_retries=3"])
    assert str(caught.value.problems[0]) == "--set eval.max_retries: there is no [[eval]] in the file"


def test_a_plugins_key_that_was_set_is_told_with_its_option():
    import attrs

    @attrs.frozen
    class Fixed:
        limit: "int" = 1  # noqa: UP037

    run = run_of("admission.limit=x")
    with pytest.raises(ConfigError, match=r'^--set admission.limit: expected an integer, got "x"$'):
        structure_plugin(Fixed, run.admission.keys, run.where.at("admission"), run.base_dir)


@given(st.text(alphabet="eval[0]. =\"'ab1\\{}", max_size=20))
def test_any_text_is_an_override_or_a_config_error(text):
    problems = ()
    try:
        run_of(text)
    except ConfigError as exc:
        problems = exc.problems
    assert all(str(problem).isprintable() for problem in problems)
