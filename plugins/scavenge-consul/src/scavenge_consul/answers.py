"""What an answer of Consul is worth: a listing, or no more than a sign that it does not know. Pure.

Consul answers with status 200 in states in which it cannot know: rows that the caller may not see are left out, a
server without a leader tells what it knew. Such an answer is no listing, and neither is anything that does not look as
Consul's do. An empty answer counts where nothing can have been hidden from the caller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

OLDEST_STALE_MS = 10_000
"""How long the server that answers may have been without contact to the leader."""

TOLD_CHARACTERS = 200
"""How much of what Consul says is told."""


class Unsure(Exception):
    """The answer is no listing; the text says why, and what to do."""

    def __init__(self, why: str, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s


class NotStored(Unsure):
    """There is no such key; ``index`` is what to wait on for it."""

    def __init__(self, why: str, index: int) -> None:
        super().__init__(why)
        self.index = index


@attrs.frozen
class Answer:
    """One answer, whole."""

    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes = attrs.field(repr=False)

    @property
    def index(self) -> int:
        """What the next blocking query waits on, 1 or more. Raises :class:`Unsure` where there is none."""
        text = self.headers.get("x-consul-index", "")
        if not re.fullmatch(r"[0-9]{1,20}", text):
            raise Unsure(
                "the answer has no X-Consul-Index, so it is not Consul's; correct `address`, or the proxy there"
            )
        return max(1, int(text))


def check_answer(answer: Answer, asked_for: str) -> int:
    """The answer's index. Raises :class:`Unsure` unless it comes from a Consul that has a leader and hides nothing."""
    if answer.status != 200:
        raise _refusal(answer, asked_for)
    headers, index = answer.headers, answer.index
    if headers.get("x-consul-knownleader", "true").lower() == "false":
        raise Unsure("the server that answers knows no leader; see that the Consul servers are up and reach each other")
    if _number(headers.get("x-consul-lastcontact")) > OLDEST_STALE_MS:
        raise Unsure(
            f"the server that answers has not heard of its leader for more than {OLDEST_STALE_MS // 1000} s; "
            "see that the Consul servers reach each other"
        )
    if headers.get("x-consul-results-filtered-by-acls", "false").lower() == "true":
        raise Unsure(f"the token may not see all of {asked_for}; give it service:read and node:read")
    return index


def check_empty(answer: Answer, asked_for: str, *, anonymous: bool) -> None:
    """Raise :class:`Unsure` where an empty answer may come of what the caller may not see.

    Consul tells only callers with a token that it left something out.
    """
    if anonymous and answer.headers.get("x-consul-default-acl-policy", "").lower() != "allow":
        raise Unsure(
            f"no instance of {asked_for}, but without a token Consul does not say whether it hides some; "
            "name a variable with a token that has service:read and node:read in `token_var`"
        )


def _refusal(answer: Answer, asked_for: str) -> Unsure:
    said = _said(answer)
    match answer.status:
        case 404 if "x-consul-index" in answer.headers:
            return NotStored(
                f"there is no {asked_for}; write it, with `endpoint = []` in it for no endpoint", answer.index
            )
        case 401 | 403:
            return Unsure(f"{said}; `token_var` names the variable with a token that may read {asked_for}")
        case 429:
            return Unsure(f"{said}; it is asked less often now", _number(answer.headers.get("retry-after")))
        case 404 | 405:
            return Unsure(f"{said}; this is no Consul agent, correct `address`")
        case status if 300 <= status < 400:
            return Unsure(f"{said}: a redirect, which is not followed; correct `address`")
        case status if status >= 500:
            what = f"{said}; see that the Consul servers are up, and that `dc` is one of theirs"
            return Unsure(what, _number(answer.headers.get("retry-after")))
        case _:
            return Unsure(said)


def _said(answer: Answer) -> str:
    text = one_line(answer.body[: 4 * TOLD_CHARACTERS].decode("utf-8", "replace"))
    return f"status {answer.status}" + (f" ({text})" if text else "")


def one_line(text: str) -> str:
    """A text from outside on one line, cut."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= TOLD_CHARACTERS else line[: TOLD_CHARACTERS - 1] + "…"


def _number(text: str | None) -> int:
    """A header's number; 0 where it has none."""
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,12}", text) else 0
