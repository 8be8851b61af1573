"""The store: files of a repository, read and written by ModelScope's SDK in threads of its own.

Decides what is tried again, how often and when: a download goes on where it was cut, an upload begins anew (a blob that
the site has is not sent twice).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

from scavenge.plugin import FileStore, Report, StoreError, Transferred
from scavenge_modelscope.config import ModelScopeConfig

if TYPE_CHECKING:
    from scavenge_modelscope.hub import Hub, Stream

T = TypeVar("T")

THREADS = 8
"""How many calls are in the SDK at a time; those that hang and were left count until they end by themselves."""
CUTS = 5
"""How often in a row a download may be cut without a byte between."""
TRIES = 5
"""How often a file is stored; of two commits at one time the site takes one."""
PAUSE_S = 0.5
PAUSE_MAX_S = 8.0

_RANGE = re.compile(r"bytes (\d+)-.*")


@attrs.define(eq=False)
class ModelScopeFiles:
    """The files of a repository, by their names."""

    _hub: Hub
    _sdk: Any
    """The module with the calls of the SDK: importing it takes long, so it is not imported with the plugin."""
    _limiter: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(THREADS))

    @asynccontextmanager
    async def open_file(self, name: str, start: int = 0) -> AsyncIterator[AsyncIterator[bytes]]:
        """A file's bytes from *start* on, which goes on where a connection broke.

        Raises ``FileNotFoundError`` where the repository does not have it, and :class:`StoreError`. Cancelled, it
        leaves at most one read behind, which ends by itself.
        """
        download = _Download(self, name, start)
        try:
            await download.connect()
            yield download
        finally:
            download.leave()

    async def put_file(self, name: str, file: str, report: Report) -> None:
        """Store the file at the path *file* under a name, in a commit of its own.

        Raises :class:`StoreError`. Cancelled, it may have been stored all the same.
        """
        await trio.lowlevel.checkpoint()
        for tries in range(1, TRIES + 1):
            try:
                await self._put(name, Path(file), report)
            except self._sdk.Passing as exc:
                if tries == TRIES:
                    raise self.error(name, f"not stored after {tries} tries: {exc}") from None
            else:
                return
            await pause(tries)

    async def _put(self, name: str, path: Path, report: Report) -> None:
        def heard(done: int, total: int) -> None:
            trio.from_thread.run_sync(report, Transferred(done, total), trio_token=token)

        token = trio.lowlevel.current_trio_token()
        upload = self._sdk.Upload(heard)
        try:
            await self.call(partial(self._hub.store, name, path, upload))
        finally:
            upload.left.set()

    async def call(self, step: Callable[[], T]) -> T:
        """Make a call in a thread; cancelled, it is left behind there."""
        return await trio.to_thread.run_sync(step, limiter=self._limiter, abandon_on_cancel=True)

    def stream(self, name: str) -> Stream:
        """An answer that is still to be asked for."""
        return self._sdk.Stream(self._hub, name)  # type: ignore[no-any-return]

    @property
    def passing(self) -> type[Exception]:
        """What the calls raise that may go well when they are made again."""
        return self._sdk.Passing  # type: ignore[no-any-return]

    def error(self, name: str, what: str) -> StoreError:
        """What is told of a file."""
        return StoreError(f"{self._hub.config.where}: {name}: {what}")


@attrs.define(eq=False)
class _Download:
    """The bytes of a file, over as many answers as it takes.

    Invariant: ``at`` is how much of the file is behind what was given out; ``_skip`` bytes of the answer come before.
    """

    files: ModelScopeFiles
    name: str
    at: int
    _stream: Stream | None = attrs.field(default=None, init=False)
    _skip: int = attrs.field(default=0, init=False)
    _begun: bool = attrs.field(default=False, init=False)
    _cuts: int = attrs.field(default=0, init=False)

    def __aiter__(self) -> _Download:
        return self

    async def __anext__(self) -> bytes:
        while True:
            stream = self._stream or await self.connect()
            try:
                piece = await self.files.call(stream.read)
            except self.files.passing as exc:
                await self._recover(exc)
                continue
            if not piece:
                raise StopAsyncIteration
            if fresh := piece[self._skip :]:
                self._skip, self._cuts = 0, 0
                self.at += len(fresh)
                return fresh
            self._skip -= len(piece)

    async def connect(self) -> Stream:
        """Have an answer whose body begins in the right place."""
        while True:
            self._stream = self.files.stream(self.name)
            try:
                response = await self.files.call(partial(self._stream.connect, self.at))
            except FileNotFoundError:
                if self._begun:
                    raise self.files.error(self.name, "it was taken away while it was read") from None
                raise
            except self.files.passing as exc:
                await self._recover(exc)
            else:
                self._skip = self._behind(response.status_code, response.headers.get("Content-Range", ""))
                self._begun = True
                return self._stream

    def _behind(self, status: int, part: str) -> int:
        """How much of an answer's body was given out before."""
        if status != 206:
            return self.at
        place = _RANGE.fullmatch(part)
        if place is None or int(place[1]) != self.at:
            raise self.files.error(self.name, f"not the part that was asked for, from byte {self.at} on")
        return 0

    async def _recover(self, exc: Exception) -> None:
        self._cuts += 1
        self.leave()
        if self._cuts > (CUTS if self._begun else 1):
            raise self.files.error(self.name, f"{exc}; tried {self._cuts} times") from None
        await pause(self._cuts)

    def leave(self) -> None:
        """Close what is open. Never waits."""
        if self._stream is not None:
            self._stream.leave()
            self._stream = None


async def pause(tries: int) -> None:
    """Wait before the next try."""
    await trio.sleep(min(PAUSE_MAX_S, PAUSE_S * 2.0 ** (tries - 1)))


@asynccontextmanager
async def open_modelscope(config: ModelScopeConfig) -> AsyncIterator[FileStore]:
    """The store in the configured repository. Nothing is asked yet.

    Raises :class:`StoreError` for a token that is not there.
    """
    token = config.token()
    sdk = await trio.to_thread.run_sync(import_module, "scavenge_modelscope.hub")
    with tempfile.TemporaryDirectory(prefix="scavenge-modelscope-") as folder:  # a few small files of the SDK
        hub = await trio.to_thread.run_sync(sdk.Hub, config, token, folder)
        try:
            yield FileStore(ModelScopeFiles(hub, sdk))
        finally:
            hub.close()
