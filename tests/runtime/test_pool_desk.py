"""The desk of a gateway: which pool a call goes to, how it is sent again, how long it waits, and its session."""

from __future__ import annotations

import pytest
import trio
from relay_kit import A_LONG_TIME_S, Desk, Server, Sink, call, ok, open_desk, saying

from scavenge.calls import ModelCard, Relayed
from scavenge.core.ledger import Ask
from scavenge.errors import ConfigError, NoEndpointsError, PoisonRequest, UnknownModel
from scavenge.events import AttemptEnded
from scavenge.runtime.patience import Patience
from scavenge.runtime.ports import RelayRequest
from scavenge.runtime.sending import Sending
from scavenge.testing.sweep import cancel_at_every_step
from scavenge.types import (
    ApiType,
    Busy,
    ChatRequest,
    EndpointId,
    Failed,
    Lost,
    LostCause,
    Ok,
    Rejected,
    Reply,
    RequestFailed,
    TimedOut,
)

A, B, C = "http://a/v1", "http://b/v1", "http://c/v1"


# --- which pool


@pytest.mark.parametrize("name", ["sim", "the-model", ""])
async def test_a_pool_is_found_by_its_id_its_models_name_or_because_it_is_the_only_one(autojump_clock, name):
    async with open_desk({A: Server(saying(ok()))}) as kit:
        assert (await kit.desk.answer(call(name), None)).reply.text == "hello"


async def test_two_pools_are_told_apart_and_a_model_that_both_have_is_no_name(autojump_clock):
    servers = {A: Server(saying(ok("from a"))), B: Server(saying(ok("from b")))}
    async with open_desk({A: servers[A]}) as kit:
        kit.add(B, servers[B], pool="other")
        await trio.sleep(3)
        assert (await kit.desk.answer(call("sim"), None)).reply.text == "from a"
        assert (await kit.desk.answer(call("other"), None)).reply.text == "from b"
        assert kit.desk.models() == (ModelCard("sim", "the-model"), ModelCard("other", "the-model"))
        with pytest.raises(UnknownModel, match='several pools: name one of the pools: "other", "sim"'):
            await kit.desk.answer(call("the-model"), None)
        with pytest.raises(UnknownModel, match="names no model: name one"):
            await kit.desk.answer(call(""), None)


async def test_a_model_that_nobody_has_is_told_with_the_nearest_at_once(autojump_clock):
    async with open_desk({A: Server(saying(ok()))}) as kit:
        with pytest.raises(UnknownModel, match=r'unknown model "the-modell"; .*the-model'):
            await kit.desk.answer(call("the-modell"), None)
        assert trio.current_time() < 1
        assert kit.ended() == []  # it is no pool's


async def test_a_model_that_is_listed_later_is_waited_for(autojump_clock):
    async with open_desk() as kit:
        got: list[Relayed] = []

        async def ask() -> None:
            got.append(await kit.desk.answer(call("the-model"), None))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(50)
            assert (got, kit.desk.calls) == ([], 1)
            kit.add(A, Server(saying(ok())))
        assert got[0].reply.text == "hello"
        assert kit.desk.calls == 0


async def test_a_wait_for_a_pool_that_is_not_there_is_told_once_a_minute(autojump_clock):
    async with open_desk(stall_timeout_s=0) as kit:
        with trio.move_on_after(1):
            await kit.desk.answer(call("soon-gone"), None)
        await trio.sleep(10)
        assert kit.warnings() == []
        with trio.move_on_after(100):
            async with trio.open_nursery() as nursery:
                for name in ("sim", "other"):
                    nursery.start_soon(kit.desk.answer, call(name), None)
                    await trio.sleep(0.5)
        says = 'a request waits for the model "sim", which no endpoint is listed for, and 1 more waits like that'
        assert kit.warnings() == [f"{says}; pools: none"] * 2


async def test_where_nothing_is_listed_a_call_ends_after_the_stall_timeout(autojump_clock):
    async with open_desk(stall_timeout_s=30) as kit:
        with pytest.raises(NoEndpointsError, match='no endpoint is listed for the model "sim"; pools: none'):
            await kit.desk.answer(call(), None)
        assert trio.current_time() == pytest.approx(30)


async def test_where_nothing_will_ever_be_listed_nothing_is_opened(autojump_clock):
    with pytest.raises(ConfigError, match="no endpoint is listed; with elastic = false nothing is asked again"):
        async with open_desk(elastic=False):
            pytest.fail("it was opened")
    async with open_desk({A: Server(saying(ok()))}, elastic=False) as kit:
        assert (await kit.desk.answer(call(), None)).reply.text == "hello"
        kit.add(B, Server(saying(ok())), pool="other")
        await trio.sleep(A_LONG_TIME_S)
        with pytest.raises(UnknownModel):
            await kit.desk.answer(call("other"), None)


async def test_a_pool_that_a_file_names_is_waited_for_though_others_are_there(autojump_clock):
    async with open_desk({A: Server(saying(ok()))}, wanted=("later",), stall_timeout_s=30) as kit:
        with pytest.raises(NoEndpointsError, match='pool "later"'):
            await kit.desk.answer(call("later"), None)
        with pytest.raises(NoEndpointsError, match='no endpoint is listed for the model "its-model"'):
            await kit.desk.answer(call("its-model"), None)


# --- sent again


async def test_a_whole_reply_is_asked_for_as_a_stream_and_its_body_goes_as_it_came(autojump_clock):
    async with open_desk({A: (server := Server(saying(ok())))}) as kit:
        asked = call(temperature=0.5)
        await kit.desk.answer(asked, None)
    (request,) = server.asked
    assert isinstance(request, RelayRequest)
    assert (request.stream, request.sink, request.body.raw) == (True, None, asked.body)


@pytest.mark.parametrize("options", [{"best_of": 3}, {"echo": True}, {"prompt_logprobs": 1}])
async def test_what_cannot_be_streamed_is_asked_for_whole(autojump_clock, options):
    async with open_desk({A: (server := Server(saying(ok())))}) as kit:
        await kit.desk.answer(call(**options), None)
        assert [request.stream for request in server.asked] == [False]


async def test_a_gateway_that_asks_for_no_streams_asks_for_none(autojump_clock):
    async with open_desk({A: (server := Server(saying(ok())))}, stream=False) as kit:
        await kit.desk.answer(call(), None)
        await kit.desk.answer(call(streamed=True), Sink())
        assert [request.stream for request in server.asked] == [False, True]


async def test_a_server_that_refuses_to_stream_is_asked_plainly_and_after_a_few_times_at_once(autojump_clock):
    async def answer(request: RelayRequest | ChatRequest):
        await trio.sleep(1)
        return Rejected("no streams here", 400) if request.stream else ok()

    async with open_desk({A: (server := Server(answer))}) as kit:
        for _ in range(5):
            assert (await kit.desk.answer(call(), None)).reply.text == "hello"
        assert [request.stream for request in server.asked] == [True, False] * 3 + [False, False]
        assert kit.ended()[0].attempts == 2


async def test_what_is_wrong_with_a_request_is_told_as_it_was_said_without_a_stream(autojump_clock):
    async def answer(request: RelayRequest | ChatRequest):
        await trio.sleep(1)
        return Rejected("as a stream" if request.stream else "temperature is wrong", 400)

    async with open_desk({A: (server := Server(answer))}) as kit:
        with pytest.raises(RequestFailed, match="temperature is wrong"):
            await kit.desk.answer(call(), None)
        with pytest.raises(RequestFailed, match="as a stream"):
            await kit.desk.answer(call(streamed=True), Sink())
        assert len(server.asked) == 3


@pytest.mark.parametrize(
    "refusal", [Rejected("too long", 400, context_length=True), Rejected("temperature is wrong", 422)]
)
async def test_what_is_refused_for_itself_is_not_asked_again(autojump_clock, refusal):
    async with open_desk({A: (server := Server(saying(refusal)))}) as kit:
        with pytest.raises(RequestFailed, match=refusal.message):
            await kit.desk.answer(call(), None)
        assert len(server.asked) == 1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("outcome", [Lost("gone"), Busy("later", 429, 0.5), Failed("500", 500), TimedOut("late")])
async def test_until_something_went_to_the_client_a_call_is_sent_again_elsewhere(autojump_clock, streamed, outcome):
    servers = {A: Server(saying(outcome)), B: Server(saying(outcome, ok()))}
    async with open_desk(servers) as kit:
        relayed = await kit.desk.answer(call(streamed=streamed), Sink() if streamed else None)
        assert relayed.attempts[-1].outcome == "ok"
        assert len(relayed.attempts) > 1
        assert {attempt.outcome for attempt in relayed.attempts[:-1]} == {outcome.name}


@pytest.mark.parametrize("outcome", [Lost("gone"), Busy("later", 429, 0.5), Failed("500", 500), TimedOut("late")])
async def test_once_something_went_to_the_client_nobody_else_is_asked(autojump_clock, outcome):
    async def answer(request: RelayRequest | ChatRequest):
        await request.sink.take(b"data: {}\n\n")
        return outcome

    servers = {A: Server(answer), B: Server(answer)}
    async with open_desk(servers) as kit:
        sink = Sink()
        with pytest.raises(RequestFailed) as raised:
            await kit.desk.answer(call(streamed=True), sink)
        assert raised.value.outcome == outcome
        assert sum(len(server.asked) for server in servers.values()) == 1
        assert (len(sink.taken), kit.lent) == (1, 0)
        assert [event.outcome for event in kit.ended()] == [outcome.name]


async def test_a_client_that_takes_nothing_until_the_deadline_is_not_held_against_the_server(autojump_clock):
    class Unread(Server):
        async def ask(self, request, stream=None):
            await request.sink.take(b"data: {}\n\n")
            stream.hold_back()
            await trio.sleep_forever()

    async with open_desk({A: Unread(saying(ok()))}, request_timeout=5.0) as kit:
        with pytest.raises(RequestFailed, match="while the client took nothing") as raised:
            await kit.desk.answer(call(streamed=True), Sink())
        assert raised.value.outcome.cause is LostCause.LATE
        (pool,) = kit.fleet.pools.values()
        assert pool.members[A].health.state.value == "live"


async def test_a_request_that_kills_every_server_is_given_up(autojump_clock):
    async with open_desk({A: (server := Server(saying(Lost("gone", LostCause.SERVER))))}, stall_timeout_s=0) as kit:
        with pytest.raises(PoisonRequest):
            await kit.desk.answer(call(), None)
        (ended,) = kit.ended()
        assert (ended.outcome, ended.attempts) == ("lost", len(server.asked))


async def test_a_chat_for_servers_that_only_complete_texts_goes_to_them_as_text(autojump_clock):
    async with open_desk() as kit:
        kit.add(A, server := Server(saying(ok())), type="openai_completions")
        await trio.sleep(2)
        sink = Sink()
        relayed = await kit.desk.answer(call(streamed=True, temperature=0.5), sink)
        (request,) = server.asked
        assert request == ChatRequest([{"role": "user", "content": "hi"}], {"temperature": 0.5})
        assert (relayed.reply.text, sink.taken) == ("hello", [])
        await kit.desk.answer(call(api=ApiType.COMPLETIONS), None)
        assert isinstance(server.asked[1], RelayRequest)
        await kit.desk.answer(call(best_of=2), None)
        assert (server.asked[0].stream, server.asked[2].stream) == (True, False)


# --- waiting


async def test_a_call_waits_for_servers_no_longer_than_the_stall_timeout_from_when_it_came(autojump_clock):
    server = Server(saying(ok()), alive=False)
    async with open_desk({A: server}, stall_timeout_s=60) as kit:
        await trio.sleep(A_LONG_TIME_S)  # nobody is there for long already: each call waits all the same
        came_at = trio.current_time()
        with pytest.raises(NoEndpointsError, match=r"no usable endpoint for \d+ s \(stall_timeout = 60 s\): .*refused"):
            await kit.desk.answer(call(), None)
        assert 60 <= trio.current_time() - came_at <= 62
        assert (kit.lent, kit.waiting, kit.desk.calls) == (0, 0, 0)
        assert [event.outcome for event in kit.ended()] == ["stalled"]


async def test_whose_patience_is_over_does_not_begin_to_wait(autojump_clock):
    async with open_desk({A: Server(saying(ok()), alive=False)}) as kit:
        await trio.sleep(A_LONG_TIME_S)
        patience = Patience(kit.fleet.pools[EndpointId("sim")], 60, trio.current_time() - 61)
        with pytest.raises(NoEndpointsError):
            await patience.wait(lambda: pytest.fail("it began to wait"))
        sending = Sending(ChatRequest([], {}), Ask((0, 0)), 0.0, patience)
        with pytest.raises(NoEndpointsError):
            await sending.back_off(0)


async def test_a_server_that_comes_back_in_time_answers_whoever_waits(autojump_clock):
    server = Server(saying(ok()), alive=False)
    async with open_desk({A: server}, stall_timeout_s=300) as kit:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(kit.desk.answer, call(), None)
            await trio.sleep(100)
            assert (kit.waiting, kit.desk.calls) == (5, 5)
            server.alive = True
        assert [event.outcome for event in kit.ended()] == ["ok"] * 5


async def test_with_no_stall_timeout_a_call_waits_for_ever(autojump_clock):
    async with open_desk({A: Server(saying(ok()), alive=False)}, stall_timeout_s=0) as kit:
        with trio.move_on_after(A_LONG_TIME_S) as scope:
            await kit.desk.answer(call(), None)
        assert scope.cancelled_caught
        assert [event.outcome for event in kit.ended()] == ["hung up"]


async def test_a_call_that_a_server_works_on_is_never_ended_by_the_stall_timeout(autojump_clock):
    async with open_desk({A: Server(saying(ok(), after_s=A_LONG_TIME_S))}, stall_timeout_s=60) as kit:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kit.desk.answer, call(), None)
            await trio.sleep(5)
            kit.rows[0] = kit.rows[0].__class__(endpoint_id="sim", model="the-model", url=A, draining=True)
            await trio.sleep(5)
            came_at = trio.current_time()
            with pytest.raises(NoEndpointsError):
                await kit.desk.answer(call(), None)
            assert trio.current_time() - came_at < 70
        assert [event.outcome for event in kit.ended()] == ["stalled", "ok"]


async def test_servers_that_are_busy_for_ever_end_a_call_too(autojump_clock):
    async with open_desk({A: (server := Server(saying(Busy("full", 429, 5.0))))}, stall_timeout_s=60) as kit:
        with pytest.raises(NoEndpointsError, match="full"):
            await kit.desk.answer(call(), None)
        assert 60 <= trio.current_time() <= 80
        (ended,) = kit.ended()
        assert (ended.outcome, ended.attempts) == ("stalled", len(server.asked))


async def test_a_queue_is_no_stall(autojump_clock):
    async with open_desk({A: Server(saying(ok(), after_s=50))}, limit=1, stall_timeout_s=60) as kit:
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(kit.desk.answer, call(), None)
        assert [event.outcome for event in kit.ended()] == ["ok"] * 6


# --- what is left, and what is told


@pytest.mark.parametrize("session", [None, "s1"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_that_is_cancelled_at_any_step_leaves_nothing(session, streamed):
    kits: list[Desk] = []

    async def use() -> None:
        servers = {A: Server(saying(Lost("gone"), ok())), B: Server(saying(Failed("500", 500), ok()))}
        async with open_desk(servers, limit=1) as kit:
            kits.append(kit)
            await kit.desk.answer(call(session=session, streamed=streamed), Sink() if streamed else None)

    def check() -> None:
        if kits:
            kit = kits.pop()
            assert (kit.lent, kit.waiting, kit.places, kit.desk.calls, kit.desk.sessions) == (0, 0, 0, 0, 0)
            assert kit.patient == 0
            assert all(server.under_way == 0 for server in kit.servers.values())

    assert cancel_at_every_step(use, check) > 10


async def test_a_client_that_hangs_up_leaves_word_of_how_often_its_call_was_sent(autojump_clock):
    async with open_desk({A: Server(saying(Lost("gone"), ok(), after_s=10))}) as kit:
        with trio.move_on_after(15):
            await kit.desk.answer(call(), None)
        assert [(event.outcome, event.attempts) for event in kit.ended()] == [("hung up", 2)]


async def test_what_is_told_of_a_call_has_its_times_from_when_it_came(autojump_clock):
    async with open_desk({A: Server(saying(Lost("gone"), ok()))}) as kit:
        await kit.desk.answer(call(streamed=True), Sink())
        (ended,) = kit.ended()
        assert (ended.endpoint_id, ended.outcome, ended.streamed, ended.attempts) == ("sim", "ok", True, 2)
        assert ended.usage.completion_tokens == 2
        assert ended.first_byte_s == pytest.approx(ended.duration_s - 0.75)


async def test_of_a_stream_without_usage_its_pieces_count_as_its_tokens(autojump_clock):
    async with open_desk({A: Server(saying(Ok(Reply("", "stop", pieces=5))))}) as kit:
        await kit.desk.answer(call(streamed=True), Sink())
        assert [event.tokens for event in kit.events if isinstance(event, AttemptEnded)] == [5]


async def test_an_unknown_error_is_told_as_a_failure_and_goes_on(autojump_clock):
    async def answer(request: RelayRequest | ChatRequest):
        await trio.lowlevel.checkpoint()
        raise RuntimeError("a bug")

    async with open_desk({A: Server(answer)}) as kit:
        with pytest.raises(RuntimeError, match="a bug"):
            await kit.desk.answer(call(), None)
        assert [event.outcome for event in kit.ended()] == ["failed"]
        assert kit.lent == 0
