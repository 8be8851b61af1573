"""The worker's end of the conversation, and its connections to the gateway, in this process."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from worker_child_kit import Gateway, open_gateway

from scavenge.core.doorwords import read_reply, request_body
from scavenge.core.frames import encode, reader_from_worker
from scavenge.core.worker_messages import Abort, Aborted, Beat, FromWorker, Ready, Stop, ToWorker
from scavenge.errors import InfrastructureError
from scavenge.types import ModelAddress
from scavenge.worker import gateway_client
from scavenge.worker.answers import Answers
from scavenge.worker.gateway_client import GatewayClient, at_once
from scavenge.worker.link import CANNOT_GO_ON, NO_RUN, Link
from scavenge.worker.model import BlockingStream, RolloutAborted, SyncModel, connect_blocking
from scavenge.worker.stage import BROKEN, Stage

HELLO = [{"role": "user", "content": "hello"}]


class Run:
    """The other end, and how the link would have ended the process."""

    def __init__(self) -> None:
        self.left: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.delivered: queue.SimpleQueue[ToWorker] = queue.SimpleQueue()
        self.socket, theirs = socket.socketpair()
        self.link = Link(theirs, self.left.put)
        self.link.start()

    def say(self, *messages: ToWorker) -> None:
        self.socket.sendall(b"".join(map(encode, messages)))

    def heard(self) -> list[FromWorker]:
        """All that the link writes until it ends."""
        reader = reader_from_worker()
        found: list[FromWorker] = []
        while data := self.socket.recv(65536):
            found += reader.feed(data)
        return found


@pytest.fixture
def run() -> Iterator[Run]:
    run = Run()
    yield run
    run.socket.close()
    run.link.close()


def test_what_came_early_is_delivered_first_and_nothing_after_a_stop(run: Run):
    run.say(Abort(1), Abort(2), Abort(3))
    assert run.link.wait_first() == Abort(1)
    run.link.listen(run.delivered.put)
    run.say(Abort(4), Stop(), Abort(5))
    assert [run.delivered.get(timeout=60) for _ in range(4)] == [Abort(2), Abort(3), Abort(4), Stop()]
    run.socket.close()
    assert run.left.get(timeout=60) == NO_RUN
    assert run.delivered.empty()


def test_a_stop_before_anybody_listens_ends_the_process(run: Run):
    run.say(Stop())
    assert run.left.get(timeout=60) == 0


def test_a_stop_of_a_signal_is_delivered(run: Run):
    run.link.listen(run.delivered.put)
    run.link.stop_soon()
    assert run.delivered.get(timeout=60) == Stop()


def test_a_bad_frame_ends_the_process_though_a_good_one_came_with_it(run: Run):
    run.socket.sendall(encode(Abort(1)) + b"\x09")
    assert run.left.get(timeout=60) == CANNOT_GO_ON
    assert run.link.wait_first() == Abort(1)


def test_a_listener_that_fails_ends_the_process(run: Run):
    def fail(message: ToWorker) -> None:
        raise RuntimeError("the loop is gone")

    run.link.listen(fail)
    run.say(Abort(1))
    assert run.left.get(timeout=60) == CANNOT_GO_ON


def test_what_comes_to_a_worker_that_could_not_open_its_environment_is_left_alone():
    run = Run()

    def fail(message: ToWorker) -> None:
        raise RuntimeError("the loop is gone")

    run.link.listen(fail)
    stage = Stage(object(), Ready("trio", True), run.link, Answers("env", object(), run.link), "here")  # type: ignore[arg-type]
    assert stage.not_opened(LookupError("no sandbox")) == BROKEN
    run.say(Abort(1), Stop())
    run.link.close()
    run.socket.close()
    assert run.left.empty()


def test_all_that_was_sent_is_written_before_the_end():
    run = Run()
    reading: list[FromWorker] = []
    reader = threading.Thread(target=lambda: reading.extend(run.heard()))
    reader.start()
    for number in range(20_000):
        run.link.send(Aborted(number))
    run.link.close()
    reader.join(60)
    assert [message for message in reading if not isinstance(message, Beat)] == [Aborted(n) for n in range(20_000)]
    run.socket.close()
    assert run.left.empty()


def test_the_process_may_end_from_any_thread_once_all_is_written(run: Run):
    run.link.send(Aborted(1))
    run.link.end(3)
    assert run.left.get(timeout=60) == 3
    assert reader_from_worker().feed(run.socket.recv(100)) == [Aborted(1)]


def test_a_forked_copy_lets_go_of_the_conversation():
    ours, theirs = socket.socketpair()
    Link(theirs, lambda status: None).forked()
    assert ours.recv(1) == b""
    ours.close()


# --- the gateway


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with open_gateway() as server:
        yield server


@pytest.fixture
def client() -> Iterator[GatewayClient[BlockingStream]]:
    client = GatewayClient(connect_blocking)
    yield client
    client.close()


def ask(client: GatewayClient[BlockingStream], address: ModelAddress) -> str:
    return read_reply(*at_once(client.post(address, request_body(HELLO, {})))).text


def test_connections_that_were_idle_for_long_are_closed_and_not_used_again(
    client: GatewayClient[BlockingStream], gateway: Gateway, monkeypatch: pytest.MonkeyPatch
):
    used: list[BlockingStream] = []
    body, address = request_body(HELLO, {}), gateway.address()

    def meanwhile(stream: BlockingStream) -> None:
        used.append(stream)
        at_once(client.post(address, body, used.append))

    at_once(client.post(address, body, meanwhile))
    assert ask(client, address) == "you said hello"
    assert gateway.connections == 2
    monkeypatch.setattr(gateway_client, "KEPT_IDLE_S", -1.0)
    assert ask(client, address) == "you said hello"
    assert gateway.connections == 3
    assert [stream._socket.fileno() for stream in used] == [-1, -1]


def test_a_fresh_connection_that_is_closed_is_not_replaced(client: GatewayClient[BlockingStream]):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = []

        def take() -> None:
            stream, _ = server.accept()
            taken.append(stream)
            stream.recv(65536)
            stream.close()

        taking = threading.Thread(target=take)
        taking.start()
        address = ModelAddress(f"http://127.0.0.1:{server.getsockname()[1]}/session/s/v1", "k")
        with pytest.raises(InfrastructureError, match="cannot be asked: the connection was closed before"):
            ask(client, address)
        taking.join()
        assert len(taken) == 1


def test_an_aborted_rollout_asks_no_more_from_any_of_its_threads(
    client: GatewayClient[BlockingStream], gateway: Gateway
):
    model = SyncModel(gateway.address(), client)
    raised: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def hang() -> None:
        try:
            model.chat([{"role": "user", "content": "hang"}])
        except RolloutAborted as exc:
            raised.put(exc)

    threads = [threading.Thread(target=hang) for _ in range(3)]
    for thread in threads:
        thread.start()
        assert gateway.hung.acquire(timeout=60)
    model.abort()
    assert all(isinstance(raised.get(timeout=60), RolloutAborted) for _ in threads)
    with pytest.raises(RolloutAborted):
        model.chat(HELLO)
    assert model.aborted
    assert len(gateway.asked) == 3
    assert SyncModel(gateway.address(), client).chat(HELLO).text == "you said hello"


def test_a_connection_that_threads_use_one_after_the_other_is_interrupted_for_the_last_one(gateway: Gateway):
    reply = gateway.answer("hello")
    release = threading.Event()
    interrupted: list[object] = []

    class Line:
        def interrupt(self) -> None:
            interrupted.append(self)

    class OneLine:
        """Has a second thread take the connection before the first one has let go of it."""

        async def post(self, address: ModelAddress, body: bytes, taken: Callable[[Line], None]) -> tuple[int, bytes]:
            taken(line)
            has_it.set()
            if threading.current_thread() is second:
                release.wait(60)
            else:
                has_it.clear()
                second.start()
                assert has_it.wait(60)
            return reply

    line, has_it = Line(), threading.Event()
    model = SyncModel(gateway.address(), OneLine())  # type: ignore[arg-type] # as much of a client as a model uses
    second = threading.Thread(target=model.chat, args=[HELLO])
    assert model.chat(HELLO).text == "you said hello"
    model.abort()
    assert interrupted == [line]
    release.set()
    second.join()


def test_a_step_that_suspends_is_no_blocking_one():
    class Pause:
        def __await__(self) -> Iterator[None]:
            yield

    async def step() -> None:
        await Pause()  # type: ignore[misc]

    with pytest.raises(RuntimeError, match="suspended"):
        at_once(step())
