"""The sources against the three clouds on loopback."""

from __future__ import annotations

import json

import pytest
import trio
from gpucloud_double import TOKEN, Double, Machine, body, cut, endless, reset, silent, status
from gpucloud_kit import CASES, FAST, HURRIED, Case, each_cloud, urls
from scavenge_gpucloud.pace import Pace

from scavenge.plugin import SourceError


def several(count: int) -> list[Machine]:
    return [Machine(number, 40000 + number) for number in range(1, count + 1)]


def expected(machines: list[Machine]) -> set[str]:
    return {f"http://{one.ip}:{one.port}/v1" for one in machines if one.up}


@each_cloud
@pytest.mark.parametrize("count", [0, 1, 25, 26, 101, 230])
async def test_every_running_instance_is_listed_however_many_pages_that_takes(double, case: Case, count):
    double.machines = several(count)
    async with case.source(double) as source:
        listing = await source.list_endpoints()
    assert urls(listing) == expected(double.machines)
    assert len(listing.endpoints) == count


@each_cloud
async def test_what_comes_and_goes_is_seen_at_the_next_listing(double, case: Case):
    double.machines = several(3)
    async with case.source(double) as source:
        assert urls(await source.list_endpoints()) == expected(double.machines)
        double.machines[0].state = "stopped"
        double.machines.append(Machine(9, 41000, state="starting"))
        assert len(urls(await source.list_endpoints())) == 2
        double.machines[-1].state = "running"
        assert urls(await source.list_endpoints()) == expected(double.machines)


async def test_a_list_of_pages_that_moves_once_is_read_again(double):
    double.machines = several(230)
    gone: list[Machine] = []

    def one_goes() -> None:
        if not gone:
            gone.append(double.machines.pop())  # the newest, at the top of the first page: all others move up

    double.between_pages = one_goes
    async with CASES["prime"].source(double) as source:
        assert urls(await source.list_endpoints()) == expected(double.machines)
    assert len(double.machines) == 229


async def test_a_list_of_pages_that_never_stands_still_is_an_error_and_not_a_part_of_it(double):
    double.machines = several(230)
    double.between_pages = lambda: double.machines.append(Machine(double.machines[-1].number + 1))
    async with CASES["prime"].source(double) as source:
        with pytest.raises(SourceError, match=r"Prime Intellect at .*its list changed each time it was read"):
            await source.list_endpoints()


async def test_pages_by_token_lose_nobody_while_others_come_and_go(double):
    double.machines = several(60)
    steady = expected(double.machines[10:])

    def churn() -> None:
        double.machines.pop(0)
        double.machines.append(Machine(double.machines[-1].number + 1, 50000 + double.machines[-1].number))

    double.between_pages = churn
    async with CASES["vast"].source(double) as source:
        assert steady <= urls(await source.list_endpoints())


@each_cloud
async def test_a_wrong_key_is_an_error_that_names_the_variable_and_not_the_key(double, case: Case, monkeypatch):
    monkeypatch.setenv("GPUCLOUD_TEST_KEY", "another-key")
    double.machines = several(1)
    async with case.source(double) as source:
        with pytest.raises(SourceError, match=r"refuses the API key in GPUCLOUD_TEST_KEY \(401\)") as raised:
            await source.list_endpoints()
    assert "another-key" not in str(raised.value)
    assert len(double.requests) == 1


@each_cloud
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "is not set; set it"),
        ("", "is not set"),
        ("two words", "no HTTP header can"),
        ("é", "no HTTP header can"),
    ],
)
async def test_without_a_key_a_source_cannot_be_opened(double, case: Case, monkeypatch, value, words):
    monkeypatch.delenv("GPUCLOUD_TEST_KEY")
    if value is not None:
        monkeypatch.setenv("GPUCLOUD_TEST_KEY", value)
    with pytest.raises(SourceError, match="GPUCLOUD_TEST_KEY") as raised:
        async with case.source(double):
            pytest.fail("it opened")
    assert words in str(raised.value)
    assert not double.requests


@each_cloud
async def test_a_key_may_end_with_a_line_break_as_one_read_from_a_file_does(double, case: Case, monkeypatch):
    monkeypatch.setenv("GPUCLOUD_TEST_KEY", f"{TOKEN}\n")
    async with case.source(double) as source:
        assert urls(await source.list_endpoints()) == set()


@each_cloud
async def test_throttling_and_failures_that_pass_cost_time_only(double, case: Case):
    double.machines = several(30)
    async with case.source(double) as source:
        for fault in (status(429, 2, Retry_After="0"), status(429, 1), status(503, 3), status(500, 1)):
            with double.failing(fault):
                assert urls(await source.list_endpoints()) == expected(double.machines)


FAULTS = {
    "throttled": status(429),
    "throttled for long": status(429, Retry_After="3000"),
    "down": status(503),
    "forbidden": status(403),
    "gone": status(404),
    "elsewhere": status(302, Location="https://evil.example.com"),
    "no content": status(204),
    "html": body("<html>we will be back</html>"),
    "nothing": body(""),
    "null": body(None),
    "a text": body('"[]"'),
    "an object": body({}),
    "no success": body({"success": False, "error": "auth_error", "msg": TOKEN}),
    "graphql errors": body({"errors": [{"message": "no"}], "data": None}),
    "other words": body([{"podId": "a", "state": "up"}]),
    "odd instances": body({"instances": [None], "data": [None], "total_count": 1}),
    "an empty page": body({"instances": [], "total_instances": 3, "data": [], "total_count": 3}),
    "no total": body({"instances": None, "data": []}),
    "cut": cut,
    "reset": reset,
    "silent": silent,
}


@each_cloud
@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
async def test_a_cloud_that_cannot_say_is_an_error_and_never_an_empty_list(double, case: Case, fault):
    double.machines = several(2)
    async with case.source(double, HURRIED if fault is silent else FAST) as source:
        with double.failing(fault), pytest.raises(SourceError) as raised:
            await source.list_endpoints()
    text = str(raised.value)
    assert text.startswith(f"{case.cloud.service} at {double.url}")
    assert TOKEN not in text
    assert "\n" not in text


@each_cloud
async def test_nobody_is_followed_to_another_place_with_the_key(double, case: Case):
    async with case.source(double) as source:
        elsewhere = status(302, Location=f"{double.url}/stolen")
        with double.failing(elsewhere), pytest.raises(SourceError, match="sends us elsewhere"):
            await source.list_endpoints()
    assert len(double.requests) == 1


async def test_an_answer_without_an_end_is_read_no_further_than_is_sensible(double):
    async with CASES["vast"].source(double, Pace(page_gap_s=0.0, backoff_first_s=0.0)) as source:
        with double.failing(endless), pytest.raises(SourceError, match="more than 16 MB"):
            await source.list_endpoints()
    assert len(double.requests) == 1


@each_cloud
async def test_a_cloud_that_was_down_is_heard_again(double, case: Case):
    double.machines = several(2)
    async with case.source(double) as source:
        for fault in (cut, reset, silent, status(500)):
            source.client.pace = HURRIED if fault is silent else FAST
            with double.failing(fault), pytest.raises(SourceError):
                await source.list_endpoints()
            source.client.pace = FAST
            assert urls(await source.list_endpoints()) == expected(double.machines)


@each_cloud
async def test_a_cloud_that_nobody_answers_for_is_an_error(case: Case):
    with Double().serve() as double:
        pass
    async with case.source(double) as source:
        with pytest.raises(SourceError, match=r"cannot be reached \(ConnectError\)"):
            await source.list_endpoints()


@each_cloud
async def test_a_cancelled_listing_hangs_up_and_the_next_one_is_right(double, case: Case):
    double.machines = several(2)
    async with case.source(double, FAST) as source:
        with double.failing(silent), trio.move_on_after(0.1) as scope:
            await source.list_endpoints()
        assert scope.cancelled_caught
        assert urls(await source.list_endpoints()) == expected(double.machines)


@each_cloud
async def test_a_shuffled_list_gives_the_same_rows(double, case: Case):
    double.machines = several(9)
    async with case.source(double) as source:
        first = await source.list_endpoints()
        double.machines.reverse()
        assert (await source.list_endpoints()).endpoints == first.endpoints


@each_cloud
async def test_the_key_stands_in_no_url_and_in_no_listing(double, case: Case):
    double.machines = several(1)
    async with case.source(double) as source:
        listing = await source.list_endpoints()
        assert TOKEN not in repr(source)
    assert TOKEN not in json.dumps(double.requests)
    assert TOKEN not in repr(listing)
