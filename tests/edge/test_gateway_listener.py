"""The gateway's port: where it may be, and what is told when it cannot be had."""

from __future__ import annotations

import errno
import resource
import socket
from contextlib import closing

import pytest
from raw_client import TOKEN

from scavenge.edge.gateway.listener import NO_TOKEN, open_listener, sentence
from scavenge.errors import UsageError


@pytest.mark.parametrize(("host", "port", "said"), [
    ("127.0.0.1", 70_000, "ports are from 0 (any free one) to 65535"),
    ("127.0.0.1", -1, "ports are from 0 (any free one) to 65535"),
    ("127.0.0.1", None, "(Address already in use): choose another with --port, or 0 for any free one"),
    ("192.0.2.1", 0, "on 192.0.2.1 port 0 (Cannot assign requested address): --host takes an address of this machine"),
    ("gateway.example", 0, "on 'gateway.example': --host takes an IP address of this machine, or localhost"),
    ("", 0, "on '': --host takes an IP address"),
    ("127.0.0.1\0", 0, "--host takes an IP address"),
])  # fmt: skip
def test_a_port_that_cannot_be_had_is_an_error_that_says_what_to_do(host, port, said):
    with closing(open_listener(TOKEN)) as taken, pytest.raises(UsageError) as raised:
        open_listener(TOKEN, host, taken.socket.getsockname()[1] if port is None else port)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_privileged_port_is_told_as_such():
    said = sentence("127.0.0.1", 80, errno.EACCES)  # root may take any
    assert "port 80 (Permission denied): choose another with --port: those below 1024 are for" in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "2001:db8::1"])
def test_where_others_can_reach_it_a_token_is_a_must(host):
    with pytest.raises(UsageError, match=f"on {host} others could reach the gateway.*--token-var"):
        open_listener(None, host)


@pytest.mark.parametrize("token", ["", " ", " a", "a\n", "a\rb", "\0"])
def test_a_token_that_nobody_can_send_is_refused(token):
    with pytest.raises(UsageError, match="the gateway's token is empty, or has blanks"):
        open_listener(token)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.3"])
def test_on_loopback_no_token_is_needed(host):
    with closing(open_listener(None, host)) as listener:
        address = listener.address("s1")
    assert address.base_url.startswith(f"http://{host.replace('localhost', '127.0.0.1')}:")
    assert address.api_key == NO_TOKEN


def test_a_gateway_that_listens_everywhere_is_found_from_this_machine():
    with closing(open_listener(TOKEN, "0.0.0.0")) as listener:
        assert listener.root == f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        assert TOKEN not in repr(listener)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_the_address_of_an_ipv6_host_is_in_brackets(host):
    with closing(open_listener(TOKEN, host)) as listener:
        assert listener.address("s1").base_url.startswith("http://[::1]:")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_everywhere_means_by_both_protocols():
    with closing(open_listener(TOKEN, "::")) as listener:
        port = listener.socket.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port)).close()
        assert listener.root == f"http://127.0.0.1:{port}"


def test_a_port_that_cannot_be_had_for_want_of_descriptors_names_the_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno() + 1, hard))
        try:
            with pytest.raises(UsageError, match=r"Too many open files\): raise the limit \(ulimit -n\)"):
                open_listener(TOKEN)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
