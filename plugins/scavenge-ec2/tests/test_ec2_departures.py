"""Which instances go away, and until when: tables of what EC2 says, on an invented clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from scavenge_ec2.departures import NOTICE, NOTICE_CODES, SHUTDOWN, Departure, Departures

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
LAUNCHED = NOW - timedelta(hours=1)
LEVEL = timedelta()


def instance(name: str = "i-1", state: str = "running", launched: datetime = LAUNCHED, **tags: str) -> dict[str, Any]:
    named = [{"Key": key, "Value": value} for key, value in tags.items()]
    return {"InstanceId": name, "State": {"Name": state}, "LaunchTime": launched, "Tags": named}


def request(code: str, since: datetime | None = NOW, name: str = "i-1", **more: str) -> dict[str, Any]:
    status = {"Code": code} if since is None else {"Code": code, "UpdateTime": since}
    return {"InstanceId": name, "Status": status, **more}


def departures() -> Departures:
    return Departures("drain")


def only(one: dict[str, Departure]) -> datetime | None:
    assert list(one) == ["i-1"]
    return one["i-1"].deadline


def test_an_instance_of_which_nothing_is_said_stays():
    assert departures().of([instance()], [request("fulfilled")], NOW, LEVEL) == {}


@pytest.mark.parametrize("code", NOTICE_CODES)
def test_each_status_of_a_notice_gives_two_minutes_from_its_time(code):
    assert only(departures().of([instance()], [request(code)], NOW + timedelta(seconds=30), LEVEL)) == NOW + NOTICE


def test_a_notice_of_another_instance_is_none():
    assert departures().of([instance()], [request("marked-for-stop", name="i-2")], NOW, LEVEL) == {}


def test_a_notice_without_a_time_counts_from_when_it_was_read():
    known = departures()
    told = [request("marked-for-stop", None)]
    assert only(known.of([instance()], told, NOW, LEVEL)) == NOW + NOTICE
    assert only(known.of([instance()], told, NOW + timedelta(seconds=10), LEVEL)) == NOW + NOTICE


def test_who_hibernates_has_no_two_minutes():
    told = [request("marked-for-stop", InstanceInterruptionBehavior="hibernate")]
    assert only(departures().of([instance()], told, NOW, LEVEL)) == NOW


def test_instants_of_ec2_are_moved_by_what_the_clocks_differ():
    told = [request("marked-for-stop")]
    assert only(departures().of([instance()], told, NOW, timedelta(seconds=-70))) == NOW + NOTICE - timedelta(
        seconds=70
    )
    tagged = [instance(drain="2030-01-01T12:30:00Z")]
    assert only(departures().of(tagged, [], NOW, timedelta(seconds=60))) == NOW + timedelta(minutes=31)


def test_a_deadline_does_not_move_with_each_listing():
    known = departures()
    for second in range(5):
        ahead = timedelta(seconds=second)
        deadline = only(known.of([instance()], [request("marked-for-stop")], NOW + ahead, ahead))
        assert deadline == NOW + NOTICE


def test_a_notice_stands_while_its_instance_is_listed_and_no_longer():
    known = departures()
    known.of([instance()], [request("marked-for-termination")], NOW, LEVEL)
    assert only(known.of([instance()], [], NOW, LEVEL)) == NOW + NOTICE
    assert known.of([], [], NOW, LEVEL) == {}
    assert known.of([instance()], [], NOW, LEVEL) == {}


def test_an_instance_that_was_started_again_has_a_new_life():
    known = departures()
    known.of([instance()], [request("marked-for-stop")], NOW, LEVEL)
    again = [instance(launched=NOW + timedelta(minutes=5))]
    assert known.of(again, [request("marked-for-stop")], NOW + timedelta(minutes=6), LEVEL) == {}


@pytest.mark.parametrize("state", ["shutting-down", "stopping"])
def test_who_shuts_down_has_a_deadline_from_when_that_was_seen(state):
    known = departures()
    assert only(known.of([instance(state=state)], [], NOW, LEVEL)) == NOW + SHUTDOWN
    assert only(known.of([instance(state=state)], [], NOW + timedelta(seconds=40), LEVEL)) == NOW + SHUTDOWN


def test_the_earliest_deadline_holds():
    known = departures()
    told = [request("marked-for-stop", NOW + timedelta(hours=1))]
    tagged = instance(drain="2030-01-01T12:01:00+00:00")
    assert only(known.of([tagged], told, NOW, LEVEL)) == NOW + timedelta(minutes=1)
    later = NOW + timedelta(seconds=10)
    assert only(known.of([instance(state="stopping", drain="yes")], told, later, LEVEL)) == later + SHUTDOWN


@pytest.mark.parametrize(
    ("value", "deadline"),
    [
        ("", None),
        ("yes", None),
        ("2030-01-01T13:00:00", None),  # nobody knows in which zone
        ("2030-01-01T15:00:00+02:00", NOW + timedelta(hours=1)),
        (" 2030-01-01T13:00:00Z ", NOW + timedelta(hours=1)),
        ("9999-12-31T23:59:59-12:00", None),
        ("0001-01-01T00:00:00+12:00", None),
        ("1" * 5000, None),
    ],
)
def test_a_tag_drains_and_may_say_until_when(value, deadline):
    assert only(departures().of([instance(drain=value)], [], NOW, timedelta(seconds=1))) == (
        None if deadline is None else deadline + timedelta(seconds=1)
    )


@pytest.mark.parametrize("value", ["no", "No", "off", "FALSE", "0", " false "])
def test_a_tag_can_say_that_it_is_not_meant(value):
    assert departures().of([instance(drain=value)], [], NOW, LEVEL) == {}


def test_a_tag_is_its_owners_to_change():
    known = departures()
    for hour in (13, 14):
        value = f"2030-01-01T{hour}:00:00Z"
        assert only(known.of([instance(drain=value)], [], NOW, LEVEL)) == datetime(2030, 1, 1, hour, tzinfo=UTC)
    assert known.of([instance()], [], NOW, LEVEL) == {}


def test_deadlines_are_in_utc():
    elsewhere = NOW.astimezone(timezone(timedelta(hours=9)))
    deadline = only(departures().of([instance()], [request("marked-for-stop", elsewhere)], NOW, LEVEL))
    assert deadline is not None
    assert deadline.tzinfo is UTC


def test_what_is_missing_from_an_answer_says_nothing():
    known = departures()
    bare = {"InstanceId": "i-1"}
    assert known.of([bare], [{}, {"InstanceId": "i-1"}, {"Status": {"Code": "marked-for-stop"}}], NOW, LEVEL) == {}
    assert only(known.of([bare], [request("marked-for-stop")], NOW, LEVEL)) == NOW + NOTICE
    assert known.of([{**instance("i-3"), "Tags": [{"Value": "x"}]}], [], NOW, LEVEL) == {}
    assert "i-4" in known.of([{**instance("i-4"), "Tags": [{"Key": "drain"}]}], [], NOW, LEVEL)
