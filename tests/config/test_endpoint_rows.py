"""The rows of a listing: every rule of the table, and that a wrong row costs only itself."""

from __future__ import annotations

from datetime import UTC, date, datetime

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.config import check_listing, pool_modes
from scavenge.errors import SourceError
from scavenge.listings import CheckedListing, EndpointSpec, Listing, PoolMode
from scavenge.types import ApiType, Endpoint

ENVIRON = {"MY_KEY": "hunter2", "EMPTY": "", "BROKEN": "hunter2\n", "hf_hunter2": "x"}
NO_TIME = "expected a time with a time zone, such as 2030-01-01T00:00:00Z"
A = Endpoint(endpoint_id="a", model="m", url="http://h1/v1")


def row(number: int = 1, **keys: object) -> dict[str, object]:
    made = {"endpoint_id": "a", "model": "m", "url": f"http://h{number}/v1", **keys}
    return {key: value for key, value in made.items() if value is not None}


def check(*rows: object, present: dict | None = None) -> CheckedListing:
    return check_listing(Listing(rows, where="endpoints.toml"), ENVIRON, present=present)


def told(checked: CheckedListing) -> list[str]:
    return [str(problem) for bad in checked.bad for problem in bad.problems]


def only_problem(**keys: object) -> str:
    checked = check(row(**keys))
    assert checked.endpoints == ()
    (problem,) = told(checked)
    assert "hunter2" not in problem
    return problem.removeprefix("endpoints.toml: endpoint[0].")


def test_a_row_with_every_key_becomes_an_endpoint():
    checked = check(
        row(
            url="HTTP://H1:80/v1/chat/completions",
            key="MY_KEY",
            max_concurrent=8,
            type="openai_completions",
            headers={"X-Team": "night shift"},
            draining=True,
            proxy="http://me:pw@proxy:3128",
        )
    )
    assert checked == CheckedListing(
        (
            attrs.evolve(
                A,
                key="MY_KEY",
                secret="hunter2",
                max_concurrent=8,
                type=ApiType.COMPLETIONS,
                headers={"X-Team": "night shift"},
                draining=True,
                proxy="http://me:pw@proxy:3128",
            ),
        )
    )


def test_a_row_with_the_required_keys_has_every_default():
    assert check(row()) == CheckedListing((A,))


def test_aliases_mean_the_same_as_their_names():
    row_of_aliases = row(
        url=None,
        api_base_url="http://h1/v1",
        api_key_var="MY_KEY",
        api_client_type="openai_chat_completions",
        extra_headers={"A": "b"},
    )
    expected = attrs.evolve(A, key="MY_KEY", secret="hunter2", headers={"A": "b"})
    assert check(row_of_aliases).endpoints == (expected,)
    assert check(row(key="MY_KEY", api_key_var="MY_KEY", headers={"A": "b"})).endpoints == (expected,)


def test_a_key_that_is_null_is_a_key_that_is_not_there():
    assert check({**row(), "max_concurrent": None, "headers": None}).endpoints == (A,)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"endpoint_id": None}, "endpoint_id: this key is required"),
        ({"endpoint_id": ""}, 'endpoint_id: expected a non-empty string, got ""'),
        ({"endpoint_id": 3}, "endpoint_id: expected a non-empty string, got 3"),
        ({"model": None}, "model: this key is required"),
        ({"model": " "}, 'model: expected a non-empty string, got " "'),
        ({"url": None}, "url: this key is required"),
        ({"url": 3}, "url: expected a string, got 3"),
        ({"url": "h1/v1"}, "url: expected an absolute http:// or https:// URL"),
        ({"url": "http://me:hunter2@h1"}, "url: a URL must not contain a user name or password"),
        ({"api_base_url": "http://h9"}, "api_base_url: another value than url beside it"),
        ({"url": None, "api_base_url": "h1"}, "api_base_url: expected an absolute"),
        ({"max_concurrent": True}, "max_concurrent: expected an integer > 0, got true"),
        ({"max_concurrent": 0}, "max_concurrent: expected an integer > 0, got 0"),
        ({"max_concurrent": -1}, "max_concurrent: expected an integer > 0, got -1"),
        ({"max_concurrent": "8"}, 'max_concurrent: expected an integer > 0, got "8"'),
        ({"max_concurrent": 8.0}, "max_concurrent: expected an integer > 0, got 8.0"),
        ({"type": "anthropic"}, 'type: "anthropic" is not supported; supported are "openai_chat_completions" and'),
        ({"type": 3}, "type: expected a string, got 3"),
        ({"draining": 1}, "draining: expected true or false, got 1"),
        ({"key": "sk-hunter2"}, "key: expected the name of an environment variable, not the key itself"),
        ({"key": 3}, "key: expected the name of an environment variable, not the key itself"),
        ({"key": "UNSET"}, "key: the environment variable UNSET is not set; set it"),
        ({"key": "unset_hunter2"}, "key: the environment variable that it names is not set; set it"),
        ({"api_key_var": "EMPTY"}, "api_key_var: the environment variable EMPTY is empty; set it"),
        ({"key": "BROKEN"}, "key: the environment variable BROKEN holds what no HTTP header can"),
        ({"key": "MY_KEY", "api_key_var": "EMPTY"}, "api_key_var: another value than key beside it"),
        ({"headers": ["hunter2"]}, "headers: expected a table"),
        ({"headers": {"a b": "hunter2"}}, 'headers: "a b" is no name of an HTTP header'),
        ({"headers": {"": "hunter2"}}, 'headers: "" is no name of an HTTP header'),
        ({"headers": {"A": "hunter2\r\nB: c"}}, "headers: the value of A must be a string of printable ASCII"),
        ({"headers": {"A": "hunter2 "}}, "headers: the value of A must be a string of printable ASCII"),
        ({"headers": {"A": "é"}}, "headers: the value of A must be a string of printable ASCII"),
        ({"headers": {"A": 3}}, "headers: the value of A must be a string of printable ASCII"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "headers: x-a stands here twice"),
        ({"headers": {"Content-Length": "3"}}, "headers: Content-Length is written by scavenge itself"),
        ({"extra_headers": {"authorization": "x"}, "key": "MY_KEY"}, "extra_headers: Authorization is written from"),
        ({"proxy": "socks5://me:hunter2@h"}, "proxy: expected the URL of an HTTP proxy"),
        ({"proxy": 3}, "proxy: expected a string"),
        ({"max_concurent": 3}, 'max_concurent: unknown key; did you mean "max_concurrent"?'),
        ({"drain_deadline": "tomorrow"}, f'drain_deadline: {NO_TIME}, got "tomorrow"'),
        ({"drain_deadline": 1893456000}, f"drain_deadline: {NO_TIME}, got 1893456000"),
        ({"drain_deadline": "2030-01-01T00:00:00"}, f"drain_deadline: {NO_TIME}"),
        ({"drain_deadline": date(2030, 1, 1)}, f"drain_deadline: {NO_TIME}, got a date (2030-01-01)"),
    ],
)
def test_a_wrong_row_says_what_is_expected_and_no_secret(keys, problem):
    assert only_problem(**keys).startswith(problem)


def test_authorization_of_ones_own_is_taken_without_a_key():
    assert check(row(headers={"Authorization": "Basic x"})).endpoints[0].headers == {"Authorization": "Basic x"}


def test_a_bad_row_tells_as_much_of_its_endpoint_as_is_right():
    checked = check(row(draining=3), row(url="x"), row(2, endpoint_id=3), "http://me:hunter2@h", {3: 4})
    assert [(bad.endpoint_id, bad.url, bad.index) for bad in checked.bad] == [
        ("a", "http://h1/v1", 0),
        ("a", None, 1),
        (None, "http://h2/v1", 2),
        (None, None, 3),
        (None, None, 4),
    ]
    assert told(checked)[-1] == "endpoints.toml: endpoint[4]: expected a table with the keys of an endpoint"
    assert "hunter2" not in str(told(checked))


def test_a_wrong_row_costs_only_itself():
    checked = check(row(1), row(2, max_concurrent=True), row(3, model=""), row(4, endpoint_id="b", model="n"))
    assert [endpoint.url for endpoint in checked.endpoints] == ["http://h1/v1", "http://h4/v1"]
    assert [bad.index for bad in checked.bad] == [1, 2]


def test_the_same_url_twice_in_a_pool_is_an_error_in_the_later_row():
    checked = check(row(1), row(url=None, api_base_url="http://H1/v1/"), row(1, endpoint_id="b"))
    assert [endpoint.endpoint_id for endpoint in checked.endpoints] == ["a", "b"]
    assert told(checked) == [
        "endpoints.toml: endpoint[1].api_base_url: the same URL as endpoint[0] of this pool; list each server once"
    ]


def test_rows_of_a_pool_have_one_model():
    checked = check(row(1, model="n", draining=3), row(2), row(3), row(4, model="n"))
    assert [endpoint.url for endpoint in checked.endpoints] == ["http://h2/v1", "http://h3/v1"]
    assert told(checked)[1:] == [
        f'endpoints.toml: endpoint[{index}].model: pool "a" has the model "m", got "n"; '
        "give the endpoints of another model another endpoint_id"
        for index in (0, 3)
    ]


def test_a_pool_in_use_keeps_its_model():
    checked = check(row(1, model="n"), row(2), present={"a": PoolMode("m", capped=False)})
    assert [endpoint.url for endpoint in checked.endpoints] == ["http://h2/v1"]


def test_the_rows_that_lack_a_cap_are_listed():
    checked = check(row(1), row(2, max_concurrent=2), row(3), row(4, max_concurrent=2), row(5, endpoint_id="b"))
    assert [endpoint.url for endpoint in checked.endpoints] == ["http://h2/v1", "http://h4/v1", "http://h5/v1"]
    assert told(checked) == [
        f'endpoints.toml: endpoint[{index}].max_concurrent: missing; in pool "a" every row sets it or none does: '
        "it is missing in endpoint[0], endpoint[2]"
        for index in (0, 2)
    ]


def test_a_pool_in_use_keeps_its_mode_of_caps():
    rows = (row(1), row(2, max_concurrent=2))
    uncapped = check(*rows, present={"a": PoolMode("m", capped=False)})
    capped = check(*rows, present={"a": PoolMode("m", capped=True)})
    assert [endpoint.url for endpoint in uncapped.endpoints] == ["http://h1/v1"]
    assert [endpoint.url for endpoint in capped.endpoints] == ["http://h2/v1"]
    (problem,) = told(uncapped)
    assert problem.startswith('endpoints.toml: endpoint[1].max_concurrent: pool "a" has no caps (it is missing in end')
    assert "(it is missing" not in told(check(rows[1], present={"a": PoolMode("m", capped=False)}))[0]


@pytest.mark.parametrize("other", [{"model": "n"}, {"url": "http://h1/v1"}, {"draining": 3}, {"key": "UNSET"}])
def test_a_row_that_is_wrong_otherwise_does_not_decide_about_caps(other):
    checked = check(row(1), row(2, max_concurrent=3, **other))
    assert checked.endpoints == (A,)


def test_a_row_with_a_wrong_cap_is_not_said_to_lack_one():
    assert told(check(row(1, max_concurrent=3), row(2, max_concurrent=0))) == [
        "endpoints.toml: endpoint[1].max_concurrent: expected an integer > 0, got 0"
    ]


def test_a_pool_of_wrong_rows_is_compared_all_the_same():
    problems = told(check(row(1, draining=3, max_concurrent=2), row(2, draining=3)))
    assert problems[-1].startswith("endpoints.toml: endpoint[1].max_concurrent: missing")


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2030, 1, 1, tzinfo=UTC),
        "2030-01-01T00:00:00Z",
        "2030-01-01T00:00:00+00:00",
        "2030-01-01T01:00:00.000+01:00",
        "20300101T000000Z",
    ],
)
def test_a_deadline_is_a_time_or_a_text_that_writes_one(moment):
    (one,) = check(row(drain_deadline=moment)).endpoints
    assert one.drain_deadline == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_deadline_at_the_ends_of_time_can_be_counted_with(moment):
    (one,) = check(row(drain_deadline=moment)).endpoints
    assert abs(one.drain_deadline.timestamp()) < 1e12


def test_pool_modes_are_what_endpoints_have_in_common():
    capped = attrs.evolve(A, endpoint_id="b", max_concurrent=3)
    assert pool_modes([A, capped]) == {"a": PoolMode("m", capped=False), "b": PoolMode("m", capped=True)}


def test_a_spec_is_checked_like_a_row_and_may_have_a_drain_deadline():
    deadline = datetime(2030, 1, 1, tzinfo=UTC)
    checked = check(
        EndpointSpec("a", "m", "http://h1/v1/", drain_deadline=deadline),
        EndpointSpec("a", "m", "http://h2/v1", drain_deadline=deadline.replace(tzinfo=None)),
        EndpointSpec("a", "m"),
    )
    assert checked.endpoints == (attrs.evolve(A, drain_deadline=deadline),)
    assert told(checked) == [
        "endpoints.toml: endpoint[1].drain_deadline: expected a time with a time zone, such as 2030-01-01T00:00:00Z",
        "endpoints.toml: endpoint[2].url: this key is required",
    ]


@pytest.mark.parametrize("endpoints", [None, 3, "http://h", b"x", {"a": 1}])
def test_a_listing_that_is_no_list_is_a_source_error(endpoints):
    with pytest.raises(SourceError, match=r"^endpoints.toml: expected a list of endpoints, got "):
        check_listing(Listing(endpoints, where="endpoints.toml"), {})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=2),
    max_leaves=4,
)
FIELDS = [field.name for field in attrs.fields(EndpointSpec)]
GOOD = st.builds(row, st.integers(1, 4), max_concurrent=st.sampled_from([None, 1, 0]), model=st.sampled_from("mn"))
ANY = st.dictionaries(st.sampled_from([*FIELDS, "api_base_url", "extra_headers", "zzz"]), VALUES)
ROWS = GOOD | ANY | st.builds(lambda good, odd: {**good, **odd}, GOOD, ANY) | VALUES


@given(st.lists(ROWS | st.builds(EndpointSpec, *[VALUES] * len(FIELDS)), max_size=6), st.booleans())
def test_any_rows_are_taken_apart_into_endpoints_and_bad_rows(rows, in_use):
    checked = check(*rows, present={"a": PoolMode("m", capped=False)} if in_use else None)
    assert len(checked.endpoints) + len(checked.bad) == len(rows)
    assert all(bad.problems for bad in checked.bad)
    assert all(problem.isprintable() for problem in told(checked))
    assert len({(one.endpoint_id, one.url) for one in checked.endpoints}) == len(checked.endpoints)
    for mode in ("model", "capped"):
        modes = {(one.endpoint_id, getattr(pool_modes([one])[one.endpoint_id], mode)) for one in checked.endpoints}
        assert len(modes) == len({one.endpoint_id for one in checked.endpoints})
