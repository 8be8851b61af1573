"""Asks EC2, by boto3. Blocks, so it lives in threads; imports the SDK, so it is imported where it is first needed.

It decides what is a whole answer. It must not know what a row is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import attrs
import boto3  # type: ignore[import-untyped]  # the SDK has no types of its own
from botocore.config import Config  # type: ignore[import-untyped]  # the same

from scavenge.plugin import SourceError
from scavenge_ec2.config import Ec2Config
from scavenge_ec2.departures import NOTICE_CODES
from scavenge_ec2.rows import LISTED_STATES, Answer
from scavenge_ec2.troubles import Place, clock_ahead, trouble

CONNECT_WITHIN_S = 5
READ_WITHIN_S = 10
ATTEMPTS = 3
"""Of one call, with the SDK's back-off in between: "standard" mode, which knows EC2's throttling by name."""

PAGE_SIZE = 1000
"""The most that EC2 gives in one answer."""

MOST_PAGES = 100
"""Beyond this an answer has no end."""

STEADY = timedelta(seconds=5)
"""A difference between the clocks below this is the time that an answer takes."""


@attrs.frozen
class _Question:
    """A call: its name, the SDK's for it, and where its answer has what is asked for."""

    action: str
    method: str
    key: str


_INSTANCES = _Question("DescribeInstances", "describe_instances", "Reservations")
_REQUESTS = _Question("DescribeSpotInstanceRequests", "describe_spot_instance_requests", "SpotInstanceRequests")


@attrs.define(eq=False)
class Ec2Api:
    """EC2 in one region, for one set of filters. May be used in one thread at a time, and closed in another.

    Ownership: closed by whoever opened it; a call that is left behind then closes the connections that it still opens.
    """

    place: Place
    filters: Mapping[str, str | list[str]]
    spot_notices: bool
    _client: Any
    _closed: bool = attrs.field(default=False, init=False)

    def describe(self) -> Answer:
        """The instances that are servers, and the spot requests that tell of a notice.

        Raises :class:`SourceError`. Takes a minute and more when EC2 hangs.
        """
        try:
            pages = self._pages(_INSTANCES, {**self.filters, "instance-state-name": list(LISTED_STATES)})
            noted = self._pages(_REQUESTS, {"status-code": list(NOTICE_CODES)}) if self.spot_notices else []
        finally:
            if self._closed:
                self._client.close()
        now = datetime.now(UTC)
        return Answer(
            tuple(one for page in pages for group in page["Reservations"] for one in group.get("Instances", ())),
            tuple(one for page in noted for one in page["SpotInstanceRequests"]),
            now,
            _steady(clock_ahead((noted or pages)[-1], now)),
        )

    def close(self) -> None:
        """Close the connections that nobody uses. Never waits."""
        self._closed = True
        self._client.close()

    def _pages(self, question: _Question, filters: Mapping[str, str | list[str]]) -> list[Mapping[str, Any]]:
        pages, why = self._whole_answer(question, filters)
        if why is None and len(pages) > MOST_PAGES:
            why = f"{self.place}: more than {MOST_PAGES} pages for {question.action}; narrow `filters`"
        if why is None and any(question.key not in page for page in pages):  # EC2 has the element also when it is empty
            why = f"{self.place}: an answer to {question.action} that is not EC2's; look at its proxies"
        if why is not None:
            raise SourceError(why)  # out here, where it does not keep the SDK's error, and with it a connection
        return pages

    def _whole_answer(
        self, question: _Question, filters: Mapping[str, str | list[str]]
    ) -> tuple[list[Mapping[str, Any]], str | None]:
        """All pages, or what is wrong."""
        try:
            pages = self._client.get_paginator(question.method).paginate(**_asked(filters))
            return list(islice(pages, MOST_PAGES + 1)), None
        except Exception as exc:  # the SDK raises what its parsers and credential providers raise
            return [], trouble(exc, self.place, question.action, datetime.now(UTC))


def _asked(filters: Mapping[str, str | list[str]]) -> dict[str, Any]:
    named = [{"Name": name, "Values": [value] if isinstance(value, str) else value} for name, value in filters.items()]
    return {"Filters": named, "PaginationConfig": {"PageSize": PAGE_SIZE}}


def _steady(ahead: timedelta | None) -> timedelta:
    return timedelta() if ahead is None or abs(ahead) < STEADY else ahead


def connect(config: Ec2Config) -> Ec2Api:
    """What asks EC2 as the configuration says. Looks for credentials, asks nothing yet. Raises :class:`SourceError`."""
    place = Place(config.region or "its default region", config.endpoint_url, config.profile)
    try:
        session = boto3.Session(profile_name=config.profile, region_name=config.region)
        client = session.client("ec2", endpoint_url=config.endpoint_url, config=_CLIENT)
        place = attrs.evolve(place, region=client.meta.region_name, regions=_regions(session))
    except Exception as exc:  # whatever is wrong with the SDK's own files
        raise SourceError(trouble(exc, place, "DescribeInstances", datetime.now(UTC))) from None
    return Ec2Api(place, config.filters, config.spot_notices, client)


def _regions(session: Any) -> tuple[str, ...]:
    partitions = session.get_available_partitions()
    return tuple(region for name in partitions for region in session.get_available_regions("ec2", name))


_CLIENT = Config(
    connect_timeout=CONNECT_WITHIN_S,
    read_timeout=READ_WITHIN_S,
    retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
    max_pool_connections=1,
    user_agent_extra="scavenge-ec2",
)
