"""Evaluation files: what is valid, what is not, and how it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.config import EvalSettings, PolicySettings, Where, identity, load_run, parse_run
from scavenge.config.assemble import PLAIN_TABLES, POLICY_TABLES, RUN_KEYS, assemble
from scavenge.errors import ConfigError

SMALLEST = """
elastic = true
elastic_poll_interval = 10
endpoints_path = "endpoints.toml"

[[eval]]
env_id = "primeintellect/math-env"
endpoint_id = "zai-org/GLM-4.7-FP8"
"""
FOLDER = Path("/folder")
NO_URL = "expected an absolute http:// or https:// URL, such as http://10.0.0.7:8000/v1"


def run_of(text: str, *overrides: str):
    return parse_run(text.encode("utf-8", "surrogatepass"), FOLDER, "eval.toml", overrides)


def problems_of(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        run_of(text, *overrides)
    return [str(problem) for problem in caught.value.problems]


def one_eval(keys: str = "", top: str = "") -> str:
    return f'endpoints_path = "e.toml"\n{top}\n[[eval]]\nenv_id = "chat"\nendpoint_id = "a"\n{keys}\n'


def test_the_smallest_useful_file_is_valid_with_every_default():
    run = run_of(SMALLEST)
    assert run.evals == (EvalSettings(env_id="primeintellect/math-env", endpoint_id="zai-org/GLM-4.7-FP8"),)
    assert (run.name, run.output_dir, run.elastic, run.elastic_poll_interval) == ("eval", FOLDER / "runs", True, 10.0)
    assert (run.stall_timeout, run.max_consecutive_failures) == (600, 12)
    assert [(source.type, source.keys) for source in run.sources] == [("file", {"path": "/folder/endpoints.toml"})]
    assert run.admission == run.sessions == PolicySettings(None)
    assert run.order.by == "longest-first"
    one = run.evals[0]
    assert (one.name, one.num_examples, one.max_retries, one.max_lost) == ("primeintellect/math-env", -1, 3, 20)
    assert (one.idle_timeout, one.request_timeout, one.stream, one.in_worker) == (600, None, True, None)
    assert (one.env_args, one.sampling_args, one.max_concurrent) == ({}, {}, None)


def test_an_eval_key_wins_over_the_default_at_the_top():
    text = 'endpoints_path = "e"\nmax_retries = 1\nsampling_args = { temperature = 0, top_p = 1 }\nenv_id = "chat"\n'
    text += 'name = "tonight"\n[[eval]]\nendpoint_id = "a"\nname = "x"\nmax_retries = 7\nsampling_args = {n = 2}\n'
    text += '[[eval]]\nendpoint_id = "b"\n'
    run = run_of(text)
    first, second = run.evals
    assert run.name == "tonight"
    assert (first.name, first.max_retries, first.sampling_args) == ("x", 7, {"n": 2})
    assert (second.name, second.max_retries, second.sampling_args) == ("chat", 1, {"temperature": 0, "top_p": 1})


def test_all_problems_of_a_file_are_told_at_once():
    text = """
elastic = "yes"
elastic_poll_interval = 0
endpoints_path = 3
elastic_pol_interval = 3
rollouts_per_example = 0
[[eval]]
endpoint_id = "a"
max_retires = 3
[[eval]]
env_id = "x"
max_retries = "three"
[[eval]]
api_base_url = "ftp://h"
api_key_var = "sk-123"
request_timeout = nan
[admission]
policy = 3
[order]
by = "size"
[health]
interval = 0
[workers]
min = 3
max = 2
[images]
mirrors = "abc"
shipments = [1]
"""
    assert problems_of(text) == [
        'eval.toml: elastic_pol_interval: unknown key; did you mean "elastic_poll_interval"?',
        'eval.toml: elastic: expected true or false, got "yes"',
        "eval.toml: elastic_poll_interval: expected a number ≥ 0.1, got 0",
        "eval.toml: rollouts_per_example: expected an integer ≥ 1, got 0",
        'eval.toml: eval[0].max_retires: unknown key; did you mean "max_retries"?',
        "eval.toml: eval[0].env_id: this key is required",
        'eval.toml: eval[1].max_retries: expected an integer ≥ 0, got "three"',
        f"eval.toml: eval[2].api_base_url: {NO_URL}",
        "eval.toml: eval[2].request_timeout: expected a finite number > 0, got nan",
        "eval.toml: eval[2].api_key_var: expected the name of an environment variable, not the key itself",
        "eval.toml: eval[2].env_id: this key is required",
        'eval.toml: order.by: expected "longest-first" or "file", got "size"',
        "eval.toml: health.interval: expected a number > 0, got 0",
        "eval.toml: images.shipments[0]: expected a string, got 1",
        'eval.toml: images.mirrors: expected a list, got "abc"',
        "eval.toml: workers: min must not be above max, got min = 3 and max = 2; lower min or raise max",
        "eval.toml: admission.policy: expected a non-empty string, got 3",
        "eval.toml: endpoints_path: expected a string, got 3",
    ]


def test_problems_of_an_eval_are_told_beside_those_of_its_class():
    problems = problems_of('endpoints_path = "e"\n[[eval]]\n[[eval]]\nenv_id = "c"\nendpoint_id = "a"\nmodel = "m"\n')
    assert problems == [
        "eval.toml: eval[0].env_id: this key is required",
        "eval.toml: eval[1]: endpoint_id excludes model, api_base_url and api_key_var; keep one way to name the pool",
    ]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("max_concurrent = true", "max_concurrent: expected an integer ≥ 1, got true"),
        ("max_concurrent = 0", "max_concurrent: expected an integer ≥ 1, got 0"),
        ("max_retries = 1.0", "max_retries: expected an integer ≥ 0, got 1.0"),
        ("max_retries = -1", "max_retries: expected an integer ≥ 0, got -1"),
        ("max_lost = []", "max_lost: expected an integer ≥ 0, got an empty list"),
        ("num_examples = -2", "num_examples: expected an integer ≥ -1, got -2"),
        ("idle_timeout = true", "idle_timeout: expected a number > 0, got true"),
        ("idle_timeout = inf", "idle_timeout: expected a finite number > 0, got inf"),
        (f"idle_timeout = {10**400}", "idle_timeout: expected a finite number > 0, got an integer of more than"),
        ("idle_timeout = 0", "idle_timeout: expected a number > 0, got 0"),
        ("stream = 1", "stream: expected true or false, got 1"),
        ("in_worker = 0", "in_worker: expected true or false, got 0"),
        ("in_worker = 'yes'", 'in_worker: expected true or false, got "yes"'),
        ("name = ' '", 'name: expected a non-empty string, got " "'),
        ("env_args = []", "env_args: expected a table, got an empty list"),
        ("sampling_args = { stream = false }", "sampling_args: must not set stream"),
        ("sampling_args = { model = 'm' }", "sampling_args: must not set model"),
        ("sampling_args = { stop = [2030-01-01] }", "sampling_args: must hold what JSON can write, got a date"),
        ("sampling_args = { a = { b = nan } }", "sampling_args: must hold what JSON can write, got nan"),
        ("elastic = true", "elastic: this key is the run's; move it above the first table"),
        ("endpoints_path = 'x'", "endpoints_path: this key is the run's; move it above the first table"),
        ("'a b' = 1", '"a b": unknown key; '),
    ],
)
def test_a_wrong_eval_key_names_table_key_and_what_is_expected(keys, problem):
    (told,) = problems_of(one_eval(keys))
    assert told.startswith(f"eval.toml: eval[0].{problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "eval.toml: nothing to evaluate; add an [[eval]] table"),
        ("eval = []", "eval.toml: nothing to evaluate; add an [[eval]] table"),
        ("[eval]\nenv_id = 'x'", "eval.toml: eval: expected a list of tables; begin each of them with [[eval]]"),
        ("eval = [1]", "eval.toml: eval[0]: expected a table, got 1"),
        (one_eval(top="source = {}"), "eval.toml: source: expected a list of tables"),
        (one_eval(top="source = [1]"), "eval.toml: source[0]: expected a table, got 1"),
        (one_eval("[[source]]\npath = 'x'"), 'eval.toml: source[0].type: this key is required, such as type = "file"'),
        (one_eval("[[source]]\ntype = 3"), "eval.toml: source[0].type: expected a non-empty string, got 3"),
        (one_eval(top="health = 3"), "eval.toml: health: expected a table, got 3"),
        (one_eval("[sessions]\npolicy = ''"), 'eval.toml: sessions.policy: expected a non-empty string, got ""'),
        (one_eval(top="sessions = 3"), "eval.toml: sessions: expected a table, got 3"),
        (one_eval(top="base_dir = 3"), "eval.toml: base_dir: expected a string, got 3"),
        (one_eval(top="base_dir = '\\u0000'").replace("'", '"'), "eval.toml: base_dir: expected a path, got "),
        (one_eval(top="output_dir = ''"), 'eval.toml: output_dir: expected a path, got ""'),
        (one_eval("[health]\nprob = true"), 'eval.toml: health.prob: unknown key; did you mean "probe"?'),
        ("a = 1\nb = @", "eval.toml: line 2, column 5: invalid value"),
        ("\ud800", "eval.toml: line 1: byte 0xed is not UTF-8; save it as UTF-8"),
    ],
)
def test_a_wrong_shape_is_told_with_its_place(text, problem):
    (told,) = problems_of(text)
    assert told.startswith(problem)


def test_a_wrong_default_is_told_once_where_it_stands():
    text = 'endpoints_path = "e"\nenv_id = 3\n[[eval]]\nendpoint_id = "a"\n[[eval]]\nendpoint_id = "b"\nstream = 1\n'
    assert problems_of(text) == [
        "eval.toml: env_id: expected a non-empty string, got 3",
        "eval.toml: eval[1].stream: expected true or false, got 1",
    ]


def test_a_file_without_evals_is_taken_where_none_are_needed():
    assert parse_run(b'endpoints_path = "e"', FOLDER, "pool.toml", need_evals=False).evals == ()


def test_an_endpoint_id_without_any_source_is_an_error():
    (told,) = problems_of("[[eval]]\nenv_id = 'chat'\nendpoint_id = 'a'\n")
    assert told.startswith("eval.toml: eval[0].endpoint_id: names a pool, but no source lists endpoints; set ")


def test_one_fixed_server_needs_no_source_and_is_a_pool_of_its_own():
    server = 'env_id = "chat"\nmodel = "m"\napi_base_url = "http://H:80/v1/"\n'
    text = f'[[eval]]\n{server}\n[[eval]]\nname = "b"\n{server}\napi_key_var = "KEY"\n'
    plain, keyed = run_of(text).evals
    assert plain.api_base_url == "http://h/v1"
    assert (plain.pool_id, keyed.pool_id) == ("m@http://h/v1", "m@http://h/v1 with KEY")
    assert run_of(SMALLEST).evals[0].pool_id == "zai-org/GLM-4.7-FP8"


@pytest.mark.parametrize("keys", ['model = "m"', 'api_base_url = "http://h"', 'api_key_var = "KEY"', ""])
def test_half_of_a_fixed_server_is_an_error(keys):
    (told,) = problems_of(f"[[eval]]\nenv_id = 'chat'\n{keys}\n")
    assert told == "eval.toml: eval[0]: no endpoints: set endpoint_id, or model and api_base_url together"


def test_a_pool_with_a_key_variable_of_its_own_is_an_error():
    (told,) = problems_of(one_eval('api_key_var = "KEY"'))
    assert told.startswith("eval.toml: eval[0]: endpoint_id excludes")


def test_an_own_way_to_name_the_pool_replaces_the_inherited_one():
    text = 'endpoints_path = "e"\nendpoint_id = "a"\nenv_id = "chat"\n[[eval]]\n[[eval]]\nname = "b"\nmodel = "m"\n'
    first, second = run_of(text + 'api_base_url = "http://h"\n').evals
    assert (first.pool_id, second.pool_id) == ("a", "m@http://h")
    text = 'endpoints_path = "e"\nmodel = "m"\napi_base_url = "http://h"\napi_key_var = "KEY"\nenv_id = "chat"\n'
    first, second = run_of(text + '[[eval]]\n[[eval]]\nname = "b"\nendpoint_id = "a"\n').evals
    assert (first.pool_id, second.pool_id) == ("m@http://h with KEY", "a")


def test_evals_of_one_environment_are_named_for_their_pools_too():
    text = one_eval() + "[[eval]]\nenv_id = 'chat'\nmodel = 'm'\napi_base_url = 'http://h'\n[[eval]]\nenv_id = 'z'\n"
    names = [one.name for one in run_of(text + "endpoint_id = 'a'").evals]
    assert names == ["chat@a", "chat@m", "z"]


def test_a_given_name_is_never_changed():
    text = one_eval() + "[[eval]]\nname = 'chat'\nenv_id = 'other'\nendpoint_id = 'b'\n"
    assert [one.name for one in run_of(text).evals] == ["chat@a", "chat"]


def test_names_that_clash_all_the_same_are_an_error():
    assert problems_of(one_eval() + "[[eval]]\nenv_id = 'chat'\nendpoint_id = 'a'\n") == [
        'eval.toml: eval[1].name: "chat@a" is already the name of eval[0]; give one of them another name'
    ]


def test_endpoints_path_comes_before_the_other_sources():
    text = one_eval("[[source]]\ntype = 'http'\nurl = 'https://h/x'\n[[source]]\ntype = 'file'\npath = 'b/c.toml'\n")
    run = run_of(text)
    assert [(source.type, dict(source.keys), str(source.where)) for source in run.sources] == [
        ("file", {"path": "/folder/e.toml"}, "eval.toml: endpoints_path"),
        ("http", {"url": "https://h/x"}, "eval.toml: source[0]"),
        ("file", {"path": "/folder/b/c.toml"}, "eval.toml: source[1]"),
    ]


def test_a_folder_as_endpoints_path_means_its_endpoints_toml(tmp_path):
    run = parse_run(one_eval().replace("e.toml", ".").encode(), tmp_path, "eval.toml")
    assert run.sources[0].keys == {"path": str(tmp_path / "endpoints.toml")}


def test_policies_keep_their_own_keys_raw():
    run = run_of(one_eval("[admission]\npolicy = 'fixed'\nlimit = 3\n[sessions]\nplaces = 'x'\n"))
    assert run.admission == PolicySettings("fixed", {"limit": 3})
    assert run.sessions == PolicySettings(None, {"places": "x"})


def test_a_password_in_a_source_is_refused_and_not_repeated():
    source = "[[source]]\ntype = 'http'\nurls = ['https://me:hunter2@h']\n"
    (told,) = problems_of(one_eval(source))
    assert told.startswith("eval.toml: source[0].urls[0]: must not hold a password")
    assert "hunter2" not in told


def test_base_dir_is_where_relative_paths_start():
    run = run_of(one_eval("[images]\nshipments = ['*.tar', '/abs/*.tar']\n", top="base_dir = '../b'"))
    assert run.base_dir == Path("/folder/../b")
    assert run.output_dir == Path("/folder/../b/runs")
    assert run.sources[0].keys == {"path": "/folder/../b/e.toml"}
    assert run.images.shipments == (Path("/folder/../b/*.tar"), Path("/abs/*.tar"))


def test_a_file_is_read_and_named_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "night.toml").write_text(SMALLEST)
    run = load_run("night.toml")
    assert (run.name, run.base_dir, str(run.where)) == ("night", tmp_path, "night.toml")
    (tmp_path / "night.toml").write_text(SMALLEST + "typo = 1")
    with pytest.raises(ConfigError, match=r"^night.toml: eval\[0\].typo: unknown key"):
        load_run("night.toml")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xef\xbb\xbfelastic = true", "byte order mark"),
        (b"elastic = true\n# \xe9", "line 2: byte 0xe9 is not UTF-8"),
        (b"elastic = ", "line 1, column"),
    ],
)
def test_bytes_that_are_no_toml_are_told_with_the_file(tmp_path, data, says):
    (tmp_path / "eval.toml").write_bytes(data)
    with pytest.raises(ConfigError, match=says) as caught:
        load_run(tmp_path / "eval.toml")
    assert caught.value.problems[0].where == str(tmp_path / "eval.toml")


def test_a_file_that_cannot_be_read_says_why(tmp_path, monkeypatch):
    for path, says in [
        (tmp_path / "none.toml", "no such file"),
        (tmp_path, "this is a folder"),
        ("a\0b", "cannot be read"),
        ("x" * 5000, "cannot be read"),
    ]:
        with pytest.raises(ConfigError, match=says):
            load_run(path)
    monkeypatch.setattr("pathlib.Path.read_bytes", _refuse)  # a superuser may read every file
    with pytest.raises(ConfigError, match="not readable for this user"):
        load_run(tmp_path / "eval.toml")


def _refuse(path):
    raise PermissionError(13, "Permission denied")


def test_the_identity_of_an_eval_is_what_changes_its_results():
    text = one_eval("env_args = { dataset = 'd.jsonl', deep = { a = 1, b = {} } }\nsampling_args = { temperature = 0 }")
    one = run_of(text).evals[0]
    expected = {
        "env_id": "chat",
        "env_args.dataset": "d.jsonl",
        "env_args.deep.a": 1,
        "sampling_args.temperature": 0,
    }
    assert identity(one) == expected
    fixed = run_of(text.replace("endpoint_id = ", "api_base_url = 'http://h/v1'\nmodel = ")).evals[0]
    assert identity(fixed) == {**expected, "model": "a"}
    assert identity(run_of(text, "eval.max_retries=9", "eval.num_examples=2").evals[0]) == expected


@given(st.text())
def test_any_text_is_a_config_error_with_printable_problems(text):
    with pytest.raises(ConfigError) as caught:  # any text that is short and valid lacks an [[eval]]
        parse_run(text.encode(), FOLDER, "eval.toml")
    assert caught.value.problems
    assert all(str(problem).isprintable() for problem in caught.value.problems)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([*RUN_KEYS, *POLICY_TABLES, *PLAIN_TABLES, "eval", "source", "endpoints_path", "env_id", "type"])
TABLES = st.dictionaries(KEYS, VALUES, max_size=3)


@given(st.dictionaries(KEYS, VALUES | TABLES | st.lists(TABLES, max_size=2), max_size=6))
def test_any_document_is_settings_or_problems(document):
    settings, problems = assemble(document, Where("eval.toml"), FOLDER, need_evals=True)
    assert (settings is None) == bool(problems)
    assert all(str(problem).isprintable() for problem in problems)
