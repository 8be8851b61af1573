"""The source against moto's EC2, and against an EC2 that fails: it tells everything there is, or why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import attrs
import pytest
import scavenge_ec2.api
import scavenge_ec2.source
import trio
from ec2_double import TEMPLATE, Notice, Reply, refused
from scavenge_ec2.config import Ec2Config
from scavenge_ec2.source import open_ec2

from scavenge.plugin import EndpointSpec, SourceError

Launch = Callable[..., str]
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
"""Later than the launch of any instance."""


async def listed(config: Ec2Config) -> dict[object, EndpointSpec]:
    """What a source that is opened for this one question lists, by URL."""
    async with open_ec2(config) as source:
        rows = (await source.list_endpoints()).endpoints
    assert all(isinstance(row, EndpointSpec) for row in rows)
    assert len({row.url for row in rows}) == len(rows)
    return {row.url: row for row in rows}


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


# --- what there is


async def test_it_lists_the_running_instances_that_pass_the_filters(config, launch, ec2):
    assert await listed(config) == {}
    launch(port=1)
    launch(port=2, spot=True)
    launch(port=3, role="web")
    gone = launch(port=4)
    ec2.terminate_instances(InstanceIds=[gone])
    rows = await listed(config)
    assert sorted(rows) == [url(1), url(2)]
    assert rows[url(1)] == EndpointSpec(endpoint_id="pool", model="sim", url=url(1))


async def test_it_spares_the_account_whoever_asks_how_often(config, double, pauses, monkeypatch):
    monkeypatch.setattr(scavenge_ec2.source, "ASKED_EVERY_S", 0.3)
    began_at = trio.current_time()
    async with open_ec2(config) as source:
        with double.faulty(refused("RequestLimitExceeded", status=503)):
            for _ in range(2):
                with pytest.raises(SourceError):
                    await source.list_endpoints()
        await source.list_endpoints()
    assert trio.current_time() - began_at >= 0.6


async def test_facts_and_tags_make_the_rows(config, launch):
    launch(port=1, slots=16, model="m")
    launch(port=2, spot=True)
    keys = {"url": "http://{private_ip}:{tag.port}/v1", "model": "{tag.model|sim}", "endpoint_id": "{lifecycle}"}
    rows = await listed(attrs.evolve(config, **keys, max_concurrent="{tag.slots|4}"))
    assert {(row.endpoint_id, row.model, row.max_concurrent) for row in rows.values()} == {
        ("on-demand", "m", 16),
        ("spot", "sim", 4),
    }
    assert all(str(found).startswith("http://10.") for found in rows)


async def test_a_listing_has_all_pages(config, launch, double):
    for port in range(1, 8):
        launch(port=port)
    double.page_size = 2
    assert len(await listed(config)) == 7
    assert double.actions().count("DescribeInstances") == 4


async def test_filters_are_several_values_and_several_names(config, launch):
    launch(port=1, tier="a")
    launch(port=2, tier="b")
    launch(port=3, tier="c")
    both = attrs.evolve(config, filters={**config.filters, "tag:tier": ["a", "b"]})
    assert sorted(await listed(both)) == [url(1), url(2)]


async def test_an_instance_without_a_tag_that_the_row_needs_costs_its_own_row(config, launch):
    launch(port=1)
    launch()
    async with open_ec2(config) as source:
        rows = (await source.list_endpoints()).endpoints
    assert sorted(isinstance(row.url, str) for row in rows) == [False, True]


# --- servers that go away


async def test_a_spot_instance_drains_for_the_two_minutes_of_its_notice(config, launch, double):
    double.notices[launch(port=1, spot=True)] = Notice("fulfilled", SOON)
    codes = ("marked-for-termination", "marked-for-stop", "instance-terminated-no-capacity")
    for port, code in enumerate(codes, 2):
        double.notices[launch(port=port, spot=True)] = Notice(code, SOON)
    double.notices[launch(port=5, spot=True)] = Notice("marked-for-stop", SOON, "hibernate")
    rows = await listed(config)
    assert rows[url(1)].draining is None
    for port in (2, 3, 4):
        assert rows[url(port)].draining is True
        assert rows[url(port)].drain_deadline == SOON + timedelta(seconds=120)
    assert rows[url(5)].drain_deadline == SOON


async def test_a_notice_stands_when_its_persistent_request_has_forgotten_it(config, launch, double):
    going = launch(port=1, spot=True)
    double.notices[going] = Notice("instance-terminated-no-capacity", SOON)
    async with open_ec2(config) as source:
        first = (await source.list_endpoints()).endpoints
        double.notices[going] = Notice("pending-evaluation", SOON)
        second = (await source.list_endpoints()).endpoints
        double.states[going] = "shutting-down"
        (third,) = (await source.list_endpoints()).endpoints
        double.states[going] = "terminated"
        assert (await source.list_endpoints()).endpoints == []
    assert first == second
    assert third.draining is True
    assert first[0].drain_deadline == SOON + timedelta(seconds=120)


async def test_a_notice_is_told_by_this_machines_clock(config, launch, double):
    double.clock_behind = timedelta(seconds=100)
    double.notices[launch(port=1, spot=True)] = Notice("marked-for-stop", SOON)
    (row,) = (await listed(config)).values()
    assert row.drain_deadline is not None
    assert abs(row.drain_deadline - (SOON + timedelta(seconds=220))) <= timedelta(seconds=2)


async def test_nobody_asks_for_notices_where_they_are_not_wanted(config, launch, double):
    double.notices[launch(port=1, spot=True)] = Notice("marked-for-stop", SOON)
    (row,) = (await listed(attrs.evolve(config, spot_notices=False))).values()
    assert row.draining is None
    assert set(double.actions()) == {"DescribeInstances"}


async def test_an_instance_that_shuts_down_drains_with_a_deadline_that_stays(config, launch, double):
    double.states[launch(port=1)] = "shutting-down"
    double.states[launch(port=2)] = "stopping"
    async with open_ec2(config) as source:
        first = (await source.list_endpoints()).endpoints
        second = (await source.list_endpoints()).endpoints
    assert len(first) == 2
    assert all(row.draining is True and row.drain_deadline > datetime.now(UTC) for row in first)
    assert first == second


async def test_an_instance_that_does_not_run_is_not_listed(config, launch, double):
    launch(port=1)
    for port, state in enumerate(("pending", "stopped", "terminated"), 2):
        double.states[launch(port=port)] = state
    assert list(await listed(config)) == [url(1)]


async def test_a_tag_drains_an_instance_and_takes_it_back(config, launch, ec2):
    instance_id = launch(port=1)
    async with open_ec2(config) as source:

        async def row_with(value: str | None) -> EndpointSpec:
            tag = {"Key": "scavenge:drain", **({} if value is None else {"Value": value})}
            change = ec2.delete_tags if value is None else ec2.create_tags
            change(Resources=[instance_id], Tags=[tag])
            (row,) = (await source.list_endpoints()).endpoints
            return row

        assert (await row_with("yes")).draining is True
        assert (await row_with("2030-01-01T00:00:00Z")).drain_deadline == datetime(2030, 1, 1, tzinfo=UTC)
        assert (await row_with("2031-01-01T00:00:00Z")).drain_deadline == datetime(2031, 1, 1, tzinfo=UTC)
        assert (await row_with("false")).draining is None
        assert (await row_with(None)).draining is None


# --- an EC2 that fails


REFUSALS = [
    (refused("UnauthorizedOperation", "You are not. Encoded failure: AAAA", 403), "allow ec2:DescribeInstances"),
    (refused("AuthFailure", status=401), "credentials are not accepted"),
    (refused("RequestExpired"), "credentials have expired"),
    (refused("OptInRequired", status=401), "enable it for the account"),
    (refused("RequestLimitExceeded", status=503), "it throttles"),
    (refused("InternalError", status=500), "out of order"),
    (refused("Unavailable", status=503), "out of order"),
    (refused("InvalidParameterValue", "The filter 'role' is invalid"), "The filter 'role' is invalid; look at filters"),
    (Reply(502, b"<html>Bad Gateway</html>"), "out of order"),
    (Reply(503, b""), "out of order"),
    (Reply(200, b""), "cut, or not EC2's"),
    (Reply(200, b"<html><body>Log in first</body></html>"), "not EC2's"),
    (Reply(200, b"{}"), "cut, or not EC2's"),
    (Reply(200, b"\x00\xff" * 50), "cut, or not EC2's"),
    (Reply(200, b"<DescribeInstancesResponse><reservationSet><item>"), "cut, or not EC2's"),
    (Reply(200, b"<DescribeInstancesResponse><reservationSet/></Des" + b"x" * 500, cut_after=60), "cut, or not EC2's"),
    (
        Reply(
            200,
            b"<R><reservationSet><item><instancesSet><item><launchTime>yesterday</launchTime>"
            b"</item></instancesSet></item></reservationSet></R>",
        ),
        "cut, or not EC2's",
    ),
    (Reply(200, b"<R><reservationSet/><nextToken>same</nextToken></R>"), "without an end"),
]


async def test_an_ec2_that_does_not_say_is_no_empty_listing(config, launch, double, pauses):
    launch(port=1)
    async with open_ec2(config) as source:
        for reply, told in REFUSALS:
            with double.faulty(reply), pytest.raises(SourceError) as caught:
                await source.list_endpoints()
            text = str(caught.value)
            assert told in text, (reply, text)
            assert text.startswith(f"EC2 in us-east-1 at {double.url}: ")
            assert "\n" not in text
            assert not any(secret in text for secret in ("a-secret-for-tests", "AKIDFORTESTS", "AAAA", "Log in"))
            assert caught.value.__context__ is None  # which would keep a connection
            assert [row.url for row in (await source.list_endpoints()).endpoints] == [url(1)]


async def test_a_page_that_is_missing_makes_no_listing_of_the_others(config, launch, double, pauses):
    for port in range(1, 5):
        launch(port=port)
    double.page_size = 2
    with double.faulty(None, refused("InternalError", status=500)), pytest.raises(SourceError, match="out of order"):
        await listed(config)


async def test_a_listing_without_the_notices_is_none(config, launch, double, pauses):
    launch(port=1)
    denied = refused("UnauthorizedOperation", status=403)
    with (
        double.faulty(denied, action="DescribeSpotInstanceRequests"),
        pytest.raises(SourceError, match=r"allow ec2:DescribeSpotInstanceRequests .* or set spot_notices = false"),
    ):
        await listed(config)


async def test_a_passing_trouble_is_waited_out_with_growing_random_pauses(config, launch, double, pauses):
    launch(port=1)
    throttled = refused("RequestLimitExceeded", status=503)
    with double.faulty(throttled, throttled, None):
        assert list(await listed(config)) == [url(1)]
    assert len(pauses) == 4  # two for each of the two calls
    assert all(0 <= pause <= 2 for pause in pauses)
    assert len(set(pauses)) > 1


async def test_an_answer_of_too_many_pages_is_none(config, double, monkeypatch):
    monkeypatch.setattr(scavenge_ec2.api, "MOST_PAGES", 3)

    def endless(action: str, count: int) -> Reply:
        return Reply(200, f"<R><reservationSet/><nextToken>{count}</nextToken></R>".encode())

    double.fault = endless
    with pytest.raises(SourceError, match="more than 3 pages for DescribeInstances"):
        await listed(config)
    assert len(double.asked) == 4


async def test_an_ec2_that_hangs_is_given_up_and_asked_again(config, launch, double, monkeypatch):
    launch(port=1)
    monkeypatch.setattr(scavenge_ec2.source, "ANSWER_WITHIN_S", 0.2)
    async with open_ec2(config) as source:
        double.goes_on.clear()
        for _ in range(2):
            with pytest.raises(SourceError, match=r"no answer within 0.2 s"):
                await source.list_endpoints()
        assert len(double.asked) == 1  # the second one waits for the first
        double.goes_on.set()
        monkeypatch.setattr(scavenge_ec2.source, "ANSWER_WITHIN_S", 30)
        assert len((await source.list_endpoints()).endpoints) == 1


async def test_a_port_that_nobody_listens_on_is_told(config, double, pauses):
    closed = attrs.evolve(config, endpoint_url="http://127.0.0.1:9")
    with pytest.raises(SourceError, match=r"cannot be reached .*look at the network"):
        await listed(closed)


async def test_a_clock_that_is_wrong_is_named_where_credentials_are_refused(config, double):
    double.clock_behind = timedelta(minutes=-10)
    with double.faulty(refused("AuthFailure", status=401)), pytest.raises(SourceError) as caught:
        await listed(config)
    assert "s behind EC2's, set it right" in str(caught.value)


async def test_a_cancelled_listing_leaves_a_source_that_lists(config, launch, double):
    launch(port=1)
    async with open_ec2(config) as source:
        double.goes_on.clear()
        with trio.move_on_after(0.05) as scope:
            await source.list_endpoints()
        assert scope.cancelled_caught
        double.goes_on.set()
        assert len((await source.list_endpoints()).endpoints) == 1


# --- what is wrong before anything is asked


async def test_without_credentials_it_says_where_they_could_come_from(config, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(SourceError, match=r"no whole credentials .* set `profile`"):
        await listed(config)


async def test_half_of_the_credentials_is_none(config, monkeypatch):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(SourceError, match="no whole credentials"):
        await listed(config)


async def test_a_profile_that_does_not_exist_is_named_at_the_opening(config):
    with pytest.raises(SourceError, match='there is no profile "night"'):
        await listed(attrs.evolve(config, profile="night"))


async def test_no_region_at_all_is_told_at_the_opening(config, monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(SourceError, match="no region is set; set `region`"):
        await listed(attrs.evolve(config, region=None))


async def test_a_region_that_no_region_can_be_called_is_told_at_the_opening(config):
    with pytest.raises(SourceError, match="correct `region`"):
        await listed(attrs.evolve(config, region="not a region"))


async def test_broken_files_of_the_sdk_are_told(config, monkeypatch, tmp_path):
    (tmp_path / "config").write_text("[profile\nnight")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(SourceError, match="ConfigParseError"):
        await listed(config)


async def test_credentials_come_from_a_program_that_a_profile_names(config, launch, monkeypatch, tmp_path, double):
    launch(port=1)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    program = 'echo {\\"Version\\": 1, \\"AccessKeyId\\": \\"A\\", \\"SecretAccessKey\\": \\"s\\"}'
    (tmp_path / "good").write_text(program)
    (tmp_path / "bad").write_text("echo token-xyz >&2; exit 1")
    (tmp_path / "config").write_text(
        f"[profile good]\ncredential_process = sh {tmp_path}/good\n"
        f"[profile bad]\ncredential_process = sh {tmp_path}/bad\n"
    )
    assert list(await listed(attrs.evolve(config, profile="good"))) == [url(1)]
    with pytest.raises(SourceError, match="no credentials from where the profile says") as caught:
        await listed(attrs.evolve(config, profile="bad"))
    assert "token-xyz" not in str(caught.value)


def test_the_template_of_these_tests_is_whole():
    assert Ec2Config(filters={"a": "b"}, **TEMPLATE).url == TEMPLATE["url"]
