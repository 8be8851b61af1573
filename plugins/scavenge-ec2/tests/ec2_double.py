"""EC2 as the tests need it: moto's, and in front of it what moto does not do.

moto knows instances, tags, filters and pages. It has no throttling, no failure, no interruption of a spot instance, and
no state between running and stopped. A proxy adds those: it rewrites answers on their way, or answers itself.
"""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import attrs

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
REGION = "us-east-1"
TEMPLATE = {"endpoint_id": "pool", "model": "sim", "url": "http://127.0.0.1:{tag.port}/v1"}


@attrs.frozen
class Reply:
    """What the proxy sends: of *body* only so many bytes where it is cut."""

    status: int
    body: bytes
    cut_after: int | None = None
    """Where the connection ends, though the whole length was announced."""


@attrs.frozen
class Notice:
    """What the spot request of an instance says."""

    code: str
    since: datetime
    behaviour: str = "terminate"


def refused(code: str, message: str = "refused", status: int = 400) -> Reply:
    """An error as EC2 writes it."""
    errors = f"<Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
    return Reply(status, f"<Response>{errors}<RequestID>r-1</RequestID></Response>".encode())


@attrs.define(eq=False)
class Ec2Double:
    """A proxy in front of moto, in a thread of its own. Tests change its fields while it runs."""

    moto_port: int
    page_size: int | None = None
    """In place of what is asked for."""
    states: dict[str, str] = attrs.field(factory=dict)
    """Of instances that moto has running."""
    notices: dict[str, Notice] = attrs.field(factory=dict)
    clock_behind: timedelta = timedelta()
    """How much its clock is behind this machine's."""
    fault: Callable[[str, int], Reply | None] = lambda action, count: None
    """Given the action and how often it was asked for since this was set, what is answered in place of the truth."""
    asked: list[dict[str, str]] = attrs.field(factory=list)
    """The forms of all requests."""
    goes_on: threading.Event = attrs.field(factory=threading.Event)
    """Not set: nothing is answered."""
    _port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @contextmanager
    def faulty(self, *replies: Reply | None, action: str = "") -> Iterator[None]:
        """Answer with these in turn, and with the last of them from then on; ``None`` is the truth."""
        counts: dict[str, int] = {}

        def fault(asked: str, _: int) -> Reply | None:
            if action not in asked:
                return None
            counts[asked] = counts.get(asked, 0) + 1
            return replies[min(counts[asked], len(replies)) - 1]

        before, self.fault = self.fault, fault
        try:
            yield
        finally:
            self.fault = before

    def actions(self) -> list[str]:
        """What was asked for, in order."""
        return [form["Action"] for form in self.asked]

    def reply(self, form: dict[str, str], headers: dict[str, str]) -> Reply:
        """The answer to a request."""
        self.asked.append(form)
        self.goes_on.wait(60)
        action = form["Action"]
        if (fault := self.fault(action, len(self.asked))) is not None:
            return fault
        if action == "DescribeSpotInstanceRequests":
            return Reply(200, self._spot_requests(form))
        if self.page_size is not None and "MaxResults" in form:
            form = {**form, "MaxResults": str(self.page_size)}
        reply = self._of_moto(form, headers)
        return (
            self._with_states(reply, _values(form, "instance-state-name"))
            if action == "DescribeInstances" and reply.status == 200
            else reply
        )

    def _of_moto(self, form: dict[str, str], headers: dict[str, str]) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.moto_port, timeout=30)
        with contextlib.closing(connection):
            kept = {name: value for name, value in headers.items() if name.lower() != "content-length"}
            connection.request("POST", "/", urlencode(form), kept)
            response = connection.getresponse()
            return Reply(response.status, response.read())

    def _with_states(self, reply: Reply, wanted: set[str]) -> Reply:
        root = ElementTree.fromstring(reply.body)
        for group in root.iterfind(".//{*}instancesSet"):
            for item in list(group):
                name = item.find("{*}instanceState/{*}name")
                assert name is not None
                assert name.text is not None
                name.text = self.states.get(item.findtext("{*}instanceId", ""), name.text)
                if name.text not in wanted:
                    group.remove(item)
        return Reply(200, ElementTree.tostring(root))

    def _spot_requests(self, form: dict[str, str]) -> bytes:
        wanted = _values(form, "status-code")
        items = "".join(
            f"<item><spotInstanceRequestId>sir-{number}</spotInstanceRequestId><instanceId>{instance_id}</instanceId>"
            f"<status><code>{notice.code}</code><updateTime>{notice.since:%Y-%m-%dT%H:%M:%S.000Z}</updateTime></status>"
            f"<instanceInterruptionBehavior>{notice.behaviour}</instanceInterruptionBehavior></item>"
            for number, (instance_id, notice) in enumerate(self.notices.items())
            if notice.code in wanted
        )
        head = f'<DescribeSpotInstanceRequestsResponse xmlns="{NAMESPACE}"><requestId>r-2</requestId>'
        body = f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet></DescribeSpotInstanceRequestsResponse>"
        return (head + body).encode()

    @contextmanager
    def serving(self) -> Iterator[Ec2Double]:
        """Serve on a free port of this machine."""
        with ThreadingHTTPServer(("127.0.0.1", 0), self._handler()) as server:
            self._port = server.server_port
            self.goes_on.set()
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield self
            finally:
                self.goes_on.set()
                server.shutdown()
                thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                reply = double.reply(dict(parse_qsl(text, keep_blank_values=True)), dict(self.headers.items()))
                with contextlib.suppress(OSError):  # who asked may be gone
                    self.answer(reply)

            def answer(self, reply: Reply) -> None:
                self.send_response_only(reply.status)
                self.send_header("Date", format_datetime(datetime.now(UTC) - double.clock_behind, usegmt=True))
                self.send_header("Content-Type", "text/xml;charset=UTF-8")
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body[: reply.cut_after])
                self.close_connection = reply.cut_after is not None

            def log_message(self, *args: Any) -> None:
                pass

        return Handler


def _values(form: dict[str, str], name: str) -> set[str]:
    """The values of a filter that is asked for."""
    (number,) = [key.split(".")[1] for key, value in form.items() if key.endswith(".Name") and value == name]
    return {value for key, value in form.items() if key.startswith(f"Filter.{number}.Value")}


@contextmanager
def running_moto() -> Iterator[int]:
    """moto in a process of its own; yields its port."""
    command = [sys.executable, str(Path(__file__).with_name("moto_server.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()
