"""Rows made of a template and the facts of a server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.config.endpoint_rows import check_listing
from scavenge.config.plugin_keys import structure_plugin
from scavenge.core.endpoint_template import EndpointTemplate
from scavenge.errors import ConfigError
from scavenge.listings import EndpointSpec, Listing

FACTS = {"address": "10.0.0.7", "port": 8000, "tag.slots": "12", "tag.empty": "", "tag.nothing": None}


@attrs.frozen(kw_only=True)
class Found(EndpointTemplate):
    """A source's configuration."""

    FACTS: ClassVar[tuple[str, ...]] = ("address", "port", "tag.")

    service: str = "vllm"


def template(**keys: object) -> Found:
    table = {"endpoint_id": "p", "model": "m", "url": "http://{address}:{port}/v1", **keys}
    return structure_plugin(Found, table, "source[0]", Path("/"))


def row(facts: dict[str, object], **keys: object) -> EndpointSpec:
    return template(**keys).row(facts)


def problems(spec: EndpointSpec) -> list[str]:
    return [problem.what for bad in check_listing(Listing([spec]), {}).bad for problem in bad.problems]


def test_a_row_has_the_facts_of_its_server_in_its_texts():
    spec = row(FACTS, max_concurrent="{tag.slots}", headers={"X-Node": "node {address}"}, proxy="http://{address}:1")
    assert spec == EndpointSpec(
        "p", "m", "http://10.0.0.7:8000/v1", max_concurrent=12, headers={"X-Node": "node 10.0.0.7"},
        proxy="http://10.0.0.7:1",
    )  # fmt: skip
    (endpoint,) = check_listing(Listing([spec]), {}).endpoints
    assert (endpoint.url, endpoint.max_concurrent) == ("http://10.0.0.7:8000/v1", 12)


def test_what_is_not_given_is_not_there():
    assert row(FACTS) == EndpointSpec("p", "m", "http://10.0.0.7:8000/v1")
    assert row(FACTS, max_concurrent=3, headers={}) == EndpointSpec("p", "m", "http://10.0.0.7:8000/v1", None, 3)


@pytest.mark.parametrize("fact", ["tag.empty", "tag.nothing", "tag.unheard"])
def test_a_fact_that_is_not_known_has_its_default(fact):
    assert row(FACTS, model=f"{{{fact}|base}}-x").model == "base-x"
    assert row(FACTS, model=f"m{{{fact}|}}").model == "m"
    assert row(FACTS, model="{address|base}").model == "10.0.0.7"


@pytest.mark.parametrize("key", ["model", "url", "endpoint_id", "key", "api_client_type", "proxy", "max_concurrent"])
def test_a_fact_that_is_missing_makes_its_row_wrong_and_the_message_names_it(key):
    (what,) = problems(row(FACTS, **{key: "http://h/{tag.unheard}"}))
    assert "{tag.unheard}" in what or key in ("key", "proxy")  # of those no value is shown


@pytest.mark.parametrize("keys", [{"model": "{tag.unheard}"}, {"headers": {"X": "{tag.unheard}"}}])
def test_a_row_that_lacks_a_fact_is_told_from_one_that_is_written_wrongly(keys):
    lacking, wrong = row(FACTS, **keys), EndpointSpec("p", "m", "no url")
    assert [bad.incomplete for bad in check_listing(Listing([lacking, wrong, {"headers": 1}]), {}).bad] == [
        True,
        False,
        False,
    ]


def test_a_number_that_is_none_makes_its_row_wrong():
    (what,) = problems(row({**FACTS, "tag.slots": "many"}, max_concurrent="{tag.slots}"))
    assert what == 'expected an integer > 0, got "many"'


def test_a_notice_is_handed_on():
    soon = datetime(2030, 1, 1, tzinfo=UTC)
    spec = template().row(FACTS, draining=True, drain_deadline=soon)
    assert (spec.draining, spec.drain_deadline) == (True, soon)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"url": "http://{adress}:1"}, 'source[0]: url: no fact "adress"; did you mean "address"?'),
        ({"url": "http://{address}:{tag.}"}, 'source[0]: url: no fact "tag."; did you mean "tag."?'),
        ({"url": "http://{address"}, 'source[0]: url: a brace without its other one in "http://{address"'),
        ({"model": "a}"}, 'source[0]: model: a brace without its other one in "a}"'),
        ({"headers": {"X": "{{address}}"}}, 'source[0]: headers: a brace without its other one in "{{address}}"'),
        ({"max_concurrent": True}, "expected an integer or a string, got true"),
        ({"headers": {"X": 1}}, "expected a string, got 1"),
        ({"modell": "m"}, 'unknown key; did you mean "model"?'),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused_at_once(keys, what):
    with pytest.raises(ConfigError) as caught:
        template(**keys)
    assert what in str(caught.value)


@given(st.dictionaries(st.sampled_from(["address", "port", "tag.a"]), st.text() | st.integers() | st.none()))
def test_whatever_the_facts_are_a_row_is_made(facts):
    spec = row(facts, model="{tag.a|m}", max_concurrent="{port}")
    assert isinstance(spec.model, str)
    check_listing(Listing([spec]), {})
