"""The normal form of endpoint URLs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.urls import check_proxy, has_password, normal_url


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("http://host/v1", "http://host/v1"),
        ("http://host/v1/", "http://host/v1"),
        ("http://host/v1//", "http://host/v1"),
        ("http://host", "http://host"),
        ("http://host/", "http://host"),
        ("http://host/v1/chat/completions", "http://host/v1"),
        ("http://host/v1/chat/completions/", "http://host/v1"),
        ("http://host/chat/completions", "http://host"),
        ("http://host/v1/chat", "http://host/v1/chat"),
        ("HTTP://Host.Example:80/V1", "http://host.example/V1"),
        ("https://host:443/v1", "https://host/v1"),
        ("https://host:80/v1", "https://host:80/v1"),
        ("http://host:/v1", "http://host/v1"),
        ("http://10.0.0.7:8000/v1", "http://10.0.0.7:8000/v1"),
        ("http://[0:0::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://[FE80::A]", "http://[fe80::a]"),
        ("http://my_host-1/v1", "http://my_host-1/v1"),
    ],
)
def test_spellings_of_one_server_have_one_normal_form(text, normal):
    assert normal_url(text) == normal
    assert normal_url(normal) == normal


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "absolute"),
        ("host/v1", "absolute"),
        ("host:8000/v1", "absolute"),
        ("/v1", "absolute"),
        ("ftp://host/v1", "absolute"),
        ("http:///v1", "absolute"),
        ("http://host/v1?", "query"),
        ("http://host/v1?a=b", "query"),
        ("http://host/v1#", "fragment"),
        ("http://host:0/v1", "port"),
        ("http://host:65536/v1", "port"),
        ("http://host:abc/v1", "port"),
        ("http://host name/v1", "printable"),
        (" http://host/v1", "printable"),
        ("http://host/v1\n", "printable"),
        ("http://host\\v1", "printable"),
        ("http://hôst/v1", "printable"),
        ("http://[::1/v1", "brackets"),
        ("http://[zz::1]/v1", "IPv6"),
        ("http://[v1.a:b]/v1", "IPv6"),
        ("http://[fe80::1%zz^]/v1", "IPv6"),
        ("http://-host/v1", "host"),
        ("http://a..b/v1", "host"),
        (f"http://{'a' * 64}/v1", "host"),
        (f"http://{'a.' * 127}/v1", "host"),
    ],
)
def test_what_is_no_api_root_is_refused_with_a_reason(text, says):
    with pytest.raises(ValueError, match=says):
        normal_url(text)


@pytest.mark.parametrize("text", ["http://me:hunter2@host/v1", "http://me@host?hunter2", "http://@host#hunter2"])
def test_userinfo_is_refused_and_not_repeated(text):
    with pytest.raises(ValueError, match="user name or password") as caught:
        normal_url(text)
    assert "hunter2" not in str(caught.value)


@given(st.text() | st.text(alphabet="htp:/[]@.%?#a1", max_size=30).map("http://".__add__))
def test_any_text_is_a_url_or_a_value_error(text):
    try:
        normal = normal_url(text)
    except ValueError:
        return
    assert normal_url(normal) == normal


@pytest.mark.parametrize("text", ["http://proxy:3128", "http://me:hunter2@10.0.0.1:3128/", "http://[::1]:8080"])
def test_an_http_proxy_is_taken(text):
    check_proxy(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("socks5://me:hunter2@proxy", "URL of an HTTP proxy"),
        ("https://me:hunter2@proxy", "URL of an HTTP proxy"),
        ("http://", "URL of an HTTP proxy"),
        ("http://me:hunter2@proxy/path", "host and port"),
        ("http://proxy?hunter2", "host and port"),
        ("http://proxy#hunter2", "host and port"),
        ("http://me:hunter2@proxy:99999", "port"),
    ],
)
def test_what_is_no_http_proxy_is_refused_and_not_repeated(text, says):
    with pytest.raises(ValueError, match=says) as caught:
        check_proxy(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "answer"),
    [("https://a:b@host/x", True), ("https://a@host", False), ("http://host/x:y@z", False), ("a:b@c", False)],
)
def test_a_url_with_a_password_is_recognised(text, answer):
    assert has_password(text) is answer
