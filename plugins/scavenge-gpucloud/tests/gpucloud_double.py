"""RunPod, Vast.ai and Prime Intellect on one loopback port: their lists of instances, and ways for these to go wrong.

Written after the three references: RunPod's ``GET /v1/pods`` is a bare list, Vast's ``GET /api/v1/instances/`` has
pages of at most 25 by a token that names the last id, Prime's ``GET /api/v1/pods/`` has pages by offset, the newest
first.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs

TOKEN = "the-key-that-nobody-may-read"


@attrs.define(eq=False)
class Machine:
    """One rented instance. ``state``: starting, running, going (still up), lost (no heartbeat), stopped."""

    number: int
    port: int = 40000
    state: str = "running"
    name: str = "vllm-1"
    ip: str = "127.0.0.1"
    spot: bool = True
    ends_at: float | None = None
    inside: int = 8000

    @property
    def up(self) -> bool:
        return self.state in ("running", "going", "lost")


def runpod_pod(one: Machine) -> dict[str, Any]:
    status = {"starting": "RUNNING", "stopped": "EXITED"}.get(one.state, "RUNNING")
    runtime_port = {"ip": one.ip, "isIpPublic": True, "privatePort": one.inside, "publicPort": one.port, "type": "tcp"}
    return {
        "id": f"pod{one.number}",
        "name": one.name,
        "desiredStatus": status,
        "image": "vllm/vllm-openai:v0.11.0",
        "interruptible": one.spot,
        "publicIp": one.ip if one.up else "",
        "ports": [f"{one.inside}/tcp", "8888/http"],
        "portMappings": {str(one.inside): one.port, "22": 10022} if one.up else None,
        "gpu": {"id": "NVIDIA H100 80GB HBM3", "count": 2, "displayName": "H100 SXM"},
        "costPerHr": "5.38",
        "env": {"HF_TOKEN": "private"},
        "lastStatusChange": "Rented by User",
        "runtime": {"ports": [runtime_port]} if one.up else None,  # GraphQL only
    }


def vast_instance(one: Machine) -> dict[str, Any]:
    actual = {"starting": "loading", "stopped": "exited", "lost": "offline"}.get(one.state, "running")
    bindings = [{"HostIp": "0.0.0.0", "HostPort": str(one.port)}, {"HostIp": "::", "HostPort": str(one.port)}]
    return {
        "id": one.number,
        "label": one.name,
        "actual_status": actual,
        "intended_status": "running",
        "cur_state": "stopped" if one.state == "going" else "running",
        "next_state": "running",
        "public_ipaddr": f"{one.ip}\n",
        "ports": {f"{one.inside}/tcp": bindings, "9000/udp": [{"HostPort": "1"}]} if one.up else {},
        "gpu_name": "H100 SXM",
        "num_gpus": 2,
        "is_bid": one.spot,
        "start_date": 1.7e9,
        "end_date": one.ends_at,
        "status_msg": "success, running vllm",
    }


def prime_pod(one: Machine) -> dict[str, Any]:
    status = {"starting": "ACTIVE", "stopped": "STOPPED", "going": "DELETING", "lost": "UNKNOWN"}.get(
        one.state, "ACTIVE"
    )
    entry = {
        "internal": str(one.inside),
        "external": str(one.port),
        "protocol": "TCP",
        "usedBy": None,
        "description": None,
    }
    return {
        "id": f"prime-{one.number}",
        "name": one.name,
        "gpuName": "H100_80GB",
        "gpuCount": 2,
        "status": status,
        "createdAt": "2026-01-01T00:00:00Z",
        "providerType": "runpod",
        "installationStatus": "PENDING" if one.state == "starting" else "FINISHED",
        "resources": {"memory": "128"},
        "attachedResources": [],
        "primePortMapping": [entry] if one.up else [],
        "sshConnection": f"root@{one.ip} -p 22" if one.up else [None],
        "ip": one.ip if one.up else [None],
        "priceHr": 1.5,
        "socket": "SXM5",
        "type": "HOSTED",
        "isSpot": one.spot,
    }


Fault = Callable[["Handler"], bool]
"""Answers a request in another way; false lets it be answered as it should."""


class Double:
    """The clouds. ``between_pages`` is called after each page that is not the last."""

    def __init__(self) -> None:
        self.machines: list[Machine] = []
        self.fault: Fault | None = None
        self.between_pages: Callable[[], None] = lambda: None
        self.requests: list[str] = []
        self.url = ""
        self.closing = threading.Event()

    def reset(self) -> None:
        """Forget what a test did."""
        self.machines, self.fault, self.requests, self.between_pages = [], None, [], lambda: None

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        before, self.fault = self.fault, fault
        try:
            yield
        finally:
            self.fault = before

    @contextmanager
    def serve(self) -> Iterator[Double]:
        server = _Server(("127.0.0.1", 0), Handler)
        server.double = self
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield self
        finally:
            self.closing.set()
            server.shutdown()
            server.server_close()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    double: Double

    def handle_error(self, request: object, client_address: object) -> None:
        """Somebody hung up."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5
    server: _Server

    @property
    def double(self) -> Double:
        return self.server.double

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, value: object, **headers: str) -> None:
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def do_GET(self) -> None:
        double, url = self.double, urlsplit(self.path)
        double.requests.append(self.path)
        if double.fault is not None and double.fault(self):
            return
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, {"error": "auth_error", "msg": "Invalid user key"})
            return
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        match url.path:
            case "/v1/pods":
                self.answer(200, [runpod_pod(one) for one in double.machines])
            case "/graphql":
                self.answer(200, {"data": {"myself": {"pods": [runpod_pod(one) for one in double.machines]}}})
            case "/api/v1/instances/":
                self._vast(query)
            case "/api/v1/pods/" | "/api/v1/pods":
                self._prime(query)
            case _:
                self.answer(404, {"detail": "Not Found"})

    def _vast(self, query: dict[str, str]) -> None:
        limit = int(query.get("limit", "25"))
        if limit > 25 or json.loads(query.get("order_by", "[]")) != [{"col": "id", "dir": "asc"}]:
            self.answer(400, {"success": False, "error": "invalid_args", "msg": "limit must be at most 25"})
            return
        after = json.loads(base64.b64decode(query["after_token"]))["values"]["id"] if "after_token" in query else 0
        rest = sorted((one for one in self.double.machines if one.number > after), key=lambda one: one.number)
        page, more = rest[:limit], rest[limit:]
        token = base64.b64encode(json.dumps({"values": {"id": page[-1].number}}).encode()).decode() if more else None
        total = len(self.double.machines)
        instances = [vast_instance(one) for one in page]
        self.answer(200, {"success": True, "instances": instances, "next_token": token, "total_instances": total})
        if more:
            self.double.between_pages()

    def _prime(self, query: dict[str, str]) -> None:
        offset, limit = int(query.get("offset", "0")), int(query.get("limit", "100"))
        newest_first = sorted(self.double.machines, key=lambda one: -one.number)
        page, total = newest_first[offset : offset + limit], len(newest_first)
        self.answer(
            200, {"total_count": total, "offset": offset, "limit": limit, "data": [prime_pod(one) for one in page]}
        )
        if offset + limit < total:
            self.double.between_pages()


# --- faults


def status(code: int, times: int = 10**9, **headers: str) -> Fault:
    """So many requests are answered with this status, in plain text that repeats the key."""
    left = iter(range(times))

    def answer(handler: Handler) -> bool:
        if next(left, None) is None:
            return False
        handler.answer(code, f"API requests too frequent for {TOKEN}", **headers)
        return True

    return answer


def body(text: object, **headers: str) -> Fault:
    """Every request is answered with this, and 200."""

    def answer(handler: Handler) -> bool:
        handler.answer(200, text, **headers)
        return True

    return answer


def cut(handler: Handler) -> bool:
    """The connection ends in the middle of an answer that would be right up to there."""
    handler.send_response(200)
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b"[]")
    handler.close_connection = True
    return True


def reset(handler: Handler) -> bool:
    """The connection ends without an answer."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    handler.close_connection = True
    return True


def silent(handler: Handler) -> bool:
    """There is no answer, and the connection stays."""
    while not handler.double.closing.is_set() and handler.double.fault is silent:
        time.sleep(0.01)
    handler.close_connection = True
    return True


def endless(handler: Handler) -> bool:
    """An answer without an end."""
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    while not handler.double.closing.is_set() and handler.double.fault is endless:
        handler.wfile.write(b'{"instances": "' * 65536)
    return True
