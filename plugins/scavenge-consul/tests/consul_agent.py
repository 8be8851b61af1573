"""A stand-in for a Consul agent: its HTTP API for the catalogue, health, maintenance and the key-value store.

    python consul_agent.py [--port N] [--tls CERTIFICATE_AND_KEY [CLIENTS_CA]]

prints its port, and answers until it is killed. It keeps what clients of blocking queries rely on: an index for each
service (changed by its instances, its checks and those of their nodes, and by nothing else), the index of the last
departure for a service without instances, an index that is never 0, a wait with up to a sixteenth more, 404 with an
index for a key that is not there, filtered reads for callers that may not see everything, of which only callers with a
token are told, and 500 without a leader unless the read may be stale. ``PUT /_ctl`` makes it fail in many ways.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import random
import re
import select
import socket
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

DATACENTER = "dc1"
AGENT_NODE = "agent-node"
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
NAMES = {name.lower(): name for name in (
    "Address", "Check", "CheckID", "Checks", "Datacenter", "Definition", "ID", "Meta", "Name", "Node", "NodeMeta",
    "Notes", "Output", "Port", "Service", "ServiceID", "ServiceName", "Status", "TTL", "Tags",
)}  # fmt: skip


class Refused(Exception):
    """An answer that is not 200."""

    def __init__(self, status: int, text: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(status, text)
        self.status, self.text, self.headers = status, text, headers or {}


def duration_s(text: str) -> float:
    """Go's durations, as far as clients write them."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(us|ms|s|m|h)", text)
    if "".join(number + unit for number, unit in parts) != text or not parts:
        raise Refused(400, "Invalid wait time")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def named(value: Any) -> Any:
    """Consul takes keys of JSON in any case; the keys inside of a ``Meta`` are the user's."""
    if isinstance(value, list):
        return [named(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        NAMES.get(key.lower(), key): inner if key.lower() in ("meta", "nodemeta") else named(inner)
        for key, inner in value.items()
    }


class Catalogue:
    """What Consul knows. Every method is called with ``changed`` held."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.counts = {"requests": 0, "blocked": 0}
        self.epoch = 0
        """Goes up when the store is replaced, which wakes every blocked query."""
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.epoch += 1
        self.index = 10
        self.nodes: dict[str, dict[str, Any]] = {AGENT_NODE: {"Address": "127.0.0.1", "Meta": {}}}
        self.services: dict[tuple[str, str], dict[str, Any]] = {}
        self.checks: dict[tuple[str, str], dict[str, Any]] = {}
        self.service_index: dict[str, int] = {}
        self.departed_index = 10
        self.kv: dict[str, dict[str, Any]] = {}
        self.deleted_index = 10
        self.leader = True
        self.tokens: dict[str, list[str] | None] = {}
        """The nodes that a token may see, ``None``: all and everything. Without tokens there are no ACLs."""
        self.fault: dict[str, Any] = {}
        self.seen: list[str] = []
        self.heard: dict[str, str] = {}

    def bump(self, services: set[str] | None = None) -> int:
        self.index += 1
        self.service_index |= dict.fromkeys(services or (), self.index)
        self.changed.notify_all()
        return self.index

    def services_of(self, node: str, service_id: str = "") -> set[str]:
        mine = {key: one for key, one in self.services.items() if key[0] == node and service_id in ("", key[1])}
        return {one["Service"] for one in mine.values()}

    def register(self, node: str, body: dict[str, Any]) -> None:
        name, next_index = body.get("Name") or body.get("Service"), self.index + 1
        if not name:
            raise Refused(400, "Missing service name")
        service_id = body.get("ID") or name
        old = self.services.get((node, service_id), {})
        self.services[node, service_id] = {
            "ID": service_id, "Service": name, "Tags": body.get("Tags") or [], "Address": body.get("Address") or "",
            "Meta": body.get("Meta") or None, "Port": body.get("Port") or 0, "Weights": {"Passing": 1, "Warning": 1},
            "EnableTagOverride": False, "CreateIndex": old.get("CreateIndex", next_index), "ModifyIndex": next_index,
        }  # fmt: skip
        for number, check in enumerate(filter(None, [body.get("Check"), *(body.get("Checks") or [])])):
            self.check(node, {"CheckID": f"service:{service_id}:{number}", **check, "ServiceID": service_id})
        self.bump({name})

    def check(self, node: str, body: dict[str, Any]) -> None:
        check_id, service_id = body.get("CheckID") or body["Name"], body.get("ServiceID") or ""
        self.checks[node, check_id] = {
            "Node": node, "CheckID": check_id, "Name": body.get("Name") or check_id, "Notes": body.get("Notes") or "",
            "Status": body.get("Status") or "critical", "Output": body.get("Output") or "", "ServiceID": service_id,
            "ServiceName": self.services.get((node, service_id), {}).get("Service", ""),
        }  # fmt: skip
        self.bump(self.services_of(node, service_id))

    def drop_check(self, node: str, check_id: str) -> None:
        if (check := self.checks.pop((node, check_id), None)) is not None:
            self.bump(self.services_of(node, check["ServiceID"]))

    def set_status(self, node: str, check_id: str, status: str) -> None:
        if (node, check_id) not in self.checks:
            raise Refused(
                404, f'Unknown check ID "{check_id}". Ensure that the check ID is passed, not the check name.'
            )
        self.check(node, {**self.checks[node, check_id], "Status": status})

    def deregister(self, node: str, service_id: str) -> None:
        service = self.services.pop((node, service_id), None)
        for key in [key for key, one in self.checks.items() if key[0] == node and one["ServiceID"] == service_id]:
            del self.checks[key]
        if service is not None:
            index = self.bump({service["Service"]})
            if not any(one["Service"] == service["Service"] for one in self.services.values()):
                self.departed_index = index

    def instances(self, name: str, tags: list[str], passing: bool) -> tuple[int, list[dict[str, Any]]]:
        found = [(key, one) for key, one in sorted(self.services.items()) if one["Service"] == name]
        index = self.service_index[name] if found else self.departed_index
        entries = [self.entry(*key) for key, one in found if all(tag in one["Tags"] for tag in tags)]
        if passing:
            entries = [one for one in entries if all(check["Status"] == "passing" for check in one["Checks"])]
        return index, entries

    def entry(self, node: str, service_id: str) -> dict[str, Any]:
        checks = [one for key, one in self.checks.items() if key[0] == node and one["ServiceID"] in ("", service_id)]
        return {
            "Node": {"ID": "", "Node": node, "Datacenter": DATACENTER, **self.nodes[node]},
            "Service": self.services[node, service_id],
            "Checks": checks,
        }

    def value(self, key: str) -> tuple[int, list[dict[str, Any]]]:
        found = self.kv.get(key)
        return (self.deleted_index, []) if found is None else (found["ModifyIndex"], [found])

    def store(self, key: str, value: bytes) -> None:
        index = self.bump()
        created = self.kv.get(key, {}).get("CreateIndex", index)
        text = base64.b64encode(value).decode()
        self.kv[key] = {
            "Key": key,
            "Value": text,
            "Flags": 0,
            "LockIndex": 0,
            "CreateIndex": created,
            "ModifyIndex": index,
        }

    def delete(self, key: str) -> None:
        self.kv.pop(key, None)
        self.deleted_index = self.bump()

    def restore(self, index: int, *, empty: bool) -> None:
        """Put an older state in the place of this one."""
        self.index = index
        if empty:
            self.services, self.checks = {}, {}
        self.departed_index = self.deleted_index = index
        self.service_index = {name: min(one, index) for name, one in self.service_index.items()}
        self.epoch += 1
        self.changed.notify_all()


class Exchange(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Agent

    def do_GET(self) -> None:
        self.answer("GET")

    def do_PUT(self) -> None:
        self.answer("PUT")

    def do_DELETE(self) -> None:
        self.answer("DELETE")

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def answer(self, method: str) -> None:
        state = self.server.state
        parts = urlsplit(self.path)
        self.query = parse_qs(parts.query, keep_blank_values=True)
        self.names = [unquote(one) for one in parts.path.split("/")[1:]]
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.names == ["_ctl"]:
            self.say(200, self.control())
            return
        with state.changed:
            state.counts["requests"] += 1
            state.seen = [*state.seen[-19:], f"{method} {self.path}"]
            state.heard = {name.lower(): value for name, value in self.headers.items()}
        try:
            value, headers = self.route(method)
            status = 200
        except Refused as exc:
            status, value, headers = exc.status, exc.text.encode(), exc.headers
        except ConnectionError:
            self.close_connection = True
            return
        self.say(status, value, headers, state.fault)

    # --- what is answered

    def route(self, method: str) -> tuple[Any, dict[str, str]]:
        state, names = self.server.state, self.names
        self.limit = self.seen_nodes()
        match method, names:
            case "GET", ["v1", "status", "leader"]:
                return ("127.0.0.1:8300" if state.leader else ""), {}
            case "GET", ["v1", "health", "service", name]:
                tags, passing = self.query.get("tag", []), "passing" in self.query
                return self.blocking(lambda: state.instances(name, tags, passing))
            case "GET", ["v1", "kv", *key]:
                return self.stored("/".join(key))
            case "PUT" | "DELETE", ["v1", *rest]:
                with state.changed:
                    if self.limit is not None:
                        raise Refused(403, "Permission denied: token lacks permission 'service:write'")
                    return self.change(method, rest), {}
        raise Refused(404, "Invalid URL path: not a recognized HTTP API endpoint")

    def stored(self, key: str) -> tuple[Any, dict[str, str]]:
        if self.limit is not None:
            raise Refused(403, f"Permission denied: token lacks permission 'key:read' on \"{key}\"")
        found, headers = self.blocking(lambda: self.server.state.value(key))
        if not found:
            raise Refused(404, "", headers)
        return (base64.b64decode(found[0]["Value"]) if "raw" in self.query else found), headers

    def change(self, method: str, names: list[str]) -> Any:
        state, body = self.server.state, named(json.loads(self.body or b"{}")) if names[0] != "kv" else self.body
        statuses = {"pass": "passing", "warn": "warning", "fail": "critical"}
        match names:
            case ["kv", *key]:
                state.store("/".join(key), body) if method == "PUT" else state.delete("/".join(key))
                return True
            case ["agent", "service", "register"]:
                state.register(AGENT_NODE, body)
            case ["agent", "service", "deregister", service_id]:
                if (AGENT_NODE, service_id) not in state.services:
                    raise Refused(404, f'Unknown service ID "{service_id}".')
                state.deregister(AGENT_NODE, service_id)
            case ["agent", *service, "maintenance"] | ["agent", "service", "maintenance", *service]:
                self.maintain("".join(service))
            case ["agent", "check", "register"]:
                state.check(AGENT_NODE, body)
            case ["agent", "check", word, check_id] if word in statuses:
                state.set_status(AGENT_NODE, check_id, statuses[word])
            case ["catalog", "register"]:
                self.register(body)
            case ["catalog", "deregister"]:
                state.deregister(body["Node"], body["ServiceID"])
            case _:
                raise Refused(404, "Invalid URL path: not a recognized HTTP API endpoint")
        return None

    def register(self, body: dict[str, Any]) -> None:
        """A node, with a service and checks, from outside."""
        state, node = self.server.state, body["Node"]
        state.nodes[node] = {"Address": body["Address"], "Meta": body.get("NodeMeta") or {}}
        if body.get("Service"):
            state.register(node, body["Service"])
        for check in filter(None, [body.get("Check"), *(body.get("Checks") or [])]):
            state.check(node, check)

    def maintain(self, service_id: str) -> None:
        """Begin or end the maintenance of a service, or of the node."""
        check_id = f"_service_maintenance:{service_id}" if service_id else "_node_maintenance"
        if self.query.get("enable") == ["true"]:
            notes = self.query.get("reason", [""])[0]
            check = {"CheckID": check_id, "ServiceID": service_id, "Status": "critical", "Notes": notes}
            self.server.state.check(AGENT_NODE, check)
        else:
            self.server.state.drop_check(AGENT_NODE, check_id)

    # --- who asks, and for how long

    def seen_nodes(self) -> list[str] | None:
        """The nodes that the caller may see; ``None``: all."""
        tokens = self.server.state.tokens
        self.token = self.headers.get("X-Consul-Token") or ""
        if not tokens:
            return None
        if self.token and self.token not in tokens:
            raise Refused(403, "ACL not found")
        return tokens.get(self.token, [])

    def blocking(self, read: Any) -> tuple[Any, dict[str, str]]:
        state = self.server.state
        index, wait_s = self.options()
        with state.changed:
            self.need_leader()
            found_index, value = read()
            if index > 0:
                state.counts["blocked"] += 1
                try:
                    found_index, value = self.hold(read, index, time.monotonic() + wait_s)
                finally:
                    state.counts["blocked"] -= 1
            return self.filtered(value, found_index)

    def options(self) -> tuple[int, float]:
        text = self.query.get("index", ["0"])[0]
        if not text.isdecimal():
            raise Refused(400, "Invalid index")
        wait_s = min(duration_s(self.query["wait"][0]) if "wait" in self.query else 300.0, 600.0) or 300.0
        if "stale" in self.query and "consistent" in self.query:
            raise Refused(400, "Cannot specify ?stale with ?consistent, conflicting semantics.")
        if "ns" in self.query:
            raise Refused(400, 'Invalid query parameter: "ns" - Namespaces are a Consul Enterprise feature')
        if self.query.get("dc", [DATACENTER]) != [DATACENTER]:
            raise Refused(500, "No path to datacenter")
        return int(text), wait_s * (1 + random.random() / 16)

    def hold(self, read: Any, index: int, until: float) -> tuple[int, Any]:
        state = self.server.state
        epoch = state.epoch
        while True:
            self.need_leader()
            found_index, value = read()
            left_s = until - time.monotonic()
            if found_index > index or epoch != state.epoch or left_s <= 0 or state.fault:
                return found_index, value
            state.changed.wait(min(left_s, 0.02))
            if select.select([self.connection], [], [], 0)[0]:
                raise ConnectionAbortedError("the client hung up")

    def need_leader(self) -> None:
        if not self.server.state.leader and "stale" not in self.query:
            raise Refused(500, "No cluster leader")

    def filtered(self, value: Any, index: int) -> tuple[Any, dict[str, str]]:
        state = self.server.state
        headers = {
            "X-Consul-Index": str(max(1, index)),
            "X-Consul-KnownLeader": "true" if state.leader else "false",
            "X-Consul-LastContact": "0",
            "X-Consul-Default-Acl-Policy": "deny" if state.tokens else "allow",
        }
        if self.limit is not None:
            visible = [one for one in value if one["Node"]["Node"] in self.limit]
            if self.token and len(visible) < len(value):
                headers["X-Consul-Results-Filtered-By-ACLs"] = "true"
            value = visible
        return value, headers

    # --- how it is said

    def say(self, status: int, value: Any, headers: dict[str, str] | None = None, fault: Any = None) -> None:
        fault, body = fault or {}, value if isinstance(value, bytes) else json.dumps(value).encode()
        if "body" in fault:
            body = fault["body"].encode() * fault.get("times", 1)
        told = {"Content-Type": "application/json", "Content-Length": len(body), **(headers or {})}
        told |= fault.get("headers", {})
        head = f"HTTP/1.1 {fault.get('status', status)} Said\r\n"
        head += "".join(f"{name}: {text}\r\n" for name, text in told.items() if text is not None) + "\r\n"
        if self.headers.get("Connection", "").lower() == "close":
            self.close_connection = True
        self.write(head.encode() + body, fault.get("manner"))

    def write(self, data: bytes, manner: str | None) -> None:
        with contextlib.suppress(OSError):
            match manner:
                case "hang":
                    select.select([self.connection], [], [], 60)
                    self.close_connection = True
                case "cut":
                    self.wfile.write(data[: len(data) - 1])
                    self.connection.shutdown(socket.SHUT_RDWR)
                case "drip":
                    for byte in data:
                        self.wfile.write(bytes([byte]))
                        time.sleep(0.2)
                case _:
                    self.wfile.write(data)

    # --- control

    def control(self) -> dict[str, Any]:
        state, orders = self.server.state, json.loads(self.body or b"{}")
        with state.changed:
            for name in ("leader", "tokens", "fault"):
                if name in orders:
                    setattr(state, name, orders[name])
            if "restore" in orders:
                state.restore(orders["restore"], empty=orders.get("empty", False))
            if orders.get("wake"):
                state.epoch += 1
            state.changed.notify_all()
            if orders.get("reset"):
                state.reset()
            if orders.get("drop"):
                self.server.drop(self.connection)
            return {**state.counts, "index": state.index, "seen": state.seen, "heard": state.heard}


class Agent(ThreadingHTTPServer):
    """The server; one thread a connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, tls: list[str]) -> None:
        super().__init__(("127.0.0.1", port), Exchange)
        self.state = Catalogue()
        self.open: set[socket.socket] = set()
        self.context = None
        if tls:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(tls[0])
            if tls[1:]:
                self.context.load_verify_locations(tls[1])
                self.context.verify_mode = ssl.CERT_REQUIRED

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        if self.context is not None:
            connection = self.context.wrap_socket(connection, server_side=True)
        self.open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no error."""

    def drop(self, mine: socket.socket) -> None:
        """Cut every connection but one."""
        for connection in list(self.open):
            if connection is not mine:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls", nargs="+", default=[])
    arguments = parser.parse_args()
    agent = Agent(arguments.port, arguments.tls)
    sys.stdout.write(f"{agent.server_address[1]}\n")
    sys.stdout.flush()
    agent.serve_forever()


if __name__ == "__main__":
    main()
