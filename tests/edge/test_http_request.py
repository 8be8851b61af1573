"""What a request is made of, and which headers are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.edge.http.fields import OWNED, BadHeader, BadRequest, fields_of
from scavenge.edge.http.request import RequestKind
from scavenge.edge.http.route import RouteError, route_to
from scavenge.edge.http.wire import Wire


def sent(kind: RequestKind, body: bytes | None = None) -> bytes:
    return Wire().start(kind.request(body))


def with_field(name: bytes, value: bytes) -> RequestKind:
    return RequestKind(b"GET", b"/", ((b"host", b"h"), (name, value)))


@pytest.mark.parametrize(
    "field", [(b"a b", b""), (b"", b""), (b"a", b"x\r\ny: z"), (b"a", b"x\n"), (b"a", b" x"), (b"a", b"\x00")]
)
def test_headers_that_would_break_a_request_are_refused_by_name(field: tuple[bytes, bytes]) -> None:
    with pytest.raises(BadHeader) as caught:
        with_field(*field).request()
    assert caught.value.name == field[0].decode()


def test_the_value_of_a_refused_header_is_shown_nowhere() -> None:
    with pytest.raises(BadHeader) as caught:
        with_field(b"authorization", b"Bearer hidden\n").request()
    assert "hidden" not in str(caught.value)
    assert caught.value.__suppress_context__
    assert "hidden" not in repr(with_field(b"authorization", b"hidden"))
    assert "hidden" not in repr(with_field(b"authorization", b"hidden").request(b"hidden"))


@pytest.mark.parametrize(("method", "target"), [(b"G ET", b"/"), (b"GET", b"/a b"), (b"GET", b"/\r\n"), (b"GET", b"")])
def test_a_method_or_target_that_would_break_a_request_is_refused(method: bytes, target: bytes) -> None:
    with pytest.raises(BadRequest, match="method or the target"):
        RequestKind(method, target, ((b"host", b"h"),)).request()


@given(st.binary(min_size=1, max_size=6), st.binary(max_size=8))
def test_no_header_can_smuggle_a_line(name: bytes, value: bytes) -> None:
    try:
        lines = sent(with_field(name, value))
    except BadRequest:
        return
    assert lines.count(b"\r\n") == lines.count(b"\n") == lines.count(b"\r") == 4


def test_headers_become_bytes() -> None:
    assert fields_of({"X-A": "é"}) == [(b"x-a", b"\xe9")]
    with pytest.raises(BadHeader, match="x-a"):
        fields_of({"x-a": "€"})


@pytest.mark.parametrize("name", sorted(OWNED))
def test_headers_that_scavenge_sets_are_refused(name: bytes) -> None:
    with pytest.raises(BadHeader, match="set by scavenge"):
        fields_of({name.decode().title(): "x"})


def test_a_request_says_how_long_its_body_is_when_it_has_one() -> None:
    kind = RequestKind(b"POST", b"/x", ((b"host", b"h"),))
    assert sent(kind) == b"POST /x HTTP/1.1\r\nhost: h\r\n\r\n"
    assert sent(kind, b"") == b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n"
    assert sent(kind, b"abc") == b"POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc"


def test_a_tunnel_is_asked_for_by_host_and_port() -> None:
    route, path = route_to("https://[::1]/v1", "http://proxy.invalid:8080")
    assert path == b"/v1"
    assert Wire().start(route.tunnel_request()) == b"CONNECT [::1]:443 HTTP/1.1\r\nhost: [::1]:443\r\n\r\n"
    assert sent(route.request_kind(b"GET", b"/v1", ())) == b"GET /v1 HTTP/1.1\r\nhost: [::1]\r\n\r\n"


def test_a_proxy_sees_the_whole_url_and_its_own_password() -> None:
    route, _ = route_to("http://model.invalid:8000/v1", "http://u:p@proxy.invalid")
    assert route.proxy is not None
    assert route.proxy.port == 80
    assert sent(route.request_kind(b"GET", b"/v1", ((b"a", b"b"),))) == (
        b"GET http://model.invalid:8000/v1 HTTP/1.1\r\nhost: model.invalid:8000\r\n"
        b"proxy-authorization: Basic dTpw\r\na: b\r\n\r\n"
    )
    assert "dTpw" not in repr(route)


@pytest.mark.parametrize("url", ["ftp://h/v1", "http://", "h:80/v1", "http://a\x00b/", "http://[::1"])
def test_a_url_that_cannot_be_reached_is_refused(url: str) -> None:
    with pytest.raises(RouteError, match="the url of the endpoint"):
        route_to(url, None)


@pytest.mark.parametrize("port", [0, 65536, 99999])
def test_a_port_that_sockets_would_take_for_another_is_refused(port: int) -> None:
    with pytest.raises(RouteError, match="port in the url"):
        route_to(f"http://127.0.0.1:{port}/v1", None)
    with pytest.raises(RouteError, match="port in the proxy"):
        route_to("http://127.0.0.1/v1", f"http://127.0.0.1:{port}")
