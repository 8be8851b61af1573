"""Requests as h11 sends them, made from what all of one kind share. One that would break is refused. Sans-IO."""

from __future__ import annotations

import attrs
import h11

from scavenge.edge.http.fields import BadHeader, BadRequest, Field


@attrs.frozen
class Request:
    """One request. h11 has checked its head, which has the length of the body where there is one."""

    head: h11.Request = attrs.field(repr=False)
    body: bytes = attrs.field(default=b"", repr=False)


@attrs.frozen
class RequestKind:
    """What requests of one kind have in common: all but the body and its length."""

    method: bytes
    target: bytes
    fields: tuple[Field, ...] = attrs.field(repr=False)

    def request(self, body: bytes | None = None) -> Request:
        """A request with *body*; ``None``: it says nothing of one. Raises :class:`BadRequest` for what h11 refuses."""
        headers = list(self.fields)
        if body is not None:
            headers.append((b"content-length", b"%d" % len(body)))
        try:
            head = h11.Request(method=self.method, target=self.target, headers=headers)
        except h11.LocalProtocolError:
            raise self._refused() from None  # h11 shows values, which may be secrets
        return Request(head, body or b"")

    def _refused(self) -> BadRequest:
        """Which part h11 refuses."""
        for name, value in self.fields:
            try:
                h11.Request(method=b"GET", target=b"/", headers=[(name, value)], http_version=b"1.0")
            except h11.LocalProtocolError:
                return BadHeader(name.decode("latin-1"), "has a name or a value that HTTP cannot carry")
        return BadRequest("the method or the target of the request has characters that HTTP cannot carry")
