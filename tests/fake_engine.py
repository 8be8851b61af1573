"""A container engine for tests: the Engine API on a Unix socket, in the test's own Trio loop, so any clock will do.

    async with open_fake_engine() as engine:
        engine.remote["docker.io/library/x:1"] = FakeImage()       # what can be pulled, under any registry's name
        engine.images["docker.io/library/y:1"] = FakeImage()       # what it has; canonical names
        engine.script("pull", Fails("toomanyrequests: …"), Cut())  # the next two pulls; then as usual
        async with open_engine(engine.address, {}, no_credentials) as client:
            ...
        assert engine.calls["pull"] == 3

It does what real ones do: pulls with progress (for ``pull_s`` seconds each), reads the archive of a load and checks
it, refuses to remove what a container has (``in_use``), answers as Docker or as Podman (``podman=True``). A kind of
call is ``ping``, ``info``, ``list``, ``inspect``, ``pull``, ``load``, ``tag``, ``remove`` or ``save``. What may be
scripted:

=====================  ===============================================================================
``Refuses``            an error status, before anything else
``Fails``              status 200, and then an error in the stream; ``bare``: as Podman words it
``Silent``             nothing, or no more (``midway``), until the client hangs up
``TakesNothing``       a load whose archive is not read
``Cut``                the connection breaks, at once or ``midway``; ``clean``: the stream ends, as if it were done
``Slow``               the answer comes later
``Raw``                just these bytes as the answer's body
=====================  ===============================================================================

``FakeEngine(folder)`` with ``up()`` is one that no cancellation reaches: it lives until the end of ``trio.run``.
``down()`` kills the engine (``leave_socket``: connections are refused, else there is no socket), ``up()`` starts it
again.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import attrs
import trio

from fake_engine_usual import USUAL
from fake_engine_wire import Call, Exchange, Gone, Torn
from fake_images import AMD64, FakeImage
from scavenge.core.images.reference import canonical
from scavenge.images import Platform

DISK_FULL = "failed to register layer: Error processing tar file(exit status 1): write /x: no space left on device"
THROTTLED = "toomanyrequests: You have reached your pull rate limit. You may increase the limit by authenticating"
LOCKED = "failed to copy: ref layer-sha256:1a2b locked for 3s (since 2026-01-01): unavailable"
NO_MANIFEST = "manifest for docker.io/library/x:1 not found: manifest unknown: manifest unknown"


@attrs.frozen
class Refuses:
    status: int
    message: str


@attrs.frozen
class Fails:
    message: str
    bare: bool = False
    early: bool = False
    """A load's: before its archive was read."""
    cut: bool = False
    """The connection breaks behind it."""


@attrs.frozen
class Silent:
    midway: bool = False


@attrs.frozen
class TakesNothing:
    """Not even the body of a load."""


@attrs.frozen
class Cut:
    midway: bool = True
    clean: bool = False


@attrs.frozen
class Slow:
    seconds: float


@attrs.frozen
class Raw:
    body: bytes
    status: int = 200


Answer: TypeAlias = Refuses | Fails | Silent | TakesNothing | Cut | Slow | Raw


@attrs.define
class FakeEngine:
    """The engine, and what a test sees of it."""

    folder: Path
    images: dict[str, FakeImage] = attrs.field(factory=dict)
    remote: dict[str, FakeImage] = attrs.field(factory=dict)
    in_use: set[str] = attrs.field(factory=set)
    podman: bool = False
    api_version: str = "1.41"
    platform: Platform = AMD64
    kernel: str = ""
    pull_s: float = 0.0
    unpack_s: float = 0.0
    """How long a pull says nothing after its last byte has come."""
    loads_as: str | None = None
    """The name that an archive's image gets, with ``{}`` for its own: ``localhost/{}``; empty: none."""
    calls: Counter[str] = attrs.field(factory=Counter)
    seen: list[Call] = attrs.field(factory=list)
    pulling: int = 0
    most_pulling: int = 0
    hung_up: Counter[str] = attrs.field(factory=Counter)
    """Calls whose client went away before their end."""
    connections: int = 0
    most_connections: int = 0
    torn_loads: int = 0
    """Archives that ended before their end."""
    untagged: list[FakeImage] = attrs.field(factory=list)
    """Images that were loaded without a name."""
    _scripts: dict[str, deque[Answer | None]] = attrs.field(factory=dict)
    _always: dict[str, Answer] = attrs.field(factory=dict)
    _serving: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _listener: trio.socket.SocketType | None = None
    _start: Callable[..., object] = trio.lowlevel.spawn_system_task
    """What starts a task."""

    @property
    def socket(self) -> Path:
        return self.folder / "engine.sock"

    @property
    def address(self) -> str:
        return f"unix://{self.socket}"

    def script(self, kind: str, *answers: Answer | None) -> None:
        """Say how the next calls of a kind are answered, one each; ``None``: as usual."""
        self._scripts.setdefault(kind, deque()).extend(answers)

    def always(self, kind: str, answer: Answer | None) -> None:
        """Say how all calls of a kind are answered that no script answers; ``None``: as usual again."""
        self._always.pop(kind, None)
        if answer is not None:
            self._always[kind] = answer

    def up(self) -> None:
        """Start it, again."""
        self.socket.unlink(missing_ok=True)
        listener = trio.socket.socket(socket.AF_UNIX)
        listener._sock.bind(str(self.socket))  # type: ignore[attr-defined] # without a thread, for any clock
        listener.listen(1024)
        self._listener = listener
        self._serving = trio.CancelScope()
        self._start(self._serve, listener, self._serving)

    def down(self, *, leave_socket: bool = False) -> None:
        """Kill it: no connection is taken any more, and those that are break as soon as other tasks run."""
        assert self._listener is not None
        self._listener.close()
        self._serving.cancel()
        if not leave_socket:
            self.socket.unlink()

    async def _serve(self, listener: trio.socket.SocketType, serving: trio.CancelScope) -> None:
        with serving, listener:
            async with trio.open_nursery() as connections:
                while listener.fileno() != -1:
                    try:
                        taken, _ = await listener.accept()
                    except trio.ClosedResourceError:
                        break
                    connections.start_soon(self._connection, trio.SocketStream(taken))

    async def open_tcp(self) -> str:
        """Listen on a port of the loopback interface, too, as long as the engine is there; the address of that."""
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self._start(self._serve, listener.socket, trio.CancelScope())
        return f"tcp://127.0.0.1:{listener.socket.getsockname()[1]}"

    async def _connection(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.most_connections = max(self.most_connections, self.connections)
        try:
            await self._calls(stream)
        finally:
            self.connections -= 1

    async def _calls(self, stream: trio.SocketStream) -> None:
        async with stream:
            exchange = Exchange(stream, podman=self.podman)
            with suppress(Torn):
                while (call := await exchange.read_call()) is not None:
                    self.calls[call.kind] += 1
                    self.seen.append(call)
                    try:
                        await self._answer(call, exchange)
                    except Gone:
                        self.hung_up[call.kind] += 1
                        return

    async def _answer(self, call: Call, exchange: Exchange) -> None:
        script = self._scripts.get(call.kind)
        answer = script.popleft() if script else self._always.get(call.kind)
        if isinstance(answer, TakesNothing):
            await trio.sleep_forever()
        if not (isinstance(answer, Fails) and answer.early):
            await self._read_body(call, exchange)
        match answer:
            case Refuses(status, message):
                await exchange.refuse(status, message)
            case Raw(body, status):
                await exchange.reply(status, body)
            case Fails(message, bare):
                await _start(call, exchange)
                await exchange.say_error(message, bare=bare or self.podman)
                if answer.cut:
                    raise Torn
                await exchange.end_stream(close=answer.early)
            case Silent() | Cut():
                await _break_off(answer, call, exchange)
            case _:
                await exchange.sleep(0 if answer is None else answer.seconds)
                await self._usual(call, exchange)

    async def _read_body(self, call: Call, exchange: Exchange) -> None:
        try:
            call.body = await exchange.read_body()
        except Torn:
            self.torn_loads += call.kind == "load"
            raise

    async def _usual(self, call: Call, exchange: Exchange) -> None:
        """What an engine does, if it takes the version that is asked for."""
        if call.version is not None and _number(call.version) > _number(self.api_version):
            said = f"client version {call.version} is too new. Maximum supported API version is {self.api_version}"
            await exchange.refuse(400, said)
        else:
            await USUAL[call.kind](self, call, exchange)

    def find(self, name: str) -> FakeImage | None:
        """The image of a name, or of a digest that it came by."""
        asked = canonical(name)
        named = (image for known, image in self.images.items() if known == asked or asked in image.digests)
        return next(named, None)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


async def _start(call: Call, exchange: Exchange) -> None:
    """Begin a stream, of a pull with some progress."""
    await exchange.start_stream()
    if call.kind == "pull":
        detail = {"current": 10, "total": 100}
        await exchange.say({"status": "Downloading", "progressDetail": detail, "id": "0a1b2c3d4e5f"})


async def _break_off(how: Silent | Cut, call: Call, exchange: Exchange) -> None:
    if how.midway:
        await _start(call, exchange)
    if isinstance(how, Silent):
        await exchange.wait_gone()
    elif how.clean:
        await exchange.end_stream()
    else:
        raise Torn


@asynccontextmanager
async def open_fake_engine(**settings: object) -> AsyncIterator[FakeEngine]:
    """An engine that is up while the block runs. *settings* are fields of :class:`FakeEngine`."""
    folder = Path(tempfile.mkdtemp(prefix="engine-"))  # short: the path of a socket has 107 bytes at most
    try:
        engine = FakeEngine(folder, **settings)  # type: ignore[arg-type]
        async with trio.open_nursery() as nursery:
            engine._start = nursery.start_soon
            engine.up()
            yield engine
            nursery.cancel_scope.cancel()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
