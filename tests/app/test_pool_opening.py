"""What a pool takes from the settings of a run, from a source, and from its arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio
import trio.lowlevel

import scavenge
from scavenge.app.pool_opening import opening_of_source
from scavenge.config import load_run
from scavenge.config.schema import RunSettings
from scavenge.testing import FleetPlan, HttpFleet, SimulatedServer, open_http_fleet
from scavenge.testing.engine import EngineSettings

ASK = [{"role": "user", "content": "What is 2 + 3?"}]
SECRET = "a-key-that-is-long-enough"


@pytest.fixture
async def fleet(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpFleet]:
    """Three servers: two of pool ``p``, and one of pool ``q``, which asks for a key."""
    monkeypatch.setenv("SCAVENGE_TEST_KEY", SECRET)
    engine = EngineSettings(0.001, 0.0001, 8)
    servers = [SimulatedServer(name, engine, endpoint_id="p") for name in ("ep1", "ep2")]
    other = SimulatedServer("ep3", engine, endpoint_id="q", secret=SECRET)
    async with open_http_fleet(FleetPlan([*servers, other])) as fleet:
        yield fleet


def url(fleet: HttpFleet, name: str) -> str:
    return str(fleet.nodes[name].url)


def list_in(folder: Path, fleet: HttpFleet, *names: str) -> None:
    rows = [row for row in fleet.rows() if row.url in {url(fleet, name) for name in names}]
    text = "".join(f'[[endpoint]]\nendpoint_id = "{r.endpoint_id}"\nmodel = "sim"\nurl = "{r.url}"\n' for r in rows)
    (folder / "new").write_text(text)
    (folder / "new").replace(folder / "endpoints.toml")


def settings(folder: Path, *evals: str, head: str = "", tables: str = "") -> RunSettings:
    """The settings of an evaluation file with an endpoints file beside it; *evals* are what names their pools."""
    (folder / "questions.jsonl").write_text('{"question": "What is 2 + 3?", "answer": "5"}\n')
    env = 'env_id = "chat"\nenv_args = {dataset = "questions.jsonl"}'
    parts = [f'[[eval]]\nname = "{number}"\n{env}\n{one}' for number, one in enumerate(evals)]
    text = "\n".join([head, 'endpoints_path = "endpoints.toml"', *parts, tables])
    (folder / "eval.toml").write_text(text)
    return load_run(folder / "eval.toml", need_evals=bool(evals))


P, Q = 'endpoint_id = "p"', 'endpoint_id = "q"'


def fixed(fleet: HttpFleet) -> str:
    return f'model = "sim"\napi_base_url = "{url(fleet, "ep3")}"\napi_key_var = "SCAVENGE_TEST_KEY"'


async def count(pool: scavenge.ModelPool, endpoints: int) -> None:
    with trio.fail_after(5):
        while len(pool.status().endpoints) != endpoints:  # noqa: ASYNC110 - a file is read in a thread
            await trio.sleep(0.01)


async def test_health_and_admission_of_the_settings_hold_for_the_pool(fleet, tmp_path):
    list_in(tmp_path, fleet, "ep1")
    tables = '[health]\nprobe = false\n[admission]\npolicy = "fixed"\nlimit = 2'
    async with scavenge.open_pool(settings(tmp_path, P, tables=tables)) as pool:
        (endpoint,) = pool.status().endpoints
        assert (endpoint.why, endpoint.limit) == ("probes are off", 2)


async def test_an_argument_for_admission_wins_over_the_settings(fleet, tmp_path):
    list_in(tmp_path, fleet, "ep1")
    tables = '[health]\nprobe = false\n[admission]\npolicy = "fixed"\nlimit = 3'
    one = {"policy": "fixed", "limit": 1}
    async with scavenge.open_pool(settings(tmp_path, P, tables=tables), admission=one) as pool:
        assert pool.status().endpoints[0].limit == 1


async def test_the_interval_of_the_settings_is_the_pool_s(fleet, tmp_path):
    list_in(tmp_path, fleet, "ep1")
    run = settings(tmp_path, P, head="elastic = true\nelastic_poll_interval = 0.1")
    async with scavenge.open_pool(run) as pool:
        await count(pool, 1)
        list_in(tmp_path, fleet, "ep1", "ep2")
        await count(pool, 2)


async def test_an_argument_for_the_interval_wins_over_the_settings(fleet, tmp_path):
    list_in(tmp_path, fleet, "ep1")
    run = settings(tmp_path, P, head="elastic_poll_interval = 600")
    async with scavenge.open_pool(run, poll_interval=0.1) as pool:
        list_in(tmp_path, fleet, "ep1", "ep2")
        await count(pool, 2)


async def test_a_pool_is_elastic_unless_it_is_told_not_to_be(fleet, tmp_path):
    list_in(tmp_path, fleet, "ep1")
    run = settings(tmp_path, Q)
    with pytest.raises(scavenge.ConfigError, match="no endpoint has this id"):
        async with scavenge.open_pool(run, elastic=False):
            pytest.fail("opened")
    async with scavenge.open_pool(run) as pool:
        assert pool.status() == scavenge.PoolStatus("q", (), 0)


async def test_the_fixed_server_of_an_eval_is_a_pool_that_needs_no_source(fleet, tmp_path):
    run = settings(tmp_path, fixed(fleet), head="elastic = true")
    with trio.fail_after(10):
        async with scavenge.open_pool(run) as pool:
            assert (await pool.chat(ASK)).attempts[-1].endpoint == url(fleet, "ep3")
            assert pool.fleet_status().sources == ()


async def test_a_fixed_server_that_cannot_be_used_fails_requests_rather_than_keep_them_waiting(fleet, tmp_path):
    run = settings(tmp_path, fixed(fleet).replace('"sim"', '"another-model"'), head="elastic = true")
    async with scavenge.open_pool(run) as pool:
        with trio.fail_after(10), pytest.raises(scavenge.RequestFailed):
            await pool.chat(ASK)


async def test_the_pool_of_the_evals_is_taken_whatever_else_is_listed(fleet, tmp_path):
    list_in(tmp_path, fleet, "ep1", "ep3")
    async with scavenge.open_pool(settings(tmp_path, P, P)) as pool:
        assert [endpoint.url for endpoint in pool.status().endpoints] == [url(fleet, "ep1")]


async def test_settings_whose_evals_use_several_pools_need_the_name_of_one(fleet, tmp_path):
    list_in(tmp_path, fleet, "ep1")
    run = settings(tmp_path, P, fixed(fleet))
    name = f"sim@{url(fleet, 'ep3')} with SCAVENGE_TEST_KEY"
    with pytest.raises(scavenge.UsageError, match=f"endpoint_id: the evals use p, {name}"):
        async with scavenge.open_pool(run):
            pytest.fail("opened")
    for endpoint_id, server in (("p", "ep1"), (name, "ep3")):
        async with scavenge.open_pool(run, endpoint_id=endpoint_id) as pool:
            with trio.fail_after(10):
                completion = await pool.chat(ASK)
            assert completion.attempts[-1].endpoint == url(fleet, server)


async def test_of_settings_without_an_eval_the_pool_is_the_one_that_is_listed(fleet, tmp_path):
    list_in(tmp_path, fleet, "ep1")
    run = settings(tmp_path)
    async with scavenge.open_pool(run) as pool:
        assert [endpoint.url for endpoint in pool.status().endpoints] == [url(fleet, "ep1")]
    list_in(tmp_path, fleet, "ep1", "ep3")
    with pytest.raises(scavenge.UsageError, match="endpoint_id: listed are p, q"):
        async with scavenge.open_pool(run):
            pytest.fail("opened")


# --- a source


@attrs.define
class Holding:
    """A source that says what there is once, and then holds its answer for ever, as one may that polls long."""

    fleet: HttpFleet
    long_poll: bool = True
    asked: int = 0

    async def list_endpoints(self) -> scavenge.Listing:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        if self.asked > 1:
            await trio.sleep_forever()
        return scavenge.Listing([row for row in self.fleet.rows() if row.endpoint_id == "p"])


async def test_what_a_source_said_to_name_the_pool_is_not_asked_for_again(fleet):
    source = Holding(fleet)
    with trio.fail_after(4):  # a pool that waits for an answer opens without one after 5 s
        async with scavenge.open_pool(source) as pool:
            assert {endpoint.url for endpoint in pool.status().endpoints} == {url(fleet, "ep1"), url(fleet, "ep2")}
            assert source.asked == 1
            assert (await pool.chat(ASK)).text


@pytest.mark.parametrize("long_poll", [True, False])
async def test_a_source_that_named_the_pool_may_poll_as_long_as_it_did(fleet, long_poll):
    opening = await opening_of_source(Holding(fleet, long_poll), None)
    async with opening.sources[0].open() as source:
        assert source.long_poll is long_poll  # type: ignore[attr-defined]


async def test_a_source_that_named_the_pool_is_told_with_its_own_line_when_it_fails(fleet):
    holding = Holding(fleet, True)
    opening = await opening_of_source(holding, None)
    assert opening.sources[0].code is holding


async def test_a_source_that_named_the_pool_is_asked_on(fleet, tmp_path):
    list_in(tmp_path, fleet, "ep1")
    async with scavenge.open_pool(tmp_path, poll_interval=0.1) as pool:
        list_in(tmp_path, fleet, "ep1", "ep2")
        await count(pool, 2)


@attrs.frozen
class Saying:
    """A source with one answer, which need not be a listing."""

    answer: object

    async def list_endpoints(self) -> object:
        await trio.lowlevel.checkpoint()
        return self.answer


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (["http://127.0.0.1:9/v1"], scavenge.SourceError, "returned list, not a Listing"),
        (scavenge.Listing([]), scavenge.UsageError, "listed are none"),
        (scavenge.Listing([{"endpoint_id": "p", "model": "sim"}]), scavenge.ConfigError, "url"),
    ],
)
async def test_a_source_that_cannot_name_the_pool_is_told_as_it_is(answer, error, told):
    with pytest.raises(error, match=told):
        async with scavenge.open_pool(Saying(answer)):
            pytest.fail("opened")


@pytest.mark.parametrize("seconds", [0, -1.0, 0.05, float("nan")])
async def test_an_interval_that_would_never_let_a_source_rest_is_refused(fleet, seconds):
    with pytest.raises(scavenge.UsageError, match=r"poll_interval: expected seconds ≥ 0\.1"):
        async with scavenge.open_pool(fleet, endpoint_id="p", poll_interval=seconds):
            pytest.fail("opened")


async def test_an_admission_policy_needs_a_name(fleet):
    with pytest.raises(scavenge.UsageError, match="policy must be a name, got 3"):
        async with scavenge.open_pool(fleet, endpoint_id="p", admission={"policy": 3}):
            pytest.fail("opened")
