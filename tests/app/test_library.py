"""``scavenge.open_pool`` over real loopback servers."""

from __future__ import annotations

import subprocess
import sys

import attrs
import httpx
import pytest
import trio
import trio.lowlevel

import scavenge
from scavenge.events import AttemptEnded, EndpointJoined, Event, HealthChanged
from scavenge.testing import FleetPlan, HttpFleet, SimulatedServer, faults, open_http_fleet
from scavenge.testing.engine import EngineSettings

ASK = [{"role": "user", "content": "What is 2 + 3?"}]


def plan(*names: str, script: str = "", **settings: object) -> FleetPlan:
    engine = EngineSettings(0.001, 0.0001, 8)
    servers = [SimulatedServer(name, engine, max_concurrent=4, **settings) for name in names]  # type: ignore[arg-type]
    return FleetPlan(servers, script)


async def usable(pool: scavenge.ModelPool, count: int) -> None:
    with trio.fail_after(10):
        while sum(endpoint.limit > 0 for endpoint in pool.status().endpoints) != count:  # noqa: ASYNC110 - sockets  # a probe over a socket
            await trio.sleep(0.01)


async def test_a_pool_answers_and_tells_how_it_is():
    async with open_http_fleet(plan("ep1", "ep2")) as fleet, scavenge.open_pool(fleet) as pool:
        completion = await pool.chat(ASK, max_tokens=200)
        assert completion.text
        assert [attempt.outcome for attempt in completion.attempts] == ["ok"]
        await usable(pool, 2)
        status = pool.status()
        assert [(e.state, e.in_flight, e.limit) for e in status.endpoints] == [("live", 0, 4)] * 2
        assert (status.endpoint_id, status.waiting) == ("sim", 0)


async def test_the_path_of_a_file_or_of_its_folder_is_a_source(tmp_path):
    async with open_http_fleet(plan("ep1")) as fleet:
        (row,) = fleet.rows()
        text = f'[[endpoint]]\nendpoint_id = "p"\nmodel = "{row.model}"\nurl = "{row.url}"\n'
        (tmp_path / "endpoints.toml").write_text(text)
        for source in (tmp_path, str(tmp_path / "endpoints.toml")):
            async with scavenge.open_pool(source, admission={"policy": "fixed", "limit": 2}) as pool:
                assert (await pool.chat(ASK)).text
                assert pool.status().endpoints[0].limit == 2


async def test_a_pool_that_is_not_clear_is_refused_with_what_is_listed():
    servers = [SimulatedServer("ep1", endpoint_id="a"), SimulatedServer("ep2", endpoint_id="b")]
    async with open_http_fleet(FleetPlan(servers)) as fleet:
        with pytest.raises(scavenge.UsageError, match="endpoint_id: listed are a, b"):
            async with scavenge.open_pool(fleet):
                pytest.fail("opened")
        async with scavenge.open_pool(fleet, endpoint_id="b") as pool:
            assert pool.status().endpoint_id == "b"
        with pytest.raises(scavenge.ConfigError, match="did you mean"):
            async with scavenge.open_pool(fleet, endpoint_id="bb", elastic=False):
                pytest.fail("opened")


async def test_requests_survive_the_death_of_their_server():
    async with open_http_fleet(plan("ep1", "ep2")) as fleet, scavenge.open_pool(fleet, max_retries=0) as pool:
        await usable(pool, 2)
        answered: list[scavenge.Completion] = []

        async def ask() -> None:
            answered.append(await pool.chat(ASK))

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask)
            while sum(endpoint.in_flight for endpoint in pool.status().endpoints) < 8:
                await trio.lowlevel.checkpoint()
            kill(fleet, "ep1")
        assert len(answered) == 8
        outcomes = sorted([attempt.outcome for attempt in one.attempts] for one in answered)
        assert all(one[-1] == "ok" and set(one[:-1]) <= {"lost"} for one in outcomes)


def kill(fleet: HttpFleet, name: str) -> None:
    fleet.nodes[name].apply(faults.Kill())


async def test_a_session_stays_where_its_prefix_is():
    async with open_http_fleet(plan("ep1", "ep2")) as fleet, scavenge.open_pool(fleet) as pool:
        await usable(pool, 2)
        async with pool.session() as session:
            urls = {(await session.chat(ASK)).attempts[0].endpoint for _ in range(6)}
        assert len(urls) == 1


async def test_a_lease_has_a_client_for_its_endpoint_only():
    async with open_http_fleet(plan("ep1", secret="key")) as fleet:
        source = WithKey(fleet)
        async with scavenge.open_pool(source, endpoint_id="sim") as pool, pool.acquire(slots=2) as lease:
            assert pool.status().endpoints[0].in_flight == 2
            reply = await lease.client.post("chat/completions", json={"model": "sim", "messages": ASK})
            assert reply.status_code == 200
            assert reply.json()["choices"][0]["message"]["content"]
            with pytest.raises(scavenge.UsageError, match="holds the key of"):
                await lease.client.get("http://127.0.0.1:9/v1/models")
        assert pool.status().endpoints[0].in_flight == 0


class WithKey:
    """A source that names the key's variable in every row."""

    def __init__(self, fleet: HttpFleet) -> None:
        self.fleet = fleet

    async def list_endpoints(self) -> scavenge.Listing:
        return scavenge.Listing([attrs.evolve(row, key="SCAVENGE_TEST_KEY") for row in self.fleet.rows()])


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("SCAVENGE_TEST_KEY", "key")


async def test_a_block_whose_endpoint_is_lost_raises_lease_revoked():
    async with open_http_fleet(plan("ep1")) as fleet, scavenge.open_pool(fleet) as pool:
        await usable(pool, 1)
        with trio.fail_after(20), pytest.raises(scavenge.LeaseRevoked):
            await use_until_revoked(fleet, pool)


async def use_until_revoked(fleet: HttpFleet, pool: scavenge.ModelPool) -> None:
    async with pool.acquire() as lease:
        kill(fleet, "ep1")
        with pytest.raises(httpx.TransportError):
            await lease.client.get("models")
        await trio.sleep_forever()


async def state(pool: scavenge.ModelPool, wanted: str) -> None:
    with trio.fail_after(10):
        while pool.status().endpoints[0].state != wanted:  # noqa: ASYNC110 - a probe over a socket
            await trio.sleep(0.01)


async def test_a_lease_from_before_a_restart_is_no_proof_that_the_new_server_works():
    engine = EngineSettings(0.05, 0.0, 8)
    plan = FleetPlan([SimulatedServer("ep1", engine, max_concurrent=4)])
    async with open_http_fleet(plan) as fleet, scavenge.open_pool(fleet) as pool:
        await usable(pool, 1)
        async with pool.acquire() as lease:
            with pytest.raises(httpx.TransportError):
                await stream_until_lost(lease.client, fleet)
            await state(pool, "probation")
            assert (await lease.client.get("models")).status_code == 200
            assert pool.status().endpoints[0].state == "probation"


async def stream_until_lost(client: httpx.AsyncClient, fleet: HttpFleet) -> None:
    body = {"model": "sim", "messages": ASK, "stream": True}
    async with client.stream("POST", "chat/completions", json=body) as response:
        async for _ in response.aiter_raw():
            fleet.nodes["ep1"].apply(faults.Restart())


async def test_observers_hear_what_happens_in_a_pool():
    events: list[Event] = []
    async with open_http_fleet(plan("ep1")) as fleet, scavenge.open_pool(fleet, observers=[events.append]) as pool:
        await pool.chat(ASK)
        (url,) = (endpoint.url for endpoint in pool.status().endpoints)
    assert EndpointJoined("sim", url, "HttpFleet") in events
    assert [event.new for event in events if isinstance(event, HealthChanged)] == ["live"]
    assert [event.attempt.outcome for event in events if isinstance(event, AttemptEnded)] == ["ok"]


async def test_what_an_observer_raises_comes_out_of_the_pool_bare():
    def fail(event: Event) -> None:
        raise KeyError("of the observer's own")

    async with open_http_fleet(plan("ep1")) as fleet:
        with pytest.raises(KeyError, match="of the observer's own"):
            async with scavenge.open_pool(fleet, observers=[fail]):
                await trio.sleep_forever()


async def test_what_the_block_raises_comes_out_of_the_pool_bare():
    async with open_http_fleet(plan("ep1")) as fleet:
        with pytest.raises(ZeroDivisionError):
            async with scavenge.open_pool(fleet):
                raise ZeroDivisionError


async def test_the_status_of_the_fleet_tells_of_the_source_too():
    async with open_http_fleet(plan("ep1")) as fleet, scavenge.open_pool(fleet, poll_interval=0.1) as pool:
        await usable(pool, 1)
        status = pool.fleet_status()
        assert [one.endpoint_id for one in status.pools] == ["sim"]
        (source,) = status.sources
        assert (source.name, source.endpoints, source.trouble) == ("HttpFleet", 1, None)
        assert (source.listing_age_s, status.network_down_s) != (None, 0.0)
        fleet.lister.apply(faults.Outage())
        with trio.fail_after(10):
            while pool.fleet_status().sources[0].trouble is None:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)
        assert pool.fleet_status().sources[0].endpoints == 1


async def test_cancelling_everywhere_leaves_no_slot_taken():
    async with open_http_fleet(plan("ep1")) as fleet, scavenge.open_pool(fleet) as pool:
        await usable(pool, 1)
        for seconds in (0.0, 0.0005, 0.001, 0.003, 0.01):
            with trio.move_on_after(seconds):
                await pool.chat(ASK)
            assert pool.status().endpoints[0].in_flight == 0


def test_every_public_name_is_there_and_costs_nothing_before_it_is_used():
    for name in scavenge.__all__:
        assert getattr(scavenge, name).__name__ == name
    assert set(dir(scavenge)) == set(scavenge.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        scavenge.nonsense  # noqa: B018
    code = "import sys, scavenge; print(sorted(sys.modules.keys() & {'trio', 'httpx', 'rich'}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
