"""What the reply to a probe says."""

from __future__ import annotations

import json

import pytest

from scavenge.core.errorbody import Wording
from scavenge.core.modellist import outcome_of_probe
from scavenge.types import Busy, Failed, Healthy, Misrouted, Outcome


def probed(body: object, model: str = "org/m", status: int = 200) -> Healthy | Outcome:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return outcome_of_probe(model, status, {}, raw, Wording("GET http://h/v1/models"))


@pytest.mark.parametrize(
    ("body", "model"),
    [
        ({"object": "list", "data": [{"id": "other"}, {"id": "org/m"}]}, "org/m"),
        ({"models": [{"name": "llama3:latest", "model": "llama3:latest"}]}, "llama3"),
        ({"data": [{"id": "/models/q4.gguf"}], "models": [{"name": "x"}]}, "q4.gguf"),
        ({"data": [{"id": "x", "aliases": ["org/m", 7]}]}, "org/m"),
        ([{"id": "org/m"}], "org/m"),
        ({"data": ["org/m"]}, "org/m"),
    ],
)
def test_a_listed_model_is_found(body: object, model: str) -> None:
    assert probed(body, model) == Healthy()


def test_a_model_of_another_owner_is_another_model() -> None:
    assert isinstance(probed({"data": [{"id": "other/m"}]}, "m"), Misrouted)


@pytest.mark.parametrize("body", [b"", b"OK", {}, {"status": "ok", "message": "alive"}, b"7"])
def test_a_server_without_a_list_is_healthy_as_far_as_it_goes(body: object) -> None:
    assert probed(body) == Healthy(listed=False)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"data": []}, "lists no models"),
        ({"data": [7, {"id": 8}]}, "lists no models"),
        ({"data": [{"id": "org/mm"}]}, "did you mean 'org/mm'"),
        ({"data": [{"id": "quite"}, {"id": "different"}]}, "it lists 'different', 'quite'"),
    ],
)
def test_a_list_without_the_model_is_misrouted_and_curable(body: object, said: str) -> None:
    found = probed(body)
    assert isinstance(found, Misrouted)
    assert found.curable
    assert said in found.message


@pytest.mark.parametrize("status", [404, 405, 501])
def test_no_such_path_is_no_verdict(status: int) -> None:
    assert probed(b"", status=status) == Healthy(listed=False)


def test_other_replies_are_their_outcome() -> None:
    assert isinstance(probed(b"", status=401), Misrouted)
    assert isinstance(probed(b"", status=503), Busy)
    assert isinstance(probed(b"<html>tunnel</html>"), Failed)
    assert isinstance(probed({"error": {"message": "m", "code": 503}}), Busy)
    assert isinstance(probed({"error": "m"}), Failed)
