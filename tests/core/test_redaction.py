from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scavenge.core.redaction import REMEMBERED, Redactor, visible

KEY = "opal-Zebra/42+x"


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        f"wrong key {KEY}!",
        f"a{KEY}b{KEY}c",
        "opal-Zebra%2F42%2Bx",
        "opal-Zebra\\/42+x",
        base64.b64encode(KEY.encode()).decode(),
        "x" * 1000 + KEY,
    ],
)
def test_a_known_secret_is_taken_out_in_every_form(text):
    redact = Redactor()
    redact.hide([KEY])
    shown = redact(text)
    assert "[secret]" in shown
    assert "Zebra" not in shown
    assert base64.b64encode(KEY.encode()).decode() not in shown


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer topsecret1",
        "authorization: Basic topsecret1",
        "{'Authorization': 'Bearer topsecret1'}",
        '{"api-key": "topsecret1"}',
        "[(b'x-api-key', b'topsecret1')]",
        "api_key=topsecret1",
        "Proxy-Authorization: topsecret1",
        "Set-Cookie: topsecret1; path=/",
        "sent bearer topsecret1 to the server",
        "http://user:topsecret1@host/v1",
        "https://topsecret1@host",
        "GET http://host/v1?api_key=topsecret1&model=x",
        "http://host/?model=x&X-Amz-Signature=topsecret1",
        "Incorrect API key provided: sk-topsecret1topsecret1",
        "hf_topsecret1topsecret1",
    ],
)
def test_what_looks_like_a_secret_by_its_place_is_taken_out(text):
    shown = Redactor()(text)
    assert "topsecret1" not in shown
    assert "[secret]" in shown


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8000/v1 is ejected: connection refused",
        "GET http://host/v1?model=x",
        "authorization, please",
        "task-sk-1",
        'eval[0].api_key_var = "GLM"',
        "mail me: a@b.c",
    ],
)
def test_harmless_texts_stay_as_they_are(text):
    assert Redactor()(text) == text


def test_secrets_in_the_environment_are_known_by_the_names_of_their_variables():
    environ = {
        "OPENAI_API_KEY": "value-of-openai",
        "hf_token": "value-of-hf",
        "DB_PASSWORD_2": "value-of-db",
        "SSH_AUTH_SOCK": "/tmp/value-of-ssh",
        "SHORT_KEY": "off",
        "HOME": "/home/value-of-home",
    }
    shown = Redactor.of_environ(environ)(" ".join(environ.values()))
    assert shown == "[secret] [secret] [secret] /tmp/value-of-ssh off /home/value-of-home"


def test_a_secret_learnt_later_is_hidden_in_texts_that_were_seen_before():
    redact = Redactor()
    assert redact("say plum-tree") == "say plum-tree"
    redact.hide(["plum-tree"])
    redact.hide(["plum-tree"])
    assert redact("say plum-tree") == "say [secret]"


def test_a_placeholder_is_no_secret():
    redact = Redactor()
    redact.hide(["x", ""])
    assert redact("axb") == "axb"


def test_memory_for_texts_is_bounded():
    redact = Redactor()
    for number in range(REMEMBERED + 5):
        assert redact(f"text {number}") == f"text {number}"
    assert len(redact._remembered) <= REMEMBERED


def test_the_longer_of_two_secrets_goes_first():
    redact = Redactor()
    redact.hide(["blue", "blueberry"])
    assert redact("blueberry") == "[secret]"


def test_secrets_are_not_in_the_repr():
    redact = Redactor()
    redact.hide([KEY])
    redact(f"a {KEY}")
    assert KEY not in repr(redact)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\rb", "a\\rb"),
        ("line\n\ttab", "line\n\ttab"),
        ("\u202eevil", "\\u202eevil"),
        ("\ud800", "\\ud800"),
        ("größer · 高い", "größer · 高い"),
    ],
)
def test_what_would_move_the_cursor_is_shown_as_an_escape(text, shown):
    assert visible(text) == shown


@given(st.text(max_size=80), st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=20))
def test_no_text_lets_a_known_secret_through_or_cannot_be_printed(text, secret):
    redact = Redactor()
    redact.hide([secret])
    shown = redact(f"{text}{secret}{text}")
    shown.encode()
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    assert secret not in shown or secret in "[secret]"


def test_a_text_that_recurs_gets_the_same_answer():
    redact = Redactor()
    assert redact("token=abcdefgh api_key=abcdefgh") == redact("token=abcdefgh api_key=abcdefgh")


def test_an_api_key_is_taken_out_of_a_line_of_results_and_nothing_else_is():
    redactor = Redactor.of_environ({"SOME_TOKEN": "a-word-like-any-other"})
    redactor.hide_keys(['sk-"quoted"-0123456789', "EMPTY"])
    line = b'{"a":"sk-\\"quoted\\"-0123456789 EMPTY a-word-like-any-other sk-other-0123456789"}'
    assert redactor.line(line) == b'{"a":"[secret] EMPTY a-word-like-any-other sk-other-0123456789"}'
    assert redactor.line(b'{"a":1}') == b'{"a":1}'
    assert redactor('sk-"quoted"-0123456789') == "[secret]"
