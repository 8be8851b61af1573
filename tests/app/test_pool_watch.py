"""A program's pool is as talkative as a run, and does not take rest for a stall."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import attrs
import pytest
import trio

import scavenge
from scavenge.app.library import ModelPool
from scavenge.app.pool_watch import PoolLog, Telling, is_wanted, open_fleet_watch
from scavenge.config.endpoint_rows import check_listing, pool_modes
from scavenge.core.ledger import Ask
from scavenge.core.limits.fixed import Fixed, FixedSettings
from scavenge.core.redaction import Redactor
from scavenge.core.sessions.budget import Budget, BudgetSettings
from scavenge.events import AttemptStarted, Event, PoolWaiting, Stalled, Warned
from scavenge.runtime.fleet import FleetPorts, FleetSettings, open_fleet
from scavenge.runtime.sending import RequestSettings
from scavenge.runtime.session import SessionPorts
from scavenge.runtime.session_gate import SessionGate
from scavenge.runtime.sources import lent
from scavenge.testing import FleetPlan, SimulatedServer, faults, open_http_fleet
from scavenge.testing.engine import EngineSettings
from scavenge.testing.fleet import SimulatedFleet
from scavenge.types import Busy, EndpointId, Url, Usage

ASK = [{"role": "user", "content": "What is 2 + 3?"}]
SIM = EndpointId("sim")


@attrs.define(eq=False)
class Watched:
    """A pool of servers in memory that is watched, and all that it tells."""

    fleet: SimulatedFleet
    pool: ModelPool
    events: list[Event]

    def told(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def watched(script: str = "", token_s: float = 0.01) -> AsyncIterator[Watched]:
    server = SimulatedServer("ep1", EngineSettings(token_s, 0.0, 8, tokens_per_event=1))
    simulated, events = SimulatedFleet([server], script), []
    telling = Telling([events.append])
    ports = FleetPorts(
        [lent("simulated", simulated)],
        lambda listing, present: check_listing(listing, {}, present=pool_modes(present)),
        simulated,
        lambda: Fixed(FixedSettings()),
        telling.emit,
        Random(0),
        trio.current_time,
    )
    async with simulated.open(), open_fleet([SIM], FleetSettings(), ports) as fleet:
        pool = fleet.pools[SIM]
        async with open_fleet_watch(fleet, telling, ports.wall_clock) as watchdog:
            session_ports = SessionPorts(ports.emit, ports.random, ports.wall_clock)
            yield Watched(simulated, ModelPool(fleet, pool, watchdog, RequestSettings(), session_ports), events)


async def test_a_pool_of_which_nobody_wants_anything_is_no_stall(autojump_clock):
    async with watched() as pool:
        await trio.sleep(3000)
        await pool.pool.chat(ASK)
        await trio.sleep(3000)
    assert pool.told(Stalled) == []


async def test_a_request_that_gets_nowhere_is_told_from_its_own_beginning(autojump_clock):
    async with watched("t=290 freeze ep1") as pool:
        await trio.sleep(291)
        with trio.move_on_after(290):
            await pool.pool.chat(ASK)
        assert pool.told(Stalled) == []
        await trio.sleep(5)
        with trio.move_on_after(320):
            await pool.pool.chat(ASK)
        (stalled,) = pool.told(Stalled)
        assert 300 <= stalled.quiet_s <= 310


@pytest.mark.parametrize("wait", ["session", "acquire"])
async def test_a_wait_for_a_pool_that_is_down_is_told(autojump_clock, wait):
    async with watched("t=1 kill ep1") as pool:
        await trio.sleep(60)
        with trio.move_on_after(310):
            async with getattr(pool.pool, wait)():
                pytest.fail("nobody is there to serve")
        assert len(pool.told(Stalled)) == 1


async def test_a_long_reply_that_comes_is_no_stall(autojump_clock):
    async with watched(token_s=40.0) as pool:
        await pool.pool.chat(ASK, max_tokens=100)
        assert trio.current_time() > 600
        assert pool.told(Stalled) == []


async def test_replies_that_follow_one_another_are_no_stall(autojump_clock):
    async with watched(token_s=1.0) as pool, trio.open_nursery() as nursery:
        for start_s in (0, 10):
            nursery.start_soon(keep_asking, pool.pool, start_s)
        await trio.sleep(800)
        nursery.cancel_scope.cancel()
    assert pool.told(Stalled) == []


async def keep_asking(pool: ModelPool, start_s: float) -> None:
    await trio.sleep(start_s)
    while True:
        await pool.chat(ASK)


async def test_a_pool_without_a_usable_endpoint_is_told_with_its_reason_and_so_is_the_end(autojump_clock):
    async with watched("t=10 kill ep1; t=100 restart ep1") as pool:
        await trio.sleep(5)
        assert pool.told(PoolWaiting) == []
        with trio.move_on_after(15):
            await trio.sleep(6)
            await pool.pool.chat(ASK)
        (waiting,) = pool.told(PoolWaiting)
        assert waiting.endpoint_id == "sim"
        assert "connection refused" in waiting.why
        assert 10 <= waiting.since_time < 15
        await trio.sleep(200)
        assert [event.why for event in pool.told(PoolWaiting)][-1] == ""


async def test_that_nothing_helps_is_told_only_while_somebody_asks(autojump_clock):
    async with watched() as pool:
        await trio.sleep(5)
        for _ in range(2):
            (inner := pool.pool._pool).stall.on_outcome(Busy("full", 429), trio.current_time())
            await trio.sleep(15)
        assert pool.told(PoolWaiting) == []
        held = await inner.acquire(Ask((0, 0)))
        await trio.sleep(3)
        inner.release(held)
        (waiting,) = pool.told(PoolWaiting)
        assert "nothing helps" in waiting.why


async def test_a_call_that_waits_for_its_turn_wants_something(autojump_clock):
    async with watched() as pool:
        gate = SessionGate(SIM, "budget", Budget(BudgetSettings(tokens=100)), pool.events.append)
        gate.set_slots(1)
        (inner := pool.pool._pool).sessions = gate
        assert not is_wanted(inner)
        for turns in (2, 1):
            place = await gate.enter(0)
            for _ in range(turns):
                await gate.turn(place, 80)
                gate.turn_ended(place, Usage(80, 0))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gate.turn, place, 80)
            await trio.testing.wait_all_tasks_blocked()
            assert gate.paused == 1
            assert is_wanted(inner)
            nursery.cancel_scope.cancel()


async def test_a_pool_that_begins_without_an_endpoint_is_told_once(autojump_clock):
    async with watched("t=60 join ep1") as pool:
        await trio.sleep(120)
    assert [event.why for event in pool.told(PoolWaiting)] == ["no endpoint is listed", ""]


async def test_a_short_wait_is_not_worth_telling(autojump_clock):
    async with watched("t=10 busy ep1 retry_after=1.5 for=1") as pool:
        await trio.sleep(10.5)
        await pool.pool.chat(ASK)
        await trio.sleep(10)
    assert pool.told(AttemptStarted)[1:]
    assert pool.told(PoolWaiting) == []


async def test_leaving_ends_the_watch_at_once_also_when_cancelled(autojump_clock):
    with trio.move_on_after(1) as scope:
        async with watched():
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(1)


# --- log lines


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "scavenge"]


async def test_the_line_of_a_stall_sends_nobody_to_a_file_that_is_not_there(autojump_clock, caplog):
    async with watched("t=1 freeze ep1") as pool:
        await trio.sleep(2)
        with trio.move_on_after(310):
            await pool.pool.chat(ASK)
    (stalled,) = pool.told(Stalled)
    PoolLog(Redactor())(stalled)
    ((level, line),) = lines(caplog)
    assert level == "WARNING"
    assert line.startswith("nothing has come back for 5:0")
    assert line.endswith("; the full picture is in the event Stalled, for observers")


def test_log_lines_hold_no_secrets_and_move_no_cursor(caplog):
    redact = Redactor()
    redact.hide(["the-secret"])
    log = PoolLog(redact)
    log(Warned("the-secret is out\x1b[2J"))
    log(PoolWaiting(SIM, 0.0, "http://host/v1 refuses the-secret"))
    assert lines(caplog) == [
        ("WARNING", "[secret] is out\\x1b[2J"),
        ("WARNING", "sim is waiting for an endpoint: http://host/v1 refuses [secret]"),
    ]


def test_single_attempts_are_not_logged(caplog):
    caplog.set_level(logging.DEBUG, "scavenge")
    PoolLog(Redactor())(AttemptStarted(SIM, Url("http://host/v1")))
    assert lines(caplog) == []


@attrs.define
class Leaky:
    """A source that fails after its first listing, and tells its key then."""

    listing: scavenge.Listing
    asked: int = 0

    async def list_endpoints(self) -> scavenge.Listing:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if self.asked > 1:
            raise scavenge.SourceError("refused with the-key-of-the-endpoint")
        return self.listing


async def test_the_trouble_of_a_source_is_a_warning_in_the_log_of_the_program(caplog, monkeypatch):
    monkeypatch.setenv("SCAVENGE_TEST_KEYED", "the-key-of-the-endpoint")
    async with open_http_fleet(FleetPlan([SimulatedServer("ep1")])) as fleet:
        source = Leaky(scavenge.Listing([attrs.evolve(row, key="SCAVENGE_TEST_KEYED") for row in fleet.rows()]))
        async with scavenge.open_pool(source, poll_interval=0.1):
            with trio.fail_after(10):
                while not lines(caplog):  # noqa: ASYNC110 - real sockets
                    await trio.sleep(0.01)
    told = "source Leaky: refused with [secret]; the last good listing, 1 endpoint, stands"
    assert lines(caplog)[0] == ("WARNING", told)


async def test_a_pool_sets_up_no_logging_of_its_own():
    logger = logging.getLogger("scavenge")
    before = (logger.handlers[:], logger.level, logger.propagate, logging.getLogger().handlers[:])
    async with open_http_fleet(FleetPlan([SimulatedServer("ep1")])) as fleet, scavenge.open_pool(fleet):
        fleet.nodes["ep1"].apply(faults.Kill())
    assert (logger.handlers[:], logger.level, logger.propagate, logging.getLogger().handlers[:]) == before


async def test_what_a_lease_s_client_gets_is_a_sign_that_work_gets_on():
    async with open_http_fleet(FleetPlan([SimulatedServer("ep1")])) as fleet, scavenge.open_pool(fleet) as pool:
        clock = pool._watchdog.clock
        async with pool.acquire() as lease:
            clock.quiet_s = 200.0
            await lease.client.get("unknown")
            assert clock.quiet_s >= 200.0
            await lease.client.get("models")
            assert clock.quiet_s < 200.0
