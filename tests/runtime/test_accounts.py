"""Endpoints of one account share its quota: two models of one hosted API, used with one key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import attrs
import pytest
import trio
import trio.testing

from scavenge.core.flow import Stream
from scavenge.core.health_settings import HealthSettings
from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.core.retry import RetrySettings
from scavenge.events import Event
from scavenge.runtime.accounts import account_of
from scavenge.runtime.fleet import Fleet, FleetPorts, FleetSettings, open_fleet
from scavenge.runtime.pool import Pool
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import Session, SessionPorts
from scavenge.signals import Ended, Ending, ServerLoad
from scavenge.types import Answer, Busy, ChatRequest, Endpoint, EndpointId, Healthy, Ok, Outcome, Reply, Url

API = Url("http://api.example/v1")


@attrs.define(eq=False)
class HostedApi:
    """Answers after a second, and turns away what is beyond ``allowed`` in flight on the whole account."""

    allowed: int
    in_flight: int = 0
    peak: int = 0
    refused: int = 0
    served: dict[str, int] = attrs.field(factory=dict)

    def open_client(self, endpoint: Endpoint) -> Client:
        return Client(self, endpoint.model)


@attrs.define(eq=False)
class Client:
    api: HostedApi
    model: str
    heard_at: float = float("-inf")
    reached_at: float = float("-inf")

    async def ask(self, request: ChatRequest, stream: Stream | None = None) -> Answer:
        api = self.api
        if api.in_flight >= api.allowed:
            api.refused += 1
            await trio.lowlevel.checkpoint()
            return Answer(Busy("rate limit", 429, 0.5))
        api.in_flight += 1
        api.peak = max(api.peak, api.in_flight)
        try:
            await trio.sleep(1)
        finally:
            api.in_flight -= 1
        api.served[self.model] = api.served.get(self.model, 0) + 1
        return Answer(Ok(Reply("", "stop")))

    async def probe(self, path: str) -> Healthy | Outcome:
        await trio.lowlevel.checkpoint()
        return Healthy()

    async def read_load(self) -> ServerLoad | None:
        await trio.lowlevel.checkpoint()
        return None

    def close(self) -> None: ...


@attrs.define
class Listener(Fixed):
    """A fixed limit that keeps how requests ended."""

    endings: list[Ending] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        super().__init__(FixedSettings(64))

    def observe(self, event: object, now: float) -> None:
        if isinstance(event, Ended):
            self.endings.append(event.ending)
        super().observe(event, now)


@attrs.define(eq=False)
class Kit:
    fleet: Fleet
    ports: SessionPorts

    @property
    def pools(self) -> list[Pool]:
        return list(self.fleet.pools.values())

    async def work(self, pool: Pool, age: int) -> None:
        settings = RequestSettings(retry=RetrySettings(max_retries=0))
        while True:
            await Session(pool, age, settings, self.ports).chat([{"role": "user", "content": "hi"}])


@asynccontextmanager
async def open_api(
    api: HostedApi, *models: str, secrets: dict[str, str] | None = None, urls: Sequence[Url] = (API,)
) -> AsyncIterator[Kit]:
    events: list[Event] = []
    fixed = [
        Endpoint(EndpointId(model), model, url, secret=(secrets or {}).get(model, "the-key"), max_concurrent=None)
        for model in models
        for url in urls
    ]
    ports = FleetPorts(
        sources=[],
        check=None,  # type: ignore[arg-type]  # no source, no listing
        transport=api,
        make_policy=lambda: Fixed(FixedSettings(64)),
        emit=events.append,
        random=Random(1),
        wall_clock=lambda: 0.0,
    )
    settings = FleetSettings(health=HealthSettings(probe=False))
    async with open_fleet([EndpointId(model) for model in models], settings, ports, fixed) as fleet:
        yield Kit(fleet, SessionPorts(events.append, Random(2), lambda: 0.0))


async def play(kit: Kit, workers: int, seconds: float, pools: list[Pool] | None = None) -> None:
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for pool in pools or kit.pools:
                for age in range(workers):
                    nursery.start_soon(kit.work, pool, age)


async def test_two_models_of_one_account_find_what_it_allows_together(autojump_clock):
    api = HostedApi(allowed=20)
    async with open_api(api, "small", "large") as kit:
        await play(kit, 30, 100)
        before = api.refused
        await play(kit, 30, 100)
    assert api.served["small"] + api.served["large"] > 0.8 * 20 * 200
    assert min(api.served.values()) > 0.4 * max(api.served.values())
    assert api.refused - before < 0.05 * 20 * 100


async def test_what_one_model_does_not_use_the_other_has(autojump_clock):
    api = HostedApi(allowed=20)
    async with open_api(api, "small", "large") as kit:
        await play(kit, 30, 100)
        api.served.clear()
        await play(kit, 30, 50, kit.pools[:1])
        assert api.served["small"] > 0.8 * 20 * 50
        await play(kit, 5, 20, kit.pools[1:])
        assert api.served["large"] >= 5 * 19  # an idle model is not shut for the other's sake


async def test_the_429s_of_an_account_of_several_leave_the_gate_of_each_alone(autojump_clock):
    listener = Listener()
    api = HostedApi(allowed=4)
    async with open_api(api, "small", "large") as kit:
        kit.pools[0].members[API].gate.policy = listener
        await play(kit, 10, 30)
    assert api.refused
    assert set(listener.endings) == {Ending.OK, Ending.CANCELLED}


async def test_other_keys_are_other_accounts(autojump_clock):
    async with open_api(HostedApi(4), "small", "large", secrets={"large": "another"}) as kit:
        members = [pool.members[API] for pool in kit.pools]
        assert account_of(members[0]) != account_of(members[1])
        await play(kit, 10, 10)
        assert [kit.fleet.accounts.bound(member) for member in members] == [None, None]


async def test_an_endpoint_that_is_left_alone_is_bound_by_its_own_gate_again(autojump_clock):
    async with open_api(HostedApi(4), "small", "large") as kit:
        small, large = kit.pools
        member = small.members[API]
        await play(kit, 10, 10)
        assert kit.fleet.accounts.bound(member) is not None
        large.remove(API)
        assert kit.fleet.accounts.bound(member) is None
        assert not kit.fleet.accounts.is_shared(member)
        small.remove(API)
        assert kit.fleet.accounts.bound(member) is None


@pytest.mark.parametrize("workers", [1, 3])
async def test_an_account_that_allows_one_request_serves_everybody_in_turn(autojump_clock, workers):
    api = HostedApi(allowed=1)
    async with open_api(api, "small", "large") as kit:
        await play(kit, workers, 300)
    assert min(api.served.values()) > 40


async def test_more_endpoints_than_an_account_allows_requests_take_no_more_together(autojump_clock):
    """Whoever waits in a pool could go to any of its endpoints, and is still only one request."""
    api = HostedApi(allowed=4)
    urls = [Url(f"http://api.example/region{number}/v1") for number in range(20)]
    async with open_api(api, "small", urls=urls) as kit:
        await play(kit, 40, 60)
        before = api.refused
        await play(kit, 40, 60)
        assert api.refused - before < 40
        assert api.served["small"] > 0.7 * 4 * 120
