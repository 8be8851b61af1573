"""How names and values appear in messages: the nearest valid name, and values in the notation of TOML. Pure.

Knows nothing of where a name comes from. Whoever shows a value decides first that it is no secret.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping

SHOWN_CHARACTERS = 60
"""How much of a value a message shows."""

LIKENESS = 0.6
"""How alike a name must be to be suggested: difflib's own default, 0 is unlike and 1 is the same."""


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name that is most like *name*, if one is like it at all."""
    folded: dict[str, str] = {}
    for candidate in sorted(valid):
        folded.setdefault(candidate.casefold(), candidate)
    found = difflib.get_close_matches(name.casefold()[:SHOWN_CHARACTERS], folded, n=1, cutoff=LIKENESS)
    return folded[found[0]] if found else None


def suggestion(name: str, valid: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest valid one, else all there are."""
    names = sorted(set(valid))
    if (near := nearest(name, names)) is not None:
        return f"did you mean {shown(near)}?"
    return f"valid: {listed(shown(candidate) for candidate in names)}" if names else "there are none"


def listed(words: Iterable[str], most: int = 20) -> str:
    """Words with commas between them; of more than *most*, the number of the others."""
    every = list(words)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def shown(value: object) -> str:
    """A value as TOML would write it, in one line and cut to :data:`SHOWN_CHARACTERS`."""
    text = _toml(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def quoted(text: str) -> str:
    """A string in the double quotes of TOML, whole; control characters are escaped."""
    escaped = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "".join(_escape(character) for character in escaped)


def key_name(key: str) -> str:
    """A key as TOML writes it: bare where that is allowed, else quoted and cut."""
    bare = key != "" and all(character.isascii() and (character.isalnum() or character in "-_") for character in key)
    return key if bare and len(key) <= SHOWN_CHARACTERS else shown(key)


def one_line(text: str, most: int = 300) -> str:
    """A text from outside on one line: runs of white space and control characters become one space."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _escape(character: str) -> str:
    return character if character.isprintable() else f"\\u{ord(character):04x}"


def _toml(value: object) -> str:
    match value:
        case str():
            return quoted(value[:SHOWN_CHARACTERS])
        case bool():
            return "true" if value else "false"
        case int():
            # Python refuses to write numbers of more than 4300 digits
            return str(value) if value.bit_length() < 400 else "an integer of more than 120 digits"
        case float():
            return repr(value)
        case None:
            return "nothing"
        case Mapping():
            return "an empty table" if not value else f"a table with {_keys(value)}"
        case list() | tuple():
            return "an empty list" if not value else f"a list of {len(value)}"
        case _:
            return f"{_article(type(value).__name__)} ({one_line(str(value), 40)})"


def _keys(table: Mapping[object, object]) -> str:
    return listed((key_name(str(key)) for key in table), most=3)


def _article(noun: str) -> str:
    # a small u as in "unset", a great one as in URL and UsageError
    return f"{'an' if noun[0] in 'aeiouAEIO' else 'a'} {noun}"
