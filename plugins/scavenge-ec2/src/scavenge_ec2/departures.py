"""Which instances are going away, and when they will be gone. Pure.

There are three signs. A spot instance is interrupted: its request says so, and since when. It shuts down: its state
says so. Somebody says so, the instance itself for one, in a tag. Whichever deadline is the earliest holds.

EC2's instants are of EC2's clock. They are moved by what this machine's differs, since who uses a deadline compares it
with this one.

Invariant: what was once said of an instance stands, with the same deadline, as long as it is listed. A persistent
request forgets its notice before its instance is gone, and a deadline that moves a little each time would be told as a
change each time. A tag is the exception: it is its owner's to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

NOTICE_CODES = (
    "marked-for-termination",
    "marked-for-stop",
    "marked-for-stop-by-experiment",
    "instance-terminated-no-capacity",
    "instance-terminated-by-price",
    "instance-terminated-by-schedule",
    "instance-terminated-by-service",
    "instance-terminated-by-experiment",
    "instance-terminated-launch-group-constraint",
)
"""The statuses of a spot request whose running instance is being taken away.

Source: "State changes for a Spot request" of the EC2 user guide. It says that an instance which is reclaimed has the
status ``instance-terminated-no-capacity``, not ``marked-for-termination``, in the two minutes that it still runs.
"""

NOTICE = timedelta(minutes=2)
"""How long before the end the notice of a spot interruption is given; hibernation begins at once (EC2 user guide)."""

SHUTDOWN = timedelta(seconds=90)
"""How long a server of an instance that shuts down may take to end: what systemd gives a service to stop."""

LEAVING_STATES = frozenset({"shutting-down", "stopping"})

_NOT_MEANT = frozenset({"false", "no", "off", "0"})
"""Values of the drain tag that say that the instance is not to drain."""


@attrs.frozen
class Departure:
    """An instance is going away; ``deadline`` is when it will be gone, if that is known."""

    deadline: datetime | None


@attrs.define
class Departures:
    """What was said of the instances that are listed."""

    drain_tag: str
    _standing: dict[tuple[object, str], datetime | None] = attrs.field(factory=dict, init=False)
    """Deadlines by the life of an instance and by what says so."""

    def of(
        self,
        instances: Iterable[Mapping[str, Any]],
        requests: Iterable[Mapping[str, Any]],
        now: datetime,
        ahead: timedelta,
    ) -> dict[str, Departure]:
        """The departures among these instances, by their ids, given the spot requests that tell of a notice.

        This machine's clock, which shows *now*, is *ahead* of EC2's.
        """
        notices = {request.get("InstanceId"): request for request in requests if _tells(request)}
        before, self._standing = self._standing, {}
        departures: dict[str, Departure] = {}
        for instance in instances:
            life: object = (instance["InstanceId"], instance.get("LaunchTime"))  # another one after each start
            said = dict(self._said(instance, notices.get(instance["InstanceId"]), now, ahead))
            if (life, "notice") in before:
                said.setdefault("notice", None)
            deadlines = {(life, sign): before.get((life, sign), deadline) for sign, deadline in said.items()}
            self._standing.update(deadlines)
            if said:
                known = [one for one in deadlines.values() if one is not None]
                departures[instance["InstanceId"]] = Departure(min(known, default=None))
        return departures

    def _said(
        self, instance: Mapping[str, Any], request: Mapping[str, Any] | None, now: datetime, ahead: timedelta
    ) -> Iterator[tuple[str, datetime | None]]:
        if request is not None and not _is_of_an_earlier_life(request, instance):
            since = request["Status"].get("UpdateTime")
            hibernates = request.get("InstanceInterruptionBehavior") == "hibernate"
            since = now if since is None else since.astimezone(UTC) + ahead
            yield "notice", since + (timedelta() if hibernates else NOTICE)
        if state_of(instance) in LEAVING_STATES:
            yield "state", now + SHUTDOWN
        value = tags_of(instance).get(self.drain_tag)
        if value is not None and value.strip().lower() not in _NOT_MEANT:
            yield f"tag {value}", _instant(value, ahead)


def state_of(instance: Mapping[str, Any]) -> str | None:
    """The name of an instance's state."""
    name: str | None = instance.get("State", {}).get("Name")
    return name


def tags_of(instance: Mapping[str, Any]) -> dict[str, str]:
    """An instance's tags."""
    return {tag["Key"]: tag.get("Value", "") for tag in instance.get("Tags", ()) if "Key" in tag}


def _tells(request: Mapping[str, Any]) -> bool:
    return request.get("Status", {}).get("Code") in NOTICE_CODES


def _is_of_an_earlier_life(request: Mapping[str, Any], instance: Mapping[str, Any]) -> bool:
    """Whether a notice is older than the instance's last start."""
    since, launched = request["Status"].get("UpdateTime"), instance.get("LaunchTime")
    return since is not None and launched is not None and bool(since < launched)


def _instant(text: str, ahead: timedelta) -> datetime | None:
    """The instant that a text writes with its time zone, if it does, on this machine's clock."""
    try:
        instant = datetime.fromisoformat(text.strip())
        return None if instant.utcoffset() is None else instant.astimezone(UTC) + ahead
    except (ValueError, OverflowError):
        return None
