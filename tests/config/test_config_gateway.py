"""The table ``[gateway]``: its keys, what it inherits, and how it is written back."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import tomli

from scavenge.config import EvalSettings, GatewaySettings, RunSettings, dump, identity, parse_run
from scavenge.config.schema import REQUEST_KEYS
from scavenge.errors import ConfigError

FOLDER = Path("/folder")
POOLS = 'endpoints_path = "e.toml"\n'
EVAL = '[[eval]]\nenv_id = "chat"\nendpoint_id = "a"\n'


def run_of(text: str, *overrides: str, need_evals: bool = False) -> RunSettings:
    return parse_run(text.encode(), FOLDER, "pool.toml", overrides, need_evals=need_evals)


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        run_of(text)
    return [str(problem) for problem in caught.value.problems]


def test_a_file_without_the_table_has_every_default():
    assert run_of(POOLS).gateway == GatewaySettings(
        "127.0.0.1", 8400, None, 600.0, 30.0, 64 * 1024 * 1024, 3, 20, None, 600.0, stream=True
    )


def test_every_key_can_be_set():
    text = POOLS + (
        '[gateway]\nhost = "::1"\nport = 0\ntoken_var = "DOOR_TOKEN"\nsession_idle = 5\ngrace = 0\nmax_body = 1\n'
        "max_retries = 0\nmax_lost = 0\nrequest_timeout = 9\nidle_timeout = 7\nstream = false\n"
    )
    assert run_of(text).gateway == GatewaySettings("::1", 0, "DOOR_TOKEN", 5.0, 0.0, 1, 0, 0, 9.0, 7.0, stream=False)


def test_what_holds_for_each_request_is_inherited_from_above_the_tables_as_an_eval_inherits_it():
    top = "max_retries = 1\nmax_lost = 2\nrequest_timeout = 3\nidle_timeout = 4\nstream = false\n"
    run = run_of(top + POOLS + EVAL + "[gateway]\nmax_lost = 7\n")
    assert [getattr(run.gateway, key) for key in REQUEST_KEYS] == [1, 7, 3, 4, False]
    assert [getattr(run.evals[0], key) for key in REQUEST_KEYS] == [1, 2, 3, 4, False]


def test_what_holds_for_each_request_has_the_same_default_and_bounds_in_an_eval():
    mine, evals = attrs.fields_dict(GatewaySettings), attrs.fields_dict(EvalSettings)
    for key in REQUEST_KEYS:
        assert (mine[key].default, mine[key].validator, mine[key].type) == (
            evals[key].default, evals[key].validator, evals[key].type,
        )  # fmt: skip


def test_no_other_key_above_the_tables_is_inherited():
    run = run_of('name = "tonight"\nmax_concurrent = 5\nstall_timeout = 1\n' + POOLS)
    assert run.gateway == GatewaySettings()


def test_a_wrong_default_is_told_once_where_it_stands():
    assert problems_of("max_retries = -1\nstream = 1\n" + POOLS + EVAL + "[gateway]\nport = 80\n") == [
        "pool.toml: stream: expected true or false, got 1",
        "pool.toml: max_retries: expected an integer ≥ 0, got -1",
    ]
    assert problems_of("idle_timeout = 0\n" + POOLS) == ["pool.toml: idle_timeout: expected a number > 0, got 0"]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("port = -1", "port: expected an integer from 0 to 65535, got -1"),
        ("port = 65536", "port: expected an integer from 0 to 65535, got 65536"),
        ("port = true", "port: expected an integer from 0 to 65535, got true"),
        ('port = "8400"', 'port: expected an integer from 0 to 65535, got "8400"'),
        ('host = " "', 'host: expected a non-empty string, got " "'),
        ("token_var = 'sk-abc123'", "token_var: expected the name of an environment variable, not the key itself"),
        ("session_idle = 0", "session_idle: expected a number > 0, got 0"),
        ("session_idle = inf", "session_idle: expected a finite number > 0, got inf"),
        ("grace = -0.5", "grace: expected a number ≥ 0, got -0.5"),
        ("max_body = 0", "max_body: expected an integer ≥ 1, got 0"),
        ("max_body = 1.5", "max_body: expected an integer ≥ 1, got 1.5"),
        ("max_retries = -1", "max_retries: expected an integer ≥ 0, got -1"),
        ("request_timeout = 0", "request_timeout: expected a number > 0, got 0"),
        ("token = 'sk-abc123'", 'token: unknown key; did you mean "token_var"?'),
        ("max_concurrent = 3", "max_concurrent: unknown key; "),
    ],
)
def test_a_wrong_key_names_the_table_and_what_is_expected(keys, problem):
    (told,) = problems_of(f"{POOLS}[gateway]\n{keys}\n")
    assert told.startswith(f"pool.toml: gateway.{problem}")
    assert "sk-abc123" not in told


def test_settings_that_are_made_in_python_are_checked_as_well():
    with pytest.raises(ValueError, match=r"^port: expected a number from 0 to 65535, got 70000$"):
        GatewaySettings(port=70000)


def test_the_table_that_is_none_is_told():
    assert problems_of(POOLS + "gateway = 3\n") == ["pool.toml: gateway: expected a table, got 3"]


def test_one_key_can_be_set_from_the_command_line():
    assert run_of(POOLS, "gateway.port=0", "gateway.token_var=DOOR").gateway == GatewaySettings(
        port=0, token_var="DOOR"
    )


def test_what_is_dumped_is_whole_and_loads_as_the_same():
    run = run_of("max_retries = 1\nrequest_timeout = 3\n" + POOLS + EVAL + '[gateway]\ntoken_var = "DOOR"\nport = 0\n')
    text = dump(run)
    assert tomli.loads(text)["gateway"] == {
        "host": "127.0.0.1", "port": 0, "token_var": "DOOR", "session_idle": 600.0, "grace": 30.0,
        "max_body": 64 * 1024 * 1024, "max_retries": 1, "max_lost": 20, "request_timeout": 3.0, "idle_timeout": 600.0,
        "stream": True,
    }  # fmt: skip
    assert parse_run(text.encode(), Path("/elsewhere"), "config.toml") == run


def test_the_gateway_is_no_part_of_what_a_resumed_run_must_not_differ_in():
    plain, other = (run_of(POOLS + EVAL + more).evals[0] for more in ("", "[gateway]\nport = 1\nmax_retries = 9\n"))
    assert identity(plain) == identity(other)
