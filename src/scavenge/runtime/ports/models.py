"""The protocols that the edge, the plugins and the environments implement. Nothing here waits or decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, ParamSpec, Protocol, TypeAlias, TypeVar

from scavenge.core.flow import Stream
from scavenge.core.worker_messages import FromWorker, ToWorker
from scavenge.images import (
    DeliveryEnd,
    DiskRoom,
    EngineInfo,
    ImageFacts,
    ImageRecord,
    LocalImage,
    Platform,
    RemovalEnd,
    Transferred,
)
from scavenge.listings import Listing
from scavenge.rollouts import Example, Rollout
from scavenge.signals import ServerLoad
from scavenge.types import Answer, ChatRequest, Completion, Endpoint, Healthy, Json, Messages, Outcome

P = ParamSpec("P")
T = TypeVar("T")
Report: TypeAlias = Callable[[Transferred], None]
"""Is told now and then how far a transfer is; neither waits nor raises."""


class EndpointSource(Protocol):
    """Says which endpoints should exist."""

    async def list_endpoints(self) -> Listing:
        """The endpoints as they are listed now.

        Raises :class:`scavenge.SourceError` (or anything) when it cannot say: the last listing stands. Cancelled at any
        checkpoint, it leaves nothing behind.
        """
        ...


class ModelClient(Protocol):
    """Talks to one endpoint. Its connections live until :meth:`close`."""

    @property
    def heard_at(self) -> float:
        """When a byte last came from the server itself, on any connection (Trio's clock); minus infinity: never.

        A connection that was taken is no such sign: the kernel takes it for a process that is frozen.
        """
        ...

    @property
    def reached_at(self) -> float:
        """When its host last gave any sign: a byte, or a connection that it took, refused or reset."""
        ...

    async def ask(self, request: ChatRequest, stream: Stream | None = None) -> Answer:
        """Send one request and wait for the whole reply. What goes wrong is an outcome, never an exception.

        What comes of a streamed reply is noted in *stream* as it comes. Cancellation closes the connection, so that the
        server stops generating.
        """
        ...

    async def probe(self, path: str) -> Healthy | Outcome:
        """Ask ``GET {url}{path}`` whether the server is there and lists the model; the caller sets the deadline."""
        ...

    async def read_load(self) -> ServerLoad | None:
        """The server's own figures, as far as it tells any; ``None``: it tells none. The caller sets the deadline."""
        ...

    def close(self) -> None:
        """Close the idle connections at once; those in use close when their exchange ends. Never waits."""
        ...


class ModelTransport(Protocol):
    """Makes clients."""

    def open_client(self, endpoint: Endpoint) -> ModelClient:
        """A client for one endpoint's present settings; whoever calls this closes it."""
        ...


class ModelSession(Protocol):
    """What a rollout sees of the model."""

    @property
    def base_url(self) -> str:
        """Where a foreign OpenAI client finds the model, as this rollout; good until the rollout ends.

        Raises :class:`scavenge.UsageError` where no gateway is open.
        """
        ...

    @property
    def api_key(self) -> str:
        """The key that goes with :attr:`base_url`."""
        ...

    async def chat(self, messages: Messages, **options: object) -> Completion:
        """One request, retried as often as the run allows.

        Raises :class:`scavenge.RequestFailed` when it cannot be answered. Cancelled, it gives back its slot.
        """
        ...


class SyncModelSession(Protocol):
    """What a rollout of an environment with ``backend = "sync"`` sees of the model.

    versionadded: 0.1
    """

    @property
    def base_url(self) -> str:
        """Where a foreign OpenAI client finds the model, as this rollout; good until the rollout ends."""
        ...

    @property
    def api_key(self) -> str:
        """The key that goes with :attr:`base_url`."""
        ...

    def chat(self, messages: Messages, **options: object) -> Completion:
        """One request, retried as often as the run allows; blocks.

        Raises :class:`scavenge.RequestFailed` when it cannot be answered. Once the rollout is cancelled, it raises at
        once, and so does every later call.
        """
        ...


def _plain_too(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Awaitable[T] | T]:
    """For type checkers: a subclass may have a plain function instead, which ``backend = "sync"`` asks for."""
    return function


def _plain_or_super(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, Any]:
    """The same for what a subclass calls by ``super()``: where the own one is awaited, so is the base's."""
    return function


class Environment:
    """What is evaluated: examples, and how one is played out and scored. Subclass it, or give the same names.

    With ``backend = "sync"``, ``play``, ``open`` and ``close`` are plain functions; else they are coroutine functions.

    versionadded: 0.1
    """

    multi_turn: ClassVar[bool] = True
    """Whether a rollout may call the model more than once."""
    backend: ClassVar[str] = "trio"
    """``trio``; ``asyncio`` and ``sync`` are played in worker processes."""
    in_worker: ClassVar[bool] = False
    """Whether it asks for a worker process of its own accord."""

    def examples(self) -> Iterable[Example]:
        """The dataset as a stream; read in a thread, so it may block. Ids are unique."""
        raise NotImplementedError(f"{type(self).__name__} has no examples of its own")

    def identity(self) -> Mapping[str, object]:
        """What changes its results beside its arguments, such as a digest of its data; values are texts and numbers.

        Called once in each process that makes the environment, before it is opened and in no event loop, so it may
        block. A run is resumed only where it is the same.
        """
        return {}

    def images(self, example: Example) -> Iterable[str]:
        """References of the container images that a rollout of *example* needs, such as ``python:3.12``.

        Called where the examples are read. They are on this machine before ``play`` is called.
        """
        return ()

    @_plain_too
    async def play(self, example: Example, model: Any) -> Rollout:
        """Play one example out and score it. What it raises is this rollout's error.

        ``model`` is a :class:`ModelSession`, with ``backend = "sync"`` a :class:`SyncModelSession`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no play of its own")

    @_plain_or_super
    async def open(self) -> None:
        """Called once before the first rollout."""

    @_plain_or_super
    async def close(self) -> None:
        """Called once after the last rollout, also when the run is cancelled (then for two seconds at most)."""


class ModelDoor(Protocol):
    """Where requests for the model come in from outside, each for the rollout whose session it names."""

    async def chat(self, session_id: str, messages: Messages, options: Json) -> Completion:
        """One request of a session's rollout, as :meth:`ModelSession.chat` would make it.

        Raises :class:`scavenge.errors.UnknownSession` when there is no such session, or when it ends meanwhile, and
        what :meth:`ModelSession.chat` raises. Cancelled, it gives back its slot.
        """
        ...


class WorkerProcess(Protocol):
    """One worker process, from its start to its end. What it says is untrusted: it runs foreign code."""

    @property
    def pid(self) -> int:
        """The number of the process."""
        ...

    @property
    def log_file(self) -> str:
        """The file with what it prints, relative to the run's folder."""
        ...

    async def send(self, message: ToWorker) -> None:
        """Send a message; one at a time. To a process that is gone it goes nowhere, without an error."""
        ...

    async def receive(self) -> FromWorker | None:
        """The next message; ``None`` after the last: the process is gone, and all that it had written has been read.

        Raises :class:`scavenge.core.frames.BadFrame` for what is no message, after which nothing more is read.
        Cancelled, it has lost nothing: the next call goes on.
        """
        ...

    async def wait_end(self) -> str:
        """Wait until the process is gone, and say how in a few words: ``exit code 3``, ``SIGSEGV``."""
        ...

    def kill(self) -> None:
        """Kill it and its process group at once. Never waits."""
        ...

    def cpu_s(self) -> float | None:
        """How much processor time it has used; ``None`` where the system does not tell."""
        ...

    def log_tail(self) -> str:
        """The end of what it has printed, a few lines, read within bounds; empty when there is nothing."""
        ...


class WorkerLauncher(Protocol):
    """Starts worker processes."""

    def open_worker(self, name: str) -> AbstractAsyncContextManager[WorkerProcess]:
        """A process while the block runs; *name* tells it from others in the names of its files.

        Entering raises :class:`scavenge.errors.CannotSpawn`. Leaving, however, kills what is left of its group.
        """
        ...


class ImageEngine(Protocol):
    """A container engine on this machine. Names are canonical (see :mod:`scavenge.images`).

    Every call raises :class:`scavenge.errors.EngineError` when it cannot be carried out, with ``silent`` set when the
    engine is not there, or says nothing in time; cancelled, it has closed its connection, which ends a pull or a load.
    """

    async def info(self) -> EngineInfo:
        """What it is, where, and what its images have to be for."""
        ...

    async def list_images(self) -> Sequence[LocalImage]:
        """All images that it has."""
        ...

    async def inspect(self, image: str) -> ImageFacts | None:
        """One image; ``None``: it is not there."""
        ...

    async def pull(self, image: str, platform: Platform, report: Report) -> DeliveryEnd:
        """Have the engine fetch *image* from the registry in its name, with the credentials for that.

        What goes wrong is an end, never an exception. That it is there under its name is not checked here.
        """
        ...

    async def load(self, archive: AsyncIterator[bytes], platform: Platform) -> DeliveryEnd:
        """Have the engine take in a Docker archive with one image. What *archive* raises ends it, and is raised."""
        ...

    async def tag(self, image: str, name: str) -> None:
        """Give an image another name."""
        ...

    async def remove(self, image: str) -> RemovalEnd:
        """Take a name away, and with its last name the image. What is not there is removed. Never forced."""
        ...

    def save(self, image: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The image as a Docker archive, as a stream. Leaving the block early ends it."""
        ...

    def disk(self) -> DiskRoom | None:
        """The disk of its images; ``None`` where it cannot be seen from here. Known once ``info`` was read. Blocks."""
        ...


class ImageSource(Protocol):
    """A way for images to come to the engine. The pool tries them in order."""

    @property
    def label(self) -> str:
        """What it is called in messages: ``shipments``, ``mirror registry.example:5000/hub``, ``store "lab"``."""
        ...

    def lane(self, image: str) -> str:
        """What is throttled and counted together: a registry's host, a store's label."""
        ...

    async def deliver(self, image: str, report: Report) -> DeliveryEnd:
        """Bring an image into the engine under its canonical name, and check that it is what it should be.

        What goes wrong is an end, never an exception. Cancelled, it may leave layers in the engine, and no name.
        """
        ...


class ImageLedger(Protocol):
    """Keeps on disk what this process brought and what it needs, so that what it leaves behind can be removed.

    Calls block (a small write), raise nothing, and may come from any thread, one at a time.
    """

    def need(self, images: Sequence[str]) -> None:
        """Claim images, so that no other process removes them; the claims end with this process."""
        ...

    def bring(self, image: str) -> None:
        """Note that an image is not there and will be brought. On disk before it returns."""
        ...

    def let_go(self, image: str) -> None:
        """Note that an image that was brought is gone, or is not ours to remove any more."""
        ...

    def is_needed_elsewhere(self, image: str) -> bool:
        """Whether another process that lives claims it."""
        ...


class ImageStore(Protocol):
    """A place with archives of container images, each with its :class:`scavenge.images.ImageRecord`.

    Calls raise :class:`scavenge.plugin.StoreError` (or anything) when they cannot be carried out; cancelled, they leave
    nothing that :meth:`find` would find, unless it is whole. A record with an empty ``sha256`` is that of a store which
    checks what it gives; its ``archive`` is then whatever the store likes.

    versionadded: 0.1
    """

    async def find(self, image: str, platform: str) -> ImageRecord | None:
        """The record of an image for a platform such as ``linux/amd64``; ``None``: it is not there."""
        ...

    def open_archive(self, record: ImageRecord) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The archive's file, from its first byte on, as it is stored. It is checked by whoever reads it."""
        ...

    async def put(self, record: ImageRecord, archive: str, report: Report) -> None:
        """Store the file at the path *archive* and its record; only when all is there is it found."""
        ...


class StoreFiles(Protocol):
    """Files by their names, such as ``astropy-1a2b3c.tar``: what a store of the usual layout is made of.

    Names have letters, digits and ``.-_/`` only. Calls raise anything when they cannot be carried out.

    versionadded: 0.1
    """

    def open_file(self, name: str, start: int = 0) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """A file's bytes from *start* on. Entering raises ``FileNotFoundError`` where there is no such file."""
        ...

    async def put_file(self, name: str, file: str, report: Report) -> None:
        """Store the file at the path *file* under a name; one that is there is replaced, and never seen half."""
        ...


class ResultLog(Protocol):
    """Where finished rollouts are written."""

    def append(self, lines: Sequence[bytes]) -> None:
        """Write whole lines and put them on disk before returning. Called in a thread, one call at a time.

        Raises :class:`scavenge.errors.ResultsError`, after which the file holds whole lines only.
        """
        ...


class Threads(Protocol):
    """Runs what blocks somewhere else than in the event loop. Tests on a virtual clock run it in place instead."""

    async def run(self, step: Callable[[], T], *, abandon_on_cancel: bool = False) -> T:
        """Call *step* in a thread and wait for it.

        Cancelled, it waits for *step* all the same, unless *abandon_on_cancel* says that nobody needs its result.
        """
        ...


class AdmissionPolicy(Protocol):
    """Decides how many requests one endpoint may have in flight. Pure: it is told what happens and what time it is.

    A policy may have two things more. ``wants_load = True`` has it hear of :class:`scavenge.signals.ServerLoad`, which
    is read from the server every few seconds. ``view(now) -> GateView`` says what it knows, for people and for the
    gates of endpoints that join later; without it only the limit is shown.
    """

    def observe(self, event: Any, now: float) -> None:
        """Hear of something that happened on the endpoint; :mod:`scavenge.signals` says what, and in which order.

        An event of a kind that it does not know is ignored.
        """
        ...

    def limit(self, now: float) -> int:
        """The number of requests that may be in flight, at least 1."""
        ...

    def next_wake_at(self, now: float) -> float | None:
        """When to be told of the :class:`scavenge.signals.Flow` since the last time; ``None``: not yet.

        It is told nothing while nothing is in flight. After it was told, the next instant must lie in the future.
        """
        ...
