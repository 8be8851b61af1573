"""What a simulated server says on a connection, over streams in memory and on a virtual clock."""

from __future__ import annotations

import json
import random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair

from scavenge.testing import EngineSettings, SimulatedServer, faults
from scavenge.testing.batching_settings import BatchingSettings
from scavenge.testing.connection import serve_connection
from scavenge.testing.host import Host
from scavenge.testing.model import reply_to
from scavenge.testing.node import Node

ENGINE = EngineSettings(token_s=0.1, load_s=0.0, slots=4, tokens_per_event=1)
PROMPT = {"model": "sim", "messages": [{"role": "user", "content": "What is 2 + 3?"}]}


def make_node(**settings) -> Node:
    return Node(Host(SimulatedServer("ep1", ENGINE, **settings), random.Random(0)), "http://ep1.sim/v1")


def post(body: object, path: str = "/v1/chat/completions", headers: str = "") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data


def get(path: str, headers: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode()


async def converse(node: Node, *pieces: bytes, hang_up_after_s: float = 100.0) -> bytes:
    """All that a client hears that sends these pieces, a second apart, hangs up, and is gone another second later."""
    client, server = memory_stream_pair()
    heard = bytearray()

    async def serve() -> None:
        await serve_connection(server, node, 0)
        await server.aclose()

    async def hear() -> None:
        async for data in client:
            heard.extend(data)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run_clock)
        nursery.start_soon(serve)
        nursery.start_soon(hear)
        try:
            for piece in pieces[:-1]:
                await client.send_all(piece)
                await trio.sleep(1)
            await client.send_all(b"".join(pieces[-1:]))
        except trio.BrokenResourceError:
            pass  # it has had enough of us
        await trio.sleep(hang_up_after_s)
        await client.send_eof()
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    return bytes(heard)


def parse(reply: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = reply.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


async def test_a_whole_reply_has_text_finish_reason_and_usage(autojump_clock):
    status, headers, body = parse(await converse(make_node(), post(PROMPT)))
    reply = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert reply["choices"][0]["message"]["content"].endswith("The answer is 5.")
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["usage"]["prompt_tokens"] == 5
    assert reply["usage"]["completion_tokens"] == len(reply["choices"][0]["message"]["content"].split())


def events_of(body: bytes) -> list[object]:
    """The events of a chunked stream that is whole."""
    data, rest = b"", body
    while True:
        size, _, rest = rest.partition(b"\r\n")
        if not int(size, 16):
            break
        data, rest = data + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    assert rest == b"\r\n"
    lines = data.decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


async def test_a_stream_says_the_same_token_by_token(autojump_clock):
    whole = json.loads(parse(await converse(make_node(), post(PROMPT)))[2])
    streamed = await converse(make_node(), post({**PROMPT, "stream": True, "stream_options": {"include_usage": True}}))
    status, headers, body = parse(streamed)
    opening, *tokens, last, usage = events_of(body)
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    assert opening["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    said = "".join(token["choices"][0]["delta"]["content"] for token in tokens)
    assert said == whole["choices"][0]["message"]["content"]
    assert len(tokens) == whole["usage"]["completion_tokens"]
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "stop")
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])


async def test_text_completions_take_a_prompt(autojump_clock):
    ask = {"model": "sim", "prompt": "What is 2 + 3?", "max_tokens": 4}
    whole = json.loads(parse(await converse(make_node(), post(ask, "/v1/completions")))[2])
    *tokens, last = events_of(parse(await converse(make_node(), post({**ask, "stream": True}, "/v1/completions")))[2])
    assert (whole["object"], whole["choices"][0]["finish_reason"]) == ("text_completion", "length")
    assert "".join(token["choices"][0]["text"] for token in tokens) == whole["choices"][0]["text"]
    assert (len(tokens), last["choices"][0]["finish_reason"]) == (4, "length")


async def test_tokens_are_paced_by_the_engine_and_nothing_comes_before_the_first(autojump_clock):
    heard = await converse(make_node(), post({**PROMPT, "stream": True}), hang_up_after_s=0.25)
    assert heard.count(b'"content":"') == 1 + 2  # the opening and two tokens of 0.1 s each in 0.25 s
    assert await converse(make_node(), post({**PROMPT, "stream": True}), hang_up_after_s=0.05) == b""


async def test_a_client_that_reads_slowly_gets_every_token(autojump_clock):
    client, server = lockstep_stream_pair()
    heard = b""
    async with trio.open_nursery() as nursery:
        node = make_node()
        nursery.start_soon(node.run_clock)
        nursery.start_soon(serve_connection, server, node, 0)
        await client.send_all(post({**PROMPT, "stream": True}))
        while b"[DONE]" not in heard:
            await trio.sleep(2.25)  # some twenty tokens later, so that the reply ends while a piece is being sent
            heard += await client.receive_some()
        nursery.cancel_scope.cancel()
    whole = json.loads(parse(await converse(make_node(), post(PROMPT)))[2])
    assert heard.count(b'"content":') == 1 + whole["usage"]["completion_tokens"]


async def test_hanging_up_cancels_the_generation_at_once(autojump_clock):
    node = make_node()
    await converse(node, post({**PROMPT, "stream": True}), hang_up_after_s=0.25)
    assert (node.host.running, node.host.truth.cancelled, node.host.truth.tokens) == (0, 1, 0)


async def test_a_client_that_sends_without_end_is_hung_up_on(autojump_clock):
    node = make_node()
    await converse(node, post(PROMPT), *[b"GET / HTTP/1.1\r\n" * 10_000] * 20)
    assert node.host.truth.started == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        ([], "not a JSON object"),
        ({**PROMPT, "model": None}, "model has to be a string"),
        ({**PROMPT, "stream": "yes"}, "stream a boolean"),
        ({**PROMPT, "n": 2}, "one choice a request, got 2"),
        ({"model": "sim"}, "expected a list of messages"),
        ({"model": "sim", "messages": []}, "expected a list of messages"),
        ({"model": "sim", "messages": ["hi"]}, "expected a list of messages"),
        ({**PROMPT, "max_tokens": 0}, "expected a positive integer, got 0"),
        ({**PROMPT, "max_tokens": True}, "expected a positive integer, got True"),
        ({**PROMPT, "max_completion_tokens": "9"}, "expected a positive integer, got '9'"),
        ({**PROMPT, "ignore_eos": 1}, "ignore_eos: expected a boolean"),
        ({**PROMPT, "ignore_eos": True, "max_tokens": 1_000_001}, "max_tokens of at most 1000000"),
        ({**PROMPT, "simulated": 600}, 'simulated: expected an object with "prompt_tokens"'),
        ({**PROMPT, "simulated": {"tokens": 600}}, 'simulated: expected an object with "prompt_tokens"'),
        ({**PROMPT, "simulated": {"prompt_tokens": 0}}, "expected a positive integer, got 0"),
        ({**PROMPT, "simulated": {"prompt_tokens": True}}, "expected a positive integer, got True"),
        ({**PROMPT, "simulated": {"prompt_tokens": 1.5}}, "expected a positive integer, got 1.5"),
    ],
)
async def test_a_wrong_body_is_refused_with_the_reason(body, says, autojump_clock):
    status, _, reply = parse(await converse(make_node(), post(body)))
    assert status == 400
    assert says in json.loads(reply)["error"]["message"]


async def test_a_text_completion_needs_a_prompt(autojump_clock):
    status, _, reply = parse(await converse(make_node(), post({"model": "sim"}, "/v1/completions")))
    assert (status, json.loads(reply)["error"]["message"]) == (400, "prompt: expected a string")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post(PROMPT, "/v1/chat"), 404),
        (get("/"), 404),
        (get("/v1/chat/completions"), 405),
        (post(PROMPT, "/v1/models"), 405),
        (post({**PROMPT, "model": "other"}), 404),
        (b"HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"HEAD /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (get("/v1/models?x=1", "Upgrade: websocket\r\nConnection: upgrade\r\n"), 200),
        (b"GET /health HTTP/1.0\r\n\r\n", 200),
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
        (get("/health", f"X: {'y' * 200_000}\r\n"), 431),
    ],
)
async def test_other_requests_have_their_status(request_, status, autojump_clock):
    assert parse(await converse(make_node(), request_))[0] == status


async def test_a_body_without_end_is_refused(autojump_clock):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"
    assert parse(await converse(make_node(), head, b"x" * 20_000_000))[0] == 413


async def test_requests_follow_each_other_on_one_connection_also_sent_ahead(autojump_clock):
    node = make_node()
    heard = await converse(node, post(PROMPT) + get("/health"), get("/v1/models"))
    assert heard.count(b"HTTP/1.1 200") == 3
    assert heard.rstrip().endswith(b"]}")


async def test_a_client_that_asks_for_it_is_told_to_go_on(autojump_clock):
    whole = post(PROMPT, headers="Expect: 100-continue\r\n")
    head, _, body = whole.partition(b"\r\n\r\n")
    heard = await converse(make_node(), head + b"\r\n\r\n", body)
    assert heard.startswith(b"HTTP/1.1 100 \r\n\r\nHTTP/1.1 200 \r\n")


async def test_a_token_is_asked_for_where_there_is_one(autojump_clock):
    right, wrong = "Authorization: Bearer s3cret\r\n", "Authorization: Basic s3cret\r\n"

    async def status(request: bytes) -> int:
        return parse(await converse(make_node(secret="s3cret"), request))[0]

    assert await status(get("/v1/models", right)) == await status(post(PROMPT, headers=right)) == 200
    assert await status(get("/v1/models", wrong)) == await status(post(PROMPT)) == 401
    assert await status(get("/health")) == 200


async def test_models_and_metrics_tell_the_state(autojump_clock):
    node = make_node(model='a"b\\c', context_tokens=99, metrics="vllm")
    models = json.loads(parse(await converse(node, get("/v1/models")))[2])
    assert [(model["id"], model["max_model_len"]) for model in models["data"]] == [('a"b\\c', 99)]
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(converse, node, post({**PROMPT, "model": 'a"b\\c'}))
        await trio.sleep(0.05)
        metrics = parse(await converse(node, get("/metrics"), hang_up_after_s=0.1))[2].decode()
        nursery.cancel_scope.cancel()
    assert 'vllm:num_requests_running{engine="0",model_name="a\\"b\\\\c"} 4\n' in metrics
    assert 'vllm:num_requests_waiting{engine="0",model_name="a\\"b\\\\c"} 2\n' in metrics
    assert "kv_cache" not in metrics, "this engine has none"


async def test_busy_says_when_to_come_back(autojump_clock):
    node = make_node()
    node.apply(faults.Busy(retry_after_s=2.2, for_s=60))
    status, headers, _ = parse(await converse(node, post(PROMPT)))
    assert (status, headers["retry-after"]) == (429, "3")


@pytest.mark.parametrize("request_", [post(PROMPT), get("/health"), b"no HTTP at all\r\n\r\n"])
async def test_a_frozen_server_is_silent_until_it_thaws(request_, autojump_clock):
    node = make_node()
    node.apply(faults.Freeze(for_s=50))
    assert await converse(node, request_, hang_up_after_s=40) == b""
    node.apply(faults.Freeze(for_s=50))
    assert (await converse(node, request_)).startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("request_", [post(PROMPT), b"no HTTP at all\r\n\r\n"])
async def test_a_server_that_dies_frozen_says_nothing(request_, autojump_clock):
    node = make_node()
    node.apply(faults.Freeze())

    async def kill() -> None:
        await trio.sleep(5)
        node.apply(faults.Kill())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        assert await converse(node, request_) == b""
    assert node.host.truth.started == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_a_reply_whose_server_dies_is_never_finished(stream, autojump_clock):
    node = make_node()

    async def kill() -> None:
        await trio.sleep(0.35)
        node.apply(faults.Kill())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        heard = await converse(node, post({**PROMPT, "stream": stream}))
    assert b"[DONE]" not in heard
    assert heard.count(b'"content":') == (4 if stream else 0)


async def test_a_client_that_is_gone_when_its_reply_is_ready_harms_nobody(autojump_clock):
    node = make_node()
    node.apply(faults.Freeze(for_s=5))
    client, server = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run_clock)
        await client.send_all(get("/health") + get("/metrics"))
        await client.aclose()
        await serve_connection(server, node, 0)
        assert trio.current_time() == 5
        nursery.cancel_scope.cancel()


async def test_an_abort_ends_a_stream_that_has_not_begun_too(autojump_clock):
    node = make_node()

    async def abort() -> None:
        await trio.sleep(0.05)
        node.apply(faults.Abort())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(abort)
        heard = await converse(node, post({**PROMPT, "stream": True}))
    (only,) = events_of(parse(heard)[2])
    assert only["choices"][0]["finish_reason"] == "abort"


@given(st.lists(st.binary(max_size=40) | st.sampled_from([post(PROMPT)[:90], get("/health"), b"\r\n\r\n"]), max_size=5))
def test_no_bytes_whatever_bring_the_server_down_or_leave_a_request_running(pieces):
    async def main() -> None:
        node = make_node()
        await converse(node, *pieces)
        assert node.host.running == 0

    trio.run(main, clock=MockClock(autojump_threshold=0))


@given(st.integers(0, len(post(PROMPT))), st.booleans())
def test_a_request_cut_anywhere_is_no_request(at, stream):
    async def main() -> None:
        node, whole = make_node(), post({**PROMPT, "stream": stream})
        cut = min(at, len(whole) - 1)
        await converse(node, whole[:cut])
        assert node.host.truth.started == 0

    trio.run(main, clock=MockClock(autojump_threshold=0))


BATCHING = BatchingSettings(weights_s=0.1, gemm_s=0.0, overhead_s=0.0, stream_s=0.0, slots=4, kv_tokens=5000)


def batching_node(**settings) -> Node:
    return Node(Host(SimulatedServer("ep1", BATCHING, **settings), random.Random(0)), "http://ep1.sim/v1")


async def test_a_batching_server_streams_token_by_token_too(autojump_clock):
    client, server = memory_stream_pair()
    node, came = batching_node(), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run_clock)
        nursery.start_soon(serve_connection, server, node, 0)
        await client.send_all(post({**PROMPT, "stream": True, "max_tokens": 20, "ignore_eos": True}))
        heard = b""
        while b"[DONE]" not in heard:
            heard += await client.receive_some()
            came.append((trio.current_time(), heard.count(b'"content":') - 1))
        nursery.cancel_scope.cancel()
    assert came[-1][1] == 20
    assert all(abs(count - at_s / 0.1) <= 1 for at_s, count in came)
    assert len({count for _, count in came}) == 20


async def test_a_reply_that_a_batching_server_dies_over_has_what_was_there(autojump_clock):
    node = batching_node()

    async def kill() -> None:
        await trio.sleep(0.55)
        node.apply(faults.Kill())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        heard = await converse(node, post({**PROMPT, "stream": True}))
    assert b"[DONE]" not in heard
    assert heard.count(b'"content":') == 1 + 5


@pytest.mark.parametrize(
    ("metrics", "offered"), [("vllm", {"/metrics"}), ("llama", {"/props", "/slots"}), (None, set())]
)
async def test_a_server_has_the_pages_of_its_kind(metrics, offered, autojump_clock):
    node = batching_node(metrics=metrics, secret="s3cret")
    right = "Authorization: Bearer s3cret\r\n"
    for path in ("/metrics", "/props", "/slots"):
        with_token = parse(await converse(node, get(path, right)))[0]
        without = parse(await converse(node, get(path)))[0]
        assert with_token == (200 if path in offered else 404)
        assert without == (with_token if path not in {"/props", "/slots"} or path not in offered else 401)


async def test_the_pages_tell_what_the_engine_does(autojump_clock):
    vllm, llama = batching_node(), batching_node(metrics="llama")
    for node in (vllm, llama):
        for number in range(6):
            node.begin(reply_to([{"role": "user", "content": f"story {number}"}], prompt_tokens=100), lambda: None)
    metrics = parse(await converse(vllm, get("/metrics"), hang_up_after_s=0.01))[2].decode()
    labels = '{engine="0",model_name="sim"}'
    for series in ("num_requests_running 4", "num_requests_waiting 2", "num_preemptions_total 0"):
        name, value = series.split()
        assert f"vllm:{name}{labels} {value}\n" in metrics
    assert f"vllm:kv_cache_usage_perc{labels} 0.08" in metrics
    assert 'vllm:cache_config_info{block_size="1",engine="0",num_gpu_blocks="5000"} 1.0\n' in metrics
    slots = json.loads(parse(await converse(llama, get("/slots"), hang_up_after_s=0.01))[2])
    assert [slot["is_processing"] for slot in slots] == [True] * 4
    assert json.loads(parse(await converse(llama, get("/props"), hang_up_after_s=0.01))[2])["total_slots"] == 4
    llama.apply(faults.Cap(slots=2))
    slots = json.loads(parse(await converse(llama, get("/slots"), hang_up_after_s=0.01))[2])
    assert [slot["is_processing"] for slot in slots] == [True] * 4, "what runs goes on"
    idle = json.loads(parse(await converse(batching_node(metrics="llama"), get("/slots")))[2])
    assert [slot["is_processing"] for slot in idle] == [False] * 4
