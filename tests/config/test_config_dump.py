"""Settings written back."""

from __future__ import annotations

import string
from datetime import UTC, time, timedelta, timezone
from pathlib import Path

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from scavenge.config import (
    EvalSettings,
    GatewaySettings,
    ImageSettings,
    PolicySettings,
    RunSettings,
    SourceSettings,
    WorkerSettings,
    dump,
    dump_table,
    parse_run,
)
from scavenge.core.documents import parse_toml
from scavenge.core.health_settings import HealthSettings
from scavenge.core.plan import OrderSettings
from scavenge.errors import UsageError

NAMES = st.text(min_size=1, max_size=8).filter(str.strip)
KEYS = st.text(alphabet=string.ascii_letters + " .é\n", min_size=1, max_size=6).filter(
    lambda key: key not in ("type", "policy", "path", "model", "messages", "prompt", "stream")
)
JSON = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TOML = JSON | st.dates() | st.times() | st.datetimes() | st.lists(st.datetimes(timezones=OFFSETS))
TABLES = st.dictionaries(KEYS, TOML, max_size=3)
SECONDS = st.floats(0.1, 1e9)
COUNTS = st.integers(1, 10**6)
POOLS = st.fixed_dictionaries({"endpoint_id": NAMES}) | st.fixed_dictionaries(
    {"model": NAMES, "api_base_url": st.just("http://h/v1")}, optional={"api_key_var": st.sampled_from(["KEY", "k2"])}
)


@st.composite
def evals(draw, name: str):
    optional = {
        "env_args": TABLES,
        "in_worker": st.booleans(),
        "num_examples": st.integers(-1, 9),
        "rollouts_per_example": COUNTS,
        "max_concurrent": COUNTS,
        "max_retries": st.integers(0, 9),
        "max_lost": st.integers(0, 9),
        "rollout_retries": st.integers(0, 9),
        "request_timeout": SECONDS,
        "idle_timeout": SECONDS,
        "sampling_args": st.dictionaries(KEYS, JSON, max_size=3),
        "stream": st.booleans(),
    }
    keys = draw(st.fixed_dictionaries({}, optional=optional))
    return EvalSettings(env_id=draw(NAMES), name=name, **draw(POOLS), **keys)


@st.composite
def runs(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    paths = st.sampled_from([Path("/a"), Path("/a b/*.tar"), Path('/q"é')])
    optional = {
        "elastic": st.booleans(),
        "elastic_poll_interval": SECONDS,
        "stall_timeout": SECONDS,
        "max_consecutive_failures": st.integers(0, 9),
        "admission": st.builds(PolicySettings, st.none() | NAMES, TABLES),
        "sessions": st.builds(PolicySettings, st.none() | NAMES, TABLES),
        "order": st.builds(OrderSettings, st.sampled_from(["file", "longest-first"])),
        "health": st.builds(HealthSettings, probe=st.booleans(), interval=SECONDS, eject_after=COUNTS),
        "images": st.builds(
            ImageSettings,
            engine=st.none() | NAMES,
            shipments=st.lists(paths).map(tuple),
            mirrors=st.lists(st.sampled_from(["mirror.example/hub", "127.0.0.1:5000"])).map(tuple),
            min_free_disk=st.none() | COUNTS,
            keep=st.booleans(),
        ),
        "workers": st.builds(
            WorkerSettings,
            enabled=st.booleans(),
            max=st.none() | COUNTS,
            multiplex=COUNTS,
            startup_timeout=SECONDS,
            restart_backoff_max=SECONDS,
            request_deadline=SECONDS,
        ),
        "gateway": st.builds(
            GatewaySettings,
            host=NAMES,
            port=st.integers(0, 65535),
            token_var=st.none() | st.just("TOKEN"),
            grace=SECONDS,
            max_body=COUNTS,
            max_retries=COUNTS,
            request_timeout=st.none() | SECONDS,
            stream=st.booleans(),
        ),
    }
    return RunSettings(
        name=draw(NAMES),
        base_dir=draw(paths),
        output_dir=draw(paths),
        evals=tuple(draw(evals(name)) for name in names),
        sources=tuple(draw(st.lists(st.builds(SourceSettings, NAMES, TABLES), min_size=1, max_size=2))),
        **draw(st.fixed_dictionaries({}, optional=optional)),
    )


@given(runs())
def test_what_is_dumped_loads_as_equal_settings_from_anywhere(run):
    assert parse_run(dump(run).encode(), Path("/elsewhere"), "config.toml") == run


def test_every_default_is_filled_in_and_paths_are_absolute():
    text = 'endpoints_path = "e.toml"\n[[eval]]\nenv_id = "chat"\nendpoint_id = "a"\n'
    document = tomli.loads(dump(parse_run(text.encode(), Path("/folder"), "eval.toml")))
    assert (document["name"], document["output_dir"], document["base_dir"]) == ("eval", "/folder/runs", "/folder")
    assert document["source"] == [{"type": "file", "path": "/folder/e.toml"}]
    assert document["order"] == {"by": "longest-first"}
    assert document["workers"]["request_deadline"] == 600
    assert document["eval"][0]["max_retries"] == 3
    assert "endpoints_path" not in document


def test_a_run_without_sources_or_evals_is_dumped_without_them():
    document = tomli.loads(dump(RunSettings(name="x", base_dir=Path("/a"), output_dir=Path("/a"))))
    assert not document.keys() & {"source", "eval", "admission", "sessions"}


def test_keys_are_named_and_not_shown(monkeypatch):
    monkeypatch.setenv("MY_KEY", "hunter2")
    text = '[[eval]]\nenv_id = "chat"\nmodel = "m"\napi_base_url = "http://h"\napi_key_var = "MY_KEY"\n'
    written = dump(parse_run(text.encode(), Path("/folder"), "eval.toml"))
    assert "MY_KEY" in written
    assert "hunter2" not in written


@given(TABLES)
def test_a_table_comes_back_as_it_was(table):
    assert parse_toml(dump_table(table).encode()) == table


def test_what_only_toml_has_comes_back_and_a_path_stays_as_it_was_written():
    text = b"""
    at = 2030-01-02T03:04:05.678901-03:30
    day = 2030-01-02
    hour = 03:04:05
    least = -inf
    path = "data/rows.jsonl"
    odd = 1e400
    lists = [[1, "a"], [{ "a.b" = { } }]]
    """
    table = parse_toml(text)
    again = parse_toml(dump_table(table).encode())
    assert again == table
    assert again["at"].tzinfo is not None
    assert again["path"] == "data/rows.jsonl"
    (number,) = parse_toml(dump_table({"x": float("nan")}).encode()).values()
    assert number != number


def test_a_path_and_a_key_without_a_value_are_written_as_a_file_has_them():
    assert parse_toml(dump_table({"path": Path("a/b"), "none": None, "pair": (1, 2)}).encode()) == {
        "path": "a/b",
        "pair": [1, 2],
    }


@pytest.mark.parametrize("odd", [{1}, b"x", object(), [None], {1: 2}, time(1, tzinfo=UTC), [16**9000]])
def test_what_no_file_can_hold_is_refused(odd):
    with pytest.raises(UsageError, match="settings hold what TOML cannot write: "):
        dump_table({"odd": odd})


def test_the_keys_of_the_workers_come_back():
    text = (
        'endpoints_path = "e.toml"\nin_worker = true\n[[eval]]\nenv_id = "a:b"\nendpoint_id = "a"\nin_worker = false\n'
        '[[eval]]\nenv_id = "a:c"\nendpoint_id = "a"\n[workers]\nenabled = false\nmin = 2\nmultiplex = 1\n'
        "startup_timeout = 5\nrestart_backoff_max = 0.5\n"
    )
    first = parse_run(text.encode(), Path("/folder"), "eval.toml")
    again = parse_run(dump(first).encode(), Path("/elsewhere"), "config.toml")
    assert first.workers == again.workers == WorkerSettings(False, 2, None, 1, 5.0, 0.5, 5.0)
    assert [one.in_worker for one in again.evals] == [False, True]
