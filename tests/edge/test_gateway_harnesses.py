"""The harnesses that the gateway is for: each finishes its evaluation while servers die under it, and sees no error.

Their own retries are off, and the gateway counts one call for each question: so what was sent again was sent by us.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from harnesses import environ_in, needs_harnesses, program
from mortal_fleet import MODEL, TOKEN, UNHEARD, Fleet, executed, questions, run_beside, serving, write_lines

HERE = Path(__file__).parent
TASK = """
task: sums
dataset_path: json
dataset_kwargs:
  data_files:
    test: {questions}
test_split: test
output_type: generate_until
doc_to_text: "{{{{input}}}}"
doc_to_target: "{{{{target}}}}"
generation_kwargs:
  max_gen_toks: 50
  until: []
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""

pytestmark = needs_harnesses


def document_in(said: str) -> dict[str, object]:
    """The only document among what a program said."""
    (line,) = [line for line in said.splitlines() if line.startswith('{"answers"')]
    return json.loads(line)


def test_lm_eval_sees_nothing_of_servers_that_die_and_fail(tmp_path):
    with Fleet(tmp_path) as fleet:
        asked = questions(fleet)
        write_lines(tmp_path / "sums.jsonl", asked)
        (tmp_path / "sums.yaml").write_text(TASK.format(questions=tmp_path / "sums.jsonl"))
        command = [str(program("python")), str(HERE / "sums_lm_eval.py"), str(tmp_path), MODEL]
        said, figures = executed(tmp_path, command, environ_in(tmp_path))
        assert fleet.deaths == len(fleet.mortals)
    assert document_in(said) == {"answers": [answer for _, answer in asked], "score": 1.0}
    assert (figures["answered"], figures["failed"]) == (len(asked), 0)
    assert figures["again"] >= fleet.troubles


def test_inspect_sees_nothing_of_servers_that_die_and_fail_and_its_tools_are_called(tmp_path):
    with Fleet(tmp_path) as fleet:
        asked = questions(fleet)
        write_lines(tmp_path / "sums.jsonl", asked)
        shutil.copy(HERE / "sums_inspect.py", tmp_path)  # it takes no absolute path
        command = [str(program("inspect")), "eval", "sums_inspect.py", "-T", "dataset=sums.jsonl"]
        command += ["--model", f"openai-api/openai/{MODEL}"]
        command += ["--max-retries", "0", "--max-connections", "8", "--display", "none"]
        command += ["--log-dir", "logs", "--log-format", "json"]
        _, figures = executed(tmp_path, command, environ_in(tmp_path))
        assert fleet.deaths == len(fleet.mortals)
    (path,) = (tmp_path / "logs").glob("*.json")
    log = json.loads(path.read_text())
    assert log["status"] == "success"
    samples = log["samples"]
    assert [sample["input"] for sample in samples] == [text for text, _ in asked]
    assert [sample["output"]["choices"][0]["message"]["content"] for sample in samples] == [a for _, a in asked]
    assert {sample["scores"]["includes"]["value"] for sample in samples} == {"C"}
    assert all([message["role"] for message in sample["messages"]][1:3] == ["assistant", "tool"] for sample in samples)
    assert (figures["answered"], figures["failed"]) == (2 * len(asked), 0)
    assert figures["again"] >= fleet.troubles


def test_litellm_sees_nothing_of_servers_that_die_and_fail_also_in_streams_that_had_not_begun(tmp_path):
    with Fleet(tmp_path, UNHEARD, max_concurrent=1) as fleet:
        asked = questions(fleet)
        write_lines(tmp_path / "sums.jsonl", asked)
        with serving(tmp_path) as gateway:
            command = [str(program("python")), str(HERE / "sums_litellm.py"), "sums.jsonl", MODEL]
            environ = {**environ_in(tmp_path), "OPENAI_API_KEY": TOKEN, "OPENAI_BASE_URL": gateway.base_url}
            said = run_beside(tmp_path, command, {**environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"})
            figures = gateway.figures()
        assert fleet.deaths == len(fleet.mortals)
    assert document_in(said) == {"answers": [answer for _, answer in asked]}
    assert (figures["answered"], figures["failed"]) == (len(asked), 0)
    assert figures["again"] >= fleet.troubles
