"""Settings written back."""

from __future__ import annotations

import string
from datetime import timedelta, timezone
from pathlib import Path

import tomli
from hypothesis import given
from hypothesis import strategies as st

from scavenge.config import (
    EvalSettings,
    ImageSettings,
    PolicySettings,
    RunSettings,
    SourceSettings,
    WorkerSettings,
    dump,
    parse_run,
)
from scavenge.core.health_settings import HealthSettings
from scavenge.core.plan import OrderSettings

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
            mirrors=st.lists(NAMES).map(tuple),
            keep=st.booleans(),
        ),
        "workers": st.builds(WorkerSettings, max=st.none() | COUNTS, request_deadline=SECONDS),
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
