"""What is asked of an endpoint for a foreign client, and what it means that it does not have the API."""

from __future__ import annotations

import json

import pytest

from scavenge.core.callbody import CallBody
from scavenge.core.errorbody import MESSAGE_CHARACTERS
from scavenge.core.outcome import of_another_api
from scavenge.core.request_body import encode_relay
from scavenge.types import Busy, Failed, Lost, Misrouted, Ok, Outcome, Rejected, Reply

USAGE = {"include_usage": True}


@pytest.mark.parametrize(
    ("given", "stream", "handed_on", "changes"),
    [
        ({}, False, False, {}),
        ({"stream": False}, False, False, {}),
        ({"stream": None, "stream_options": {}}, False, False, {}),
        ({"stream": True}, False, False, {"stream": False}),
        ({"stream": True, "stream_options": {}}, False, False, {"stream": False, "stream_options": None}),
        ({"stream": True}, True, True, {}),
        ({"stream": True, "stream_options": {"include_usage": False}}, True, True, {}),
        ({}, True, True, {"stream": True}),
        ({}, True, False, {"stream": True, "stream_options": USAGE}),
        ({"stream": True}, True, False, {"stream_options": USAGE}),
        ({"stream_options": None}, True, False, {"stream": True, "stream_options": USAGE}),
        ({"stream_options": {"a": 1}}, True, False, {"stream": True, "stream_options": {"a": 1, **USAGE}}),
    ],
)
def test_the_server_is_asked_in_the_way_in_which_it_is_to_answer(
    given: dict[str, object], stream: bool, handed_on: bool, changes: dict[str, object]
) -> None:
    document = {"model": "any", **given}
    body = encode_relay("m", CallBody(json.dumps(document).encode()), {}, stream=stream, handed_on=handed_on)
    assert isinstance(body, bytes)
    assert json.loads(body) == {**document, **changes, "model": "m"}


def test_what_is_not_changed_stays_byte_by_byte() -> None:
    raw = b'{ "seed":1e2,\t"model" : "any" ,"x":"\\u00e4","model2":"any"}\n'
    body = encode_relay('a "b"', CallBody(raw), {"seed": 3, "x": 1}, stream=False, handed_on=False)
    assert body == raw.replace(b'"any" ', b'"a \\"b\\"" ')


def test_defaults_fill_in_what_the_body_lacks_and_nothing_else() -> None:
    defaults = {"temperature": 0, "seed": 3, "model": "x", "stream": True, "stream_options": {"b": 2}}
    body = CallBody(b'{"seed": null}')
    assert json.loads(encode_relay("m", body, defaults, stream=False, handed_on=False)) == {
        "model": "m",
        "temperature": 0,
        "seed": None,
    }
    streamed = json.loads(encode_relay("m", body, defaults, stream=True, handed_on=False))
    assert (streamed["stream"], streamed["stream_options"]) == (True, {"b": 2, **USAGE})


@pytest.mark.parametrize("value", [{1, 2}, object(), {"a": {1}}])
def test_a_default_that_is_no_json_is_told(value: object) -> None:
    rejected = encode_relay("m", CallBody(b"{}"), {"stop": value}, stream=False, handed_on=False)
    assert isinstance(rejected, Rejected)
    assert "cannot be written as JSON" in rejected.message


@pytest.mark.parametrize(
    "outcome",
    [
        Misrouted("HTTP 404 (POST http://a.test/v1/completions): Not Found", 404, curable=True),
        Misrouted("HTTP 405 (POST http://a.test/v1/completions): no text", 405, curable=True),
        Misrouted("HTTP 410: gone", 410, curable=True),
        Failed("HTTP 501: This server does not support chat completions", 501),
        Failed("HTTP 200 with an error: Unexpected endpoint or method. (POST /v1/completions)", 200),
        Failed("HTTP 500: unknown path", 500),
    ],
)
def test_that_it_does_not_have_another_api_says_nothing_against_an_endpoint(outcome: Outcome) -> None:
    told = of_another_api(outcome)
    assert isinstance(told, Rejected)
    assert told.http_status == outcome.http_status
    assert outcome.message is not None
    assert told.message == f"the server is listed for another API and does not have this one: {outcome.message}"


@pytest.mark.parametrize(
    "outcome",
    [
        Ok(Reply("", "stop")),
        Misrouted("HTTP 401: unknown path", 401),
        Misrouted("HTTP 308: redirects to nowhere", 308, curable=True),
        Misrouted("HTTP 421: wrong host", 421, curable=True),
        Failed("HTTP 500: an unknown pathology", 500),
        Lost("HTTP 200 with an error 500: unknown path", http_status=200),
        Busy("HTTP 503: unknown path", 503),
    ],
)
def test_any_other_outcome_stays_what_it_is(outcome: Outcome) -> None:
    assert of_another_api(outcome) is outcome


def test_a_long_message_stays_bounded() -> None:
    assert len(of_another_api(Misrouted("x" * MESSAGE_CHARACTERS, 404)).message or "") == MESSAGE_CHARACTERS
