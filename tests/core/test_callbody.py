"""`CallBody`: keys of a foreign client's body are set, and every other byte stays as it came."""

from __future__ import annotations

import json
import math
from types import MappingProxyType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scavenge.core.callbody import CallBody
from scavenge.core.plainjson import read_json


def changed(raw: bytes | str, **values: object) -> str:
    body = raw.encode() if isinstance(raw, str) else raw
    return CallBody(body).changed(values).decode()


def test_a_body_is_read_once_and_kept_as_it_came():
    body = CallBody(b' {"model": "a", "n": 1.50}\n')
    assert body.raw == b' {"model": "a", "n": 1.50}\n'
    assert body.document == {"model": "a", "n": 1.5}
    assert body.changed({}) is body.raw


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "empty"),
        (b" \r\n\t", "empty"),
        (b"{", "no JSON"),
        (b'{"a": 1} {}', "no JSON"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": "\xff"}', "decode"),
        (b"{'a': 1}", "no JSON"),
        (b'{"a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", "too deep"),
        ('{"a": 1}'.encode("utf-16"), "no JSON"),
        (b'["model"]', 'no object: ["model"]'),
        (b'"model"', "no object"),
        (b"null", "no object: null"),
        (b"7", "no object"),
    ],
)
def test_a_body_that_is_no_object_is_refused_with_the_reason(raw: bytes, reason: str):
    with pytest.raises(ValueError, match="the body is") as found:
        CallBody(raw)
    assert reason in str(found.value)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"model":"a"}', '{"model":"m"}'),
        ('{"messages":[{"role":"user","content":"hi"}],"model":"a","n":2}', None),
        ('{ "model" :\n"a" , "n" : 1.0 }', '{ "model" :\n"m" , "n" : 1.0 }'),
        ('{"model":"a\\"b\\\\"}', '{"model":"m"}'),
        ('{"model": 12 }', '{"model": "m" }'),
        ('{"model":null}', '{"model":"m"}'),
        ('{"model":-1.5e3,"n":1}', '{"model":"m","n":1}'),
        ('{"model":{"model":["a"]},"n":1}', '{"model":"m","n":1}'),
        ('{"model":[[[[{"a":"]"}]]],{}],"n":1}', '{"model":"m","n":1}'),
        ('{"model":[ [ [ [ [ ] ] , "]" ] ] ] }', '{"model":"m" }'),
        ("\ufeff \r\n{}\n ", '\ufeff \r\n{"model":"m"}\n '),
        ("{ }", '{"model":"m" }'),
        ('{"n":1}', '{"model":"m","n":1}'),
        ('\t{\n  "n": 1\n}', '\t{"model":"m",\n  "n": 1\n}'),
    ],
)
def test_a_key_is_set_where_it_is_or_else_first(raw: str, expected: str | None):
    assert changed(raw, model="m") == (expected or raw.replace('"a"', '"m"'))


@pytest.mark.parametrize(
    "raw",
    [
        '{"a":{"model":"x"},"model":@}',
        '{"model":@,"a":[{"model":"x"},{"b":[{"c":{"model":1}}]}]}',
        '{"messages":[{"role":"model"},{"role":"model"}],"model":@}',
        '{"messages":[' + '{"role":"model"},' * 20 + '{"role":"user"}],"model":@}',
        '{"a":"\\"model\\": \\"x\\"","model":@}',
        '{"a":"\\\\","model":@}',
        '{"model":@,"a":[' + '"model",' * 20 + '1],"model":@}',
        '{"say \\"model":1,"model":@}',
        '{"a":["model"],"b":"model","model" : @}',
        '{"mod\\u0065l":@}',
        '{"\\u006dodel":@,"a":{"model":"x"}}',
        '{"a":"model\\u001b","model":@}',
        '{"model":@,"n":1,"model":@}',
        '{"model":@,"n":[],"mod\\u0065L":7,"m\\u006Fdel":@,"model":@}',
        '{"Model":1,"MODEL":2,"model ":3,"model":@}',
        '{"":{"":1},"\\/":2,"\u00e9":"\\u00e9","model":@,"\\ud800":"x"}',
    ],
)
@pytest.mark.parametrize("old", ['"x"', "null", '{"model":["a",[[{"model":2}]]]}', "[]", "17"])
def test_the_key_at_the_top_is_meant_and_no_other(raw: str, old: str):
    assert changed(raw.replace("@", old), model="m") == raw.replace("@", '"m"')


def test_numbers_escapes_and_repeated_keys_stay_as_they_came():
    raw = '{"big":123456789012345678901234567890,"f":1.10,"e":1E+2,"a":"\\u00e9\\/","a":"\u00e9","model":"x","t":-0}'
    assert changed(raw, model="m") == raw.replace('"x"', '"m"')


def test_several_keys_are_set_at_once():
    raw = '{"stream":false,"a":[{"stream":1}],"model":"x","stream_options":{"a":{"b":{}}}}'
    values = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "seed": 1, "top_p": 0.5}
    assert changed(raw, **values) == (
        '{"seed":1,"top_p":0.5,"stream":true,"a":[{"stream":1}],"model":"m","stream_options":{"include_usage":true}}'
    )


def test_names_that_are_no_identifiers_are_found_too():
    assert CallBody('{"a b":1,"\u00e9":2,"a\\"":3}'.encode()).changed({"a b": 4, "\u00e9": 5, 'a"': 6, "\n": 7}) == (
        '{"\\n":7,"a b":4,"\u00e9":5,"a\\"":6}'.encode()
    )


def test_names_that_can_be_spelt_in_several_ways_are_found_in_each():
    raw = '{"x":{"\u4f60":0},"\\u4f60":1,"y":{"q\\"":0},"q\\u0022":2,"\u4f60":3}'
    assert CallBody(raw.encode()).changed({"\u4f60": 8, 'q"': 9}).decode() == (
        raw.replace(":1", ":8").replace(":3", ":8").replace(":2", ":9")
    )
    assert CallBody('{"x":{"\u4f60":0},"\\u4f60":1}'.encode()).changed({"\u4f60": 8}) == (
        '{"x":{"\u4f60":0},"\\u4f60":8}'.encode()
    )


def test_any_value_that_json_can_say_is_written():
    values = {"a": "\ud800", "b": 2**70, "c": MappingProxyType({"d": (1, 2)}), "e": [MappingProxyType({"f": 2**70})]}
    deep: object = 1
    for _ in range(300):
        deep = [deep]
    found = read_json(CallBody(b'{"a":1}').changed({**values, "deep": deep}))
    assert found == {"a": "\ud800", "b": 2**70, "c": {"d": [1, 2]}, "e": [{"f": 2**70}], "deep": deep}


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [object(), b"x", {1, 2}, [2**70, math.nan], nested(100_000), [b"x"]])
def test_a_value_that_json_cannot_say_is_refused_and_changes_nothing(value: object):
    body = CallBody(b'{"model":"a"}')
    assert body.changed({"model": "m"}) == b'{"model":"m"}'
    with pytest.raises((ValueError, TypeError)):
        body.changed({"model": value})
    assert body.changed({"model": "m"}) == b'{"model":"m"}'


def test_the_same_change_again_costs_no_search():
    body = CallBody(b'{"model":"a","stream":1}')
    once = body.changed({"model": "m", "stream": True})
    assert body.changed({"stream": True, "model": "m"}) is once
    assert body.changed({"stream": 1, "model": "m"}) == b'{"model":"m","stream":1}'
    assert body.changed({"model": "m"}) == b'{"model":"m","stream":1}'
    assert body.changed({"model": "m", "stream": True}) == once


@pytest.mark.parametrize(
    "filler",
    [
        "[" * 1_000 + "]" * 1_000,
        '{"a":' * 1_000 + "1" + "}" * 1_000,
        "[" + ",".join(["[[[[]]]]"] * 20_000) + "]",
        "[" + ",".join(['{"a":[{"b":[{}]}]}'] * 10_000) + "]",
        '"' + '\\"' * 100_000 + '"',
        '"' + "\\\\" * 100_000 + '"',
        "[" + ",".join(['"model"'] * 20_000) + "]",
        " " * 200_000 + "1" + " " * 200_000,
    ],
    ids=["lists", "objects", "deep", "mixed", "quotes", "slashes", "names", "blanks"],
)
@pytest.mark.parametrize("name", ["model", "mod\\u0065l"])
def test_long_bodies_of_any_kind_are_gone_through(filler: str, name: str):
    raw = '{"a":FILLER,"NAME":"x","b":{"model":1}}'.replace("NAME", name).replace("FILLER", filler)
    assert changed(raw, model="m") == raw.replace('"x"', '"m"')


# --- any object, in any writing

NAMES = st.sampled_from(["model", "stream", "stream_options", "a", "", "\u00e9", 'q"', "mode", "model ", "\n"])
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**80), 2**80),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(
            ["model", '"model":"x"', "\\", "\\\\", '\\"', "}", "]", "{", ",", ":", "\u2028", "\x1b", "\ud800"]
        ),
        st.text(max_size=3),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=4,
)
BLANKS = st.text(" \t\r\n", max_size=2)


@st.composite
def spelt_names(draw: st.DrawFn, name: str) -> str:
    """The key as JSON, some of its characters escaped."""
    letters = [
        f"\\u{ord(letter):04{draw(st.sampled_from('xX'))}}"
        if draw(st.integers(0, 9)) == 0
        else json.dumps(letter)[1:-1]
        for letter in name
    ]
    return f'"{"".join(letters)}"'


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[tuple[str, str, str]], str, str]:
    """Members (name, what stands before its value, its value), what stands before them, and after them."""
    members = []
    for _ in range(draw(st.integers(0, 5))):
        name = draw(NAMES)
        lead = f"{draw(BLANKS)}{draw(spelt_names(name))}{draw(BLANKS)}:{draw(BLANKS)}"
        members.append((name, lead, json.dumps(draw(VALUES), ensure_ascii=True) + draw(BLANKS)))
    return members, draw(st.sampled_from(["", "\ufeff"])) + draw(BLANKS) + "{", draw(BLANKS) + "}" + draw(BLANKS)


def text_of(members: list[tuple[str, str, str]], lead: str, tail: str) -> bytes:
    return (lead + ",".join(before + value for _, before, value in members) + tail).encode()


@given(bodies(), st.dictionaries(NAMES, VALUES, max_size=3))
@example(([("model", '"model":', '"a"')], "{", "}"), {"model": "b"})
def test_the_document_has_the_values_and_all_other_bytes_are_as_they_came(parts, values):
    members, lead, tail = parts
    raw = text_of(members, lead, tail)
    result = CallBody(raw).changed(values)
    document = read_json(raw.removeprefix(b"\xef\xbb\xbf"))
    assert isinstance(document, dict)
    assert read_json(result.removeprefix(b"\xef\xbb\xbf")) == {**document, **values}
    assert result == expected(members, lead, tail, values)


def expected(members: list[tuple[str, str, str]], lead: str, tail: str, values: dict[str, object]) -> bytes:
    """The same by hand: every member whose name is among the values is written anew."""
    written = {name: CallBody(b"{}").changed({"x": value})[5:-1].decode() for name, value in values.items()}
    added = [
        json.dumps(name, ensure_ascii=name == "\n") + ":" + written[name]
        for name in values
        if name not in dict_of(members)
    ]
    kept = [
        before + (written[name] + value[len(value.rstrip(" \t\r\n")) :] if name in values else value)
        for name, before, value in members
    ]
    inner = ",".join(kept)
    return (lead + ",".join(added) + ("," if added and members else "") + inner + tail).encode()


def dict_of(members: list[tuple[str, str, str]]) -> set[str]:
    return {name for name, _, _ in members}


@given(st.one_of(st.binary(max_size=30), st.text(alphabet='{}[]":,\\ mu01"a', max_size=20).map(str.encode)))
def test_whatever_the_bytes_they_are_refused_or_changed(raw: bytes):
    try:
        body = CallBody(raw)
    except ValueError:
        return
    assert read_json(body.changed({"model": "m"}).removeprefix(b"\xef\xbb\xbf")) == {**body.document, "model": "m"}
