"""From what verifiers says of a failure to the error that scavenge has for it, and foreign values as JSON."""

from __future__ import annotations

import httpx
import pytest
from scavenge_verifiers.failures import RolloutFailed, chain, failure, is_of_the_network, upstream_failure
from scavenge_verifiers.plain import as_json, as_metrics, as_text_json

from scavenge import InfrastructureError, RequestFailed


@pytest.mark.parametrize(
    "kind", ["SandboxError", "BrowserSandboxError", "TunnelError", "HarnessError", "ProviderError"]
)
def test_what_breaks_around_the_model_is_an_error_of_the_infrastructure(kind):
    assert isinstance(failure(kind, "gone"), InfrastructureError)


@pytest.mark.parametrize("kind", ["TaskError", "EnvError", "ToolParseError", "ModelError", "ValueError"])
def test_what_the_environments_own_code_raises_is_none(kind):
    error = failure(kind, "")
    assert isinstance(error, RolloutFailed)
    assert str(error) == kind


@pytest.mark.parametrize("body", ["", "<html>bad gateway</html>", "[]", '{"error": 3}', '{"scavenge": {"outcome": 7}}'])
def test_an_error_reply_that_is_not_the_gateways_is_a_failed_request_all_the_same(body):
    assert isinstance(upstream_failure(f"upstream 502: {body}"), RequestFailed)


@pytest.mark.parametrize("message", ["All connection attempts failed", "upstream 5", "malformed upstream response: x"])
def test_what_is_no_error_reply_is_left_alone(message):
    assert upstream_failure(message) is None


def test_an_error_is_told_with_its_causes_and_known_by_them():
    error = RuntimeError("no verdict")
    error.__cause__ = httpx.ConnectTimeout("too slow")
    assert chain(error) == "RuntimeError: no verdict, by ConnectTimeout: too slow"
    assert is_of_the_network(error)
    assert is_of_the_network(ConnectionResetError())
    assert not is_of_the_network(ValueError("no number"))


def test_values_of_json_stay_what_they_are():
    value = {"a": [1, 2.5, None, True, "x"], "b": {"c": ()}}
    assert as_json(value) == {"a": [1, 2.5, None, True, "x"], "b": {"c": []}}


def test_what_json_has_nothing_for_is_named_or_told_in_words():
    with pytest.raises(ValueError, match=r"images\[1\]\.data is a bytes, which JSON has nothing for"):
        as_json({"images": [{}, {"data": b"x"}]})
    assert as_text_json({"images": [b"x"]}) == {"images": ["b'x'"]}


def test_metrics_are_the_figures():
    assert as_metrics({"a": 1, "b": True, "c": float("nan"), "d": "x", "e": None}) == {"a": 1.0, "b": 1.0}
