"""A server that answers every chat completion with the same bytes, as cheaply as Python can.

``python benchmarks/canned_server.py PORT [DELAY_S]`` serves until it is killed; it prints ``ready`` once it listens.
"""

from __future__ import annotations

import asyncio
import sys

BODY = (
    b'{"id":"x","object":"chat.completion","created":1,"model":"sim","choices":[{"index":0,"message":{"role":'
    b'"assistant","content":"' + b"word " * 250 + b'42"},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,'
    b'"completion_tokens":250,"total_tokens":270}}'
)
REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
MODELS = b'{"object":"list","data":[{"id":"sim","object":"model"}]}'
LISTING = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(MODELS), MODELS)


class Canned(asyncio.Protocol):
    """One connection: counts the bytes of each request and answers it after the delay."""

    delay_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.data) < end + 4 + length:
                return
            self.data = self.data[end + 4 + length :]
            reply = LISTING if head.startswith(b"get") else REPLY
            asyncio.get_running_loop().call_later(self.delay_s, self.transport.write, reply)


async def main(port: int, delay_s: float) -> None:
    Canned.delay_s = delay_s
    server = await asyncio.get_running_loop().create_server(Canned, "127.0.0.1", port, backlog=4096)
    print("ready", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
