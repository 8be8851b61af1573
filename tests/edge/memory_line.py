"""A connection to the gateway in memory, for tests on a virtual clock."""

from __future__ import annotations

import trio


class MemoryLine:
    """A client in memory: sends *data*, and then nothing; takes *size* bytes at a time, each after *takes_s*."""

    def __init__(self, data: bytes = b"", *, size: int = 10**9, takes_s: float = 0.0) -> None:
        self.data, self.size, self.takes_s = data, size, takes_s
        self.fails_after = 10**9
        self.taken = b""
        self.reads = 0
        self.closed = self.ended = self.ending = False
        self.ready = takes_s == 0
        self.more = trio.Event()

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        self.reads += 1
        while not self.data and not self.ending:
            self.more = trio.Event()
            await self.more.wait()
        data, self.data = self.data, b""
        return data

    def send_nowait(self, data: bytes) -> int:
        if len(self.taken) >= self.fails_after:
            raise BrokenPipeError
        if not self.ready:
            return 0
        self.ready = self.takes_s == 0
        self.taken += bytes(data[: self.size])
        return min(self.size, len(data))

    async def wait_writable(self) -> None:
        await trio.sleep(self.takes_s)
        self.ready = True

    def is_quiet(self) -> bool:
        return not self.data

    def end(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    def send(self, data: bytes) -> None:
        """Have more come from the client; nothing: its end."""
        self.data, self.ending = self.data + data, not data
        self.more.set()
