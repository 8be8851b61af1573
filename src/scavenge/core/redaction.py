"""Takes secrets and control characters out of texts before they are shown. Pure; the one rule for every sink.

Two nets: values that are known to be secret, and what looks like one by its place: a header's value, a URL's userinfo
or query, a key with a well-known prefix. The second may take too much, never the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import attrs
import orjson

from scavenge.core.errorbody import forms_of

HIDDEN = "[secret]"
SHORTEST = 8
"""An environment variable with a shorter value is not taken for a secret by its name alone."""

SHORTEST_KEY = 12
"""A shorter API key is left in results: it is a placeholder (``EMPTY``, ``sk-local``), and a word like any other."""
SHORTEST_GIVEN = 4
SHORT_TEXT = 256
REMEMBERED = 2048

_SECRET_VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH)(_\d+)?$", re.IGNORECASE)
_SECRET_HEADER = re.compile(r"key|token|secret|auth|cookie|password", re.IGNORECASE)
_HEADER = re.compile(
    r"""(?ix) \b ( (?:proxy-)?authorization | (?:x-)?api[-_]?key | x-auth-token | (?:set-)?cookie )
        ( (?: ["']\s*[:,=] | \s*[:=] ) \s* (?: b?["'] )? \s* (?: (?:bearer|basic|token)\s+ )? )
        [^\s"',;)}\]]+ """
)
_BEARER = re.compile(r"(?i)\b(bearer\s+)[a-z0-9._~+/=-]{8,}")
_USERINFO = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,20}://)[^\s/?#\"'<>]+@")
_QUERY = re.compile(
    r"(?i)([?&](?:[a-z0-9_.-]{0,40}(?:key|token|secret|password|signature|credential|sig|auth))=)[^\s&#\"']+"
)
_WELL_KNOWN = re.compile(r"\b(?:sk-|hf_|ghp_|xai-|gsk_)[A-Za-z0-9_-]{12,}")
_SUSPICIOUS = re.compile(r"[:=@]|(?i:bearer)|sk-|hf_|ghp_|xai-|gsk_|[\"']\s*,")
"""What no text lacks in which the patterns above find something."""


def looks_secret(text: str) -> bool:
    """Whether a text is a key by its well-known prefix."""
    return _WELL_KNOWN.search(text) is not None


def has_secret_query(url: str) -> bool:
    """Whether a URL's query has a parameter that is named like a secret."""
    return _QUERY.search(url) is not None


@attrs.define(eq=False)
class Redactor:
    """Makes texts fit to be shown. It may learn more secrets at any time.

    Called for every text of every event, so short texts, which recur, are remembered: at most :data:`REMEMBERED`.
    """

    _secrets: set[str] = attrs.field(factory=set, repr=False)
    _known: re.Pattern[str] | None = attrs.field(default=None, init=False, repr=False)
    """All forms of all secrets; ``None`` while there is none."""
    _keys: set[bytes] = attrs.field(factory=set, init=False, repr=False)
    """The API keys as they stand in a line of JSON."""
    _remembered: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)

    @classmethod
    def of_environ(cls, environ: Mapping[str, str]) -> Redactor:
        """One that knows the values of all variables whose names say that they hold secrets."""
        redactor = cls()
        named = (value for name, value in environ.items() if _SECRET_VARIABLE.search(name))
        redactor.hide(value for value in named if len(value) >= SHORTEST)
        return redactor

    def hide(self, secrets: Iterable[str]) -> None:
        """Let these values never be shown from now on; one of less than 4 characters is a placeholder and no secret."""
        new = {secret for secret in secrets if len(secret) >= SHORTEST_GIVEN} - self._secrets
        if new:
            self._secrets |= new
            forms = {form for secret in self._secrets for form in forms_of(secret)}
            self._known = re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))
            self._remembered.clear()

    def hide_keys(self, keys: Iterable[str]) -> None:
        """Let these API keys never be shown from now on, nor stand in a line that went through :meth:`line`."""
        keys = set(keys)
        self.hide(keys)
        self._keys.update(orjson.dumps(key)[1:-1] for key in keys if len(key) >= SHORTEST_KEY)

    def hide_endpoint(self, secret: str | None, headers: Mapping[str, str]) -> None:
        """Let an endpoint's key never be shown, nor those of its headers whose names say that they hold one."""
        named = (value for name, value in headers.items() if _SECRET_HEADER.search(name))
        self.hide_keys([*named] if secret is None else [secret, *named])

    def line(self, line: bytes) -> bytes:
        """A line of JSON without API keys. Nothing else is changed in it: results are data, not messages."""
        for key in self._keys:
            if key in line:
                line = line.replace(key, HIDDEN.encode())
        return line

    def __call__(self, text: str) -> str:
        """*text* without secrets, and with its control characters, but line breaks and tabs, made visible."""
        if len(text) > SHORT_TEXT:
            return self._redacted(text)
        if (known := self._remembered.get(text)) is None:
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            known = self._remembered[text] = self._redacted(text)
        return known

    def _redacted(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        if _SUSPICIOUS.search(text):
            text = _HEADER.sub(rf"\1\2{HIDDEN}", text)
            text = _BEARER.sub(rf"\1{HIDDEN}", text)
            text = _USERINFO.sub(rf"\1{HIDDEN}@", text)
            text = _QUERY.sub(rf"\1{HIDDEN}", text)
            text = _WELL_KNOWN.sub(HIDDEN, text)
        return visible(text)


def visible(text: str) -> str:
    """*text* with everything that would move a terminal's cursor, or cannot be encoded, written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in "\n\t " else _escape(character) for character in text
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
