"""Rows of files: what becomes an example, what an error of one row, and what an error before anything starts."""

from __future__ import annotations

import csv
import json
import os
import sys
import types
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from canned import chat_environment, chat_settings
from hypothesis import given
from hypothesis import strategies as st

from scavenge.environments import columnar, rowfiles
from scavenge.environments.datasets import DatasetRef
from scavenge.environments.identify import Identifier
from scavenge.environments.row import Row
from scavenge.errors import ConfigError, InfrastructureError
from scavenge.rollouts import Example


def examples(folder: Path, content: bytes | str, name: str = "data.jsonl", **keys: Any) -> list[Example]:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(chat_environment(folder, dataset=name, **{"scorer": "none", **keys}).examples())


def refused(folder: Path, content: bytes | str, name: str = "data.jsonl", **keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        examples(folder, content, name, **keys)
    return str(caught.value)


GOOD = '{"id": "first", "prompt": "hi"}\n'


# --- one row


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"{", "data.jsonl: line 2: no valid JSON: Expecting property name"),
        (b'{"prompt": "cut of', "data.jsonl: line 2: no valid JSON: Unterminated string"),
        (b"[1]", "data.jsonl: line 2: expected an object with the row's fields, got a list"),
        (b'"hi"', "got a string"),
        (b"true", "got true or false"),
        (b"null", "got null"),
        (b"7", "got a number"),
        (b"{}", "the row has no fields"),
        (b'{"prompt": "\xff"}', "not UTF-8 at byte 13 of the line"),
        (b'{"prompt": "\\ud800"}', "text that UTF-8 cannot carry"),
        (b'{"\\udfff": "a", "prompt": "b"}', "text that UTF-8 cannot carry"),
        (b'{"prompt": "\0"}', "no valid JSON: Invalid control character"),
        (b'{"prompt": NaN}', "NaN is not JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"prompt": ' + b"9" * 5000 + b"}", "no valid JSON: Exceeds the limit"),
        (b'{"prompt": ""}', 'the field "prompt" must be a text that is not empty'),
        (b'{"prompt": 5}', 'the field "prompt" must be a text'),
        (b'{"text": "hi", "n": 1}', "none of the fields messages, prompt, question is there; name one with `prompt`"),
        (b'{"messages": []}', 'the field "messages" is an empty list'),
        (b'{"messages": ["hi"]}', "messages[0]: a message is an object with role and content"),
        (b'{"messages": [{"content": "hi"}]}', "messages[0]: role must be a string"),
        (b'{"messages": [{"role": "user"}]}', "messages[0]: content must be a text"),
        (b'{"messages": [{"role": "user", "content": []}]}', "messages[0]: content must be a text"),
        (b'{"messages": [{"role": "user", "content": [1]}]}', "messages[0]: content must be a text"),
        (b'{"id": "first", "prompt": "hi"}', 'the id "first" is already that of row 1; ids must be unique'),
        (b'{"id": 1.5, "prompt": "hi"}', 'the field "id" is no id'),
        (b'{"id": true, "prompt": "hi"}', 'the field "id" is no id'),
        (b'{"id": "", "prompt": "hi"}', 'the field "id" is no id'),
        (b'{"id": ["a"], "prompt": "hi"}', 'the field "id" is no id'),
    ],
)
def test_a_broken_row_is_an_error_that_names_its_line_and_the_next_row_is_read(
    tmp_path: Path, line: bytes, error: str
) -> None:
    first, broken, last = examples(tmp_path, GOOD.encode() + line + b"\n" + b'{"id": 7, "prompt": "ho"}')
    assert (first.id, first.error, last.id, last.error) == ("first", None, "7", None)
    assert (broken.id, broken.data) == ("line:2", {})
    assert error in str(broken.error)


def test_a_row_without_an_answer_is_an_error_unless_nothing_is_scored(tmp_path: Path) -> None:
    rows = '{"prompt": "a", "answer": 1}\n{"prompt": "b"}\n{"prompt": "c", "answer": "x"}\n'
    found = examples(tmp_path, rows, scorer="numeric")
    assert found[0].error is None
    assert 'there is no answer in the field "answer"; name the field with `answer`' in str(found[1].error)
    assert "there is no number in the answer 'x'" in str(found[2].error)


def test_a_mistake_in_a_template_or_prompt_shows_in_the_row(tmp_path: Path) -> None:
    rows = '{"a": "x", "prompt": "p"}\n{"b": "x", "prompt": "p"}\n{"a": null, "prompt": "p"}\n'
    _, unknown, null = examples(tmp_path, rows, template="{a}")
    assert 'there is no field "a"; the row has b, prompt' in str(unknown.error)
    assert 'the field "a" is null' in str(null.error)
    _, absent, _ = examples(tmp_path, rows.replace("null", '"y"'), prompt="a")
    assert 'there is no field "a"' in str(absent.error)


def test_a_second_system_message_is_an_error(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    _, broken = examples(tmp_path, GOOD + json.dumps({"messages": messages}), system="c")
    assert "begin with a system message" in str(broken.error)


def test_a_template_around_a_list_of_messages_is_an_error(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "b"}]
    _, broken = examples(tmp_path, GOOD + json.dumps({"messages": messages}), template="Q: {prompt}")
    assert "a list of messages, which a template cannot hold" in str(broken.error)


# --- ids


def test_a_row_without_an_id_has_one_from_its_content(tmp_path: Path) -> None:
    one, other, again = examples(tmp_path, '{"prompt": "a", "n": 1}\n{"prompt": "b"}\n{"n": 1, "prompt": "a"}\n')
    assert len({one.id, other.id, again.id}) == 3
    assert again.id == f"{one.id}-2"
    assert [example.id for example in examples(tmp_path, '{"id": null, "prompt": "b"}')] != [other.id]
    (moved,) = examples(tmp_path, '\n\n  {"prompt": "b"}  \n')
    assert moved.id == other.id


def test_an_own_id_that_looks_like_an_error_stays_its_rows(tmp_path: Path) -> None:
    rows = '{"id": "line:2", "prompt": "a"}\n{\n{"id": "line:4", "prompt": "b"}\n{\n'
    assert [example.id for example in examples(tmp_path, rows)] == ["line:2", "line:2+", "line:4", "line:4+"]


def test_another_field_may_hold_the_id(tmp_path: Path) -> None:
    (example,) = examples(tmp_path, '{"id": "a", "task_id": 12345678901234567890, "prompt": "b"}', id="task_id")
    assert example.id == "12345678901234567890"


# --- kinds of files


def test_lines_end_at_newlines_only_and_empty_ones_are_skipped(tmp_path: Path) -> None:
    found = examples(tmp_path, b'\xef\xbb\xbf{"prompt": "a\xe2\x80\xa8b\xc2\x85"}\r\n\n \t\n{"prompt": "\\u0000"}')
    assert [example.data["prompt"] for example in found] == ["a\u2028b\x85", "\0"]
    assert all(example.error is None for example in found)


def test_a_line_of_ten_megabytes_is_a_row_like_any_other(tmp_path: Path) -> None:
    (example,) = examples(tmp_path, json.dumps({"prompt": "x" * 10_000_000}))
    assert len(str(example.data["prompt"])) == 10_000_000


@pytest.mark.parametrize("end", [b"", b"\n", b"xx\n"])
def test_a_line_beyond_any_row_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    monkeypatch.setattr(rowfiles, "MAX_ROW_BYTES", 50)
    found = examples(tmp_path, GOOD.encode() + b'{"prompt": "' + b"x" * 130 + end)
    assert [example.id for example in found] == ["first", "line:2"]
    assert "longer than 50 bytes" in str(found[1].error)


def test_a_json_array_is_read_member_by_member(tmp_path: Path) -> None:
    rows: list[object] = [{"prompt": "x" * size, "deep": [{"a": "]},{"}]} for size in (1, 70_000, 3, 200_000)]
    for indent in (None, 2):
        text = "\ufeff " + json.dumps([*rows, 5, *rows[:1]], indent=indent) + "\n"
        found = examples(tmp_path, text, "data.json")
        assert [example.data for example in found if example.error is None] == [*rows, rows[0]]
        assert "data.json: row 5: expected an object" in str(found[4].error)
        assert found[4].id == "line:5"


def test_a_json_array_may_be_cut_anywhere_between_two_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"prompt": "a\n\u00e4\U0001f600", "x": [True, False, None, -1.5e-3, 10]}, {"prompt": ""}]
    (tmp_path / "data.json").write_text(json.dumps([rows[0], 1234, rows[1]]))
    for chars in range(1, 12):
        monkeypatch.setattr(rowfiles, "CHUNK_CHARS", chars)
        assert [row.data for row in rowfiles.read_json_array(tmp_path / "data.json")] == [rows[0], None, rows[1]]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[{"prompt": "a"}, {"prompt" "b"}, {"prompt": "c"}]', "row 2: no valid JSON, so that nothing after it"),
        (
            '[{"prompt": "a"}, {"prompt": "b',
            "row 2: no valid JSON, so that nothing after it can be read either: Unterm",
        ),
        ('[{"prompt": "a"}', "row 2: the file ends inside the array"),
        ('[{"prompt": "a"} {"prompt": "b"}]', "row 2: expected , or ] after row before it, got '{'"),
        ('[{"prompt": "a"},]', "row 2: no valid JSON"),
        ('[{"prompt": "a"},' + "[" * 100_000, "row 2: no valid JSON, so that nothing after it"),
        ('[{"prompt": "a"}, nope' + " " * 200_000 + "]", "row 2: no valid JSON"),
    ],
)
def test_a_json_array_is_read_up_to_what_is_no_json(tmp_path: Path, text: str, error: str) -> None:
    good, broken = examples(tmp_path, text, "data.json")
    assert (good.error, broken.id) == (None, "line:2")
    assert error in str(broken.error)


@pytest.mark.parametrize("member", [b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}'])
def test_a_member_that_is_no_text_is_an_error_of_its_own(tmp_path: Path, member: bytes) -> None:
    good, broken, last = examples(tmp_path, b'[{"prompt": "a"}, ' + member + b', {"prompt": "b"}]', "data.json")
    assert (good.error, last.error) == (None, None)
    assert "text that UTF-8 cannot carry" in str(broken.error)


@given(rows=st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=5) | st.integers(), min_size=1)))
def test_an_array_and_lines_hold_the_same_rows(rows: list[dict[str, object]], tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("rows")
    (folder / "a.json").write_text(json.dumps(rows))
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    array = [row.data for row in rowfiles.read_json_array(folder / "a.json")]
    assert array == [row.data for row in rowfiles.read_jsonl(folder / "a.jsonl")] == rows


@given(data=st.binary(max_size=60))
def test_no_bytes_break_a_reader(data: bytes, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz"
    for lead in (b"", b"["):
        path.write_bytes(lead + data)
        for read in (rowfiles.read_jsonl, rowfiles.read_json_array, rowfiles.read_csv):
            try:
                assert all((row.data is None) != (row.error is None) for row in read(path))
            except ValueError as exc:
                assert str(exc).startswith("fuzz")  # noqa: PT017  # either way is right


def test_csv_fields_may_hold_line_breaks_and_rows_keep_their_line(tmp_path: Path) -> None:
    text = '\ufeffid,prompt,answer\r\n1,"two\nlines, ""quoted""",4\r\n\r\n2,short\r\n3,"b",5\r\n'
    one, short, three = examples(tmp_path, text, "data.csv")
    assert one.data == {"id": "1", "prompt": 'two\nlines, "quoted"', "answer": "4"}
    assert (short.id, short.error) == ("line:5", "data.csv: line 5: 2 fields under a header of 3")
    assert three.id == "3"


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (b'1,"a"b\n2,b\n', "line 3: no valid CSV"),
        (b'1,"never closed\n\n', "line 3: no valid CSV: unexpected end of data"),
        (b"1,\xff\n2,b\n", "line 3: not UTF-8"),
    ],
)
def test_a_broken_csv_row_is_an_error(tmp_path: Path, row: bytes, error: str) -> None:
    good, broken, *rest = examples(tmp_path, b"id,prompt\n0,a\n" + row, "data.csv")
    assert good.error is None
    assert error in str(broken.error)
    assert [example.id for example in rest] == (["2"] if row.endswith(b"2,b\n") else [])


def test_a_csv_field_may_be_as_long_as_any_row(tmp_path: Path) -> None:
    (example,) = examples(tmp_path, "prompt\n" + "x" * 1_000_000 + "\n", "data.csv")
    assert example.error is None
    assert csv.field_size_limit() >= rowfiles.MAX_ROW_BYTES


def test_parquet_rows_are_read_group_by_group(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"prompt": f"p{i}", "answer": i, "n": None, "l": [{"a": 1}]} for i in range(700)]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "data.parquet", row_group_size=300)
    found = list(chat_environment(tmp_path, dataset="data.parquet").examples())
    assert [example.data for example in found] == rows
    (tmp_path / "data.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(ConfigError, match=r"data\.parquet is no Parquet file"):
        chat_environment(tmp_path, dataset="data.parquet")


def test_values_that_json_does_not_have_become_text() -> None:
    import datetime

    value = {
        1: Decimal("1.50"),
        "d": datetime.date(2026, 1, 2),
        "t": datetime.time(1, 2),
        "b": b"\x00\xff",
        "f": [float("nan"), 1.5],
        "n": None,
    }
    assert columnar.plain(value) == {
        "1": "1.50",
        "d": "2026-01-02",
        "t": "01:02:00",
        "b": "00ff",
        "f": [None, 1.5],
        "n": None,
    }


# --- the hub, through a stand-in for the package


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    known: dict[str, dict[str, Any]] = {}

    def load_dataset(name: str, *, streaming: bool) -> dict[str, Any]:
        assert streaming
        return known[name]

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]  # a stand-in
    module.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]  # what find_spec looks for
    monkeypatch.setitem(sys.modules, "datasets", module)
    return known


def test_a_split_of_the_hub_is_streamed(tmp_path: Path, hub: dict[str, dict[str, Any]]) -> None:
    hub["org/name"] = {"test": [{"prompt": "a", "answer": "1"}], "train": [{"prompt": "b", "answer": "2"}]}
    hub["lone"] = {"all": [{"prompt": "c", "answer": "3"}]}
    for text, prompt in (("hf:org/name", "a"), ("hf:org/name:train", "b"), ("hf:lone", "c")):
        (example,) = chat_environment(tmp_path, dataset=text).examples()
        assert example.data["prompt"] == prompt


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("hf:two", 'hf:two has no split "test"; it has a, b: hf:two:SPLIT'),
        ("hf:two:c", 'hf:two has no split "c"'),
        ("hf:absent", "hf:absent cannot be read: KeyError"),
    ],
)
def test_what_the_hub_does_not_have_is_an_error(
    tmp_path: Path, hub: dict[str, dict[str, Any]], text: str, error: str
) -> None:
    hub["two"] = {"a": [], "b": []}
    with pytest.raises(InfrastructureError) as caught:
        list(chat_environment(tmp_path, dataset=text).examples())
    assert f"dataset {text}: {error}" in str(caught.value)


# --- before anything starts


@pytest.mark.parametrize(
    ("text", "name", "error"),
    [
        ("{\n", "data.jsonl", "eval: dataset: data.jsonl: line 1: no valid JSON"),
        ('[\n{"prompt": "a"},\n', "data.jsonl", None),
        ('{"prompt": "a"}\n{"prompt": "b"}', "data.json", "does not hold a JSON array; a file with one object a line"),
        ("", "data.json", "does not hold a JSON array"),
        ("a,a\n1,2\n", "data.csv", "the header names 'a' twice"),
        ('"a', "data.csv", "the header is no valid CSV"),
        ('{"text": "a"}', "data.jsonl", "line 1: none of the fields messages, prompt, question is there"),
    ],
)
def test_a_file_that_cannot_work_is_refused_by_its_first_row(
    tmp_path: Path, text: str, name: str, error: str | None
) -> None:
    if error is None:  # the second line may well be a row
        text, error = text.replace("},", "}"), ""
        assert examples(tmp_path, text, name)[0].id == "line:1"
        return
    assert error in f"eval: {refused(tmp_path, text, name)}"


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"template": "{nope}"}, 'dataset: data.jsonl: line 1: there is no field "nope"'),
        ({"prompt": "nope"}, 'there is no field "nope"; the row has id, prompt'),
        ({"scorer": "exact_match"}, "there is no answer in the field"),
        ({"scorer": "exact"}, 'scorer: unknown scorer "exact"; did you mean "exact_match"?'),
        ({"scorer": "no.such:thing"}, 'scorer: no module "no"'),
        ({"scorer": ""}, "eval.toml: eval[0].env_args.scorer: expected a name that is not empty"),
        ({"extract": "("}, "eval.toml: eval[0].env_args.extract: no regular expression"),
        ({"normalize": ["stripp"]}, 'unknown normaliser "stripp"; did you mean "strip"?'),
        ({"template": "{a.b}"}, "only a field's name may stand between braces"),
        ({"template": "{a[0]}"}, "only a field's name may stand between braces"),
        ({"template": "{}"}, "only a field's name may stand between braces"),
        ({"template": "a } b"}, "a single } at character 3; write }} for the brace itself"),
        ({"template": "{ {x"}, "a single { at character 1"),
        ({"scorers": "none"}, "scorers"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_the_start(
    tmp_path: Path, keys: dict[str, Any], error: str
) -> None:
    assert error in refused(tmp_path, GOOD, **keys)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset: .*nope\.jsonl cannot be read: No such file"):
        chat_environment(tmp_path, dataset="nope.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in ("folder.jsonl", "pipe.jsonl"):
        with pytest.raises(ConfigError, match="is a folder or device; name a file"):
            chat_environment(tmp_path, dataset=name)


@pytest.mark.parametrize("text", ["", "a.txt", "a\0.jsonl", "hf:", "hf:a b", "hf:a/b/c", "hf:a:b:c", "jsonl"])
def test_what_names_no_dataset_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"eval\[0\]\.env_args\.dataset"):
        chat_settings(tmp_path, dataset=text)


def test_a_dataset_is_relative_to_the_evaluation_file(tmp_path: Path) -> None:
    assert DatasetRef.from_text("a/b.JSONL", tmp_path).path == tmp_path / "a" / "b.JSONL"
    assert DatasetRef.from_text("/a/b.csv", tmp_path).path == Path("/a/b.csv")
    assert str(DatasetRef.from_text("hf:org/name:test", tmp_path)) == "hf:org/name:test"


@pytest.mark.parametrize("text", ["hf:org/name", "data.parquet"])
def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    extra = "datasets" if text.startswith("hf:") else "parquet"
    with pytest.raises(ConfigError, match=rf"install scavenge\[{extra}\]"):
        chat_environment(tmp_path, dataset=text)
    with pytest.raises(ConfigError, match=r"scorer: .*install scavenge\[math\]"):
        chat_environment(tmp_path, dataset=text, scorer="math")


def test_an_empty_file_has_no_examples(tmp_path: Path) -> None:
    assert examples(tmp_path, "\n\n") == []
    assert examples(tmp_path, "[ ]", "data.json") == []
    assert examples(tmp_path, "", "data.csv") == []
    assert examples(tmp_path, "prompt\n", "data.csv") == []


def test_a_file_that_vanishes_is_an_error_of_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(GOOD)
    environment = chat_environment(tmp_path, dataset="data.jsonl", scorer="none")
    (tmp_path / "data.jsonl").unlink()
    with pytest.raises(InfrastructureError, match=r"dataset data\.jsonl: .*No such file"):
        list(environment.examples())


def test_rows_are_not_kept(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(GOOD * 3)
    rows = rowfiles.read_jsonl(tmp_path / "data.jsonl")
    assert sys.getrefcount(next(rows)) <= 2
    assert isinstance(next(rows), Row)


def test_a_row_too_deep_to_be_written_again_is_an_error_of_its_own() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    example = Identifier("id").example(Row(3, "data.jsonl: line 3", {"x": deep}), lambda row: None)
    assert (example.id, example.error) == ("line:3", "data.jsonl: line 3: nested too deep")
