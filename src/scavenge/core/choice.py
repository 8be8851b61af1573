"""Scoring by letter: which option of a multiple choice a reply settles on.

It decides what counts as stating an option: a sentence that announces the answer before a mark like ``(B)``, a mark
before a letter that ends the reply; among its equals the last one. The article "A" and the pronoun "I" are words, not
options. It must not know what the options say.
"""

from __future__ import annotations

import re

from scavenge.core.numeric import boxed_content
from scavenge.core.score import alternatives, as_text
from scavenge.types import Json

CHOICE_REPLY_CHARS = 20_000
"""How much of a reply, from its end, is searched."""

_OPEN = r"[\s*_`\"'“‘(\[{$]*(?:\\(?:text|textbf|mathrm|mathbf)\s?\{\s*)?\(?"
_CLEAR = r"(?=[^\w\s]|\s*(?:$|\n)|\s*[)\]}*])"
_WORDS_AFTER = r"(?=\s+(?:because|since|as|and|for|due|option|is)\b)"
_LETTER = (
    rf"(?:(?P<upper>[B-HJ-Z])(?![A-Za-z\d'’])|(?P<word>[AI])(?:{_CLEAR}|{_WORDS_AFTER})(?!['’])"
    rf"|(?P<lower>[a-z])(?![a-z\d'’]){_CLEAR})"
)
_ANNOUNCED = re.compile(
    rf"""(?:
        \b(?i:(?:final\s+|correct\s+|best\s+|right\s+)?(?:answer|choice|option))[*_`"']*
          (?:\s*[:=]|\s+(?i:is|would\s+be|must\s+be|should\s+be)\b\s*:?|\s+(?=[*_`"']*\(?[A-Z]\)?[*_`"']*\s*(?:[.,;]|$)))
      | \b(?i:choose|pick|select|choosing|go\s+with|answering)\s+
      | 答案(?:是|为|選|选)?\s*[::]?
      | ^[ \t]*\#{{4}}\s*
    )
    (?:\s*(?i:option|choice|letter|answer|the)\b)*{_OPEN}{_LETTER}""",
    re.VERBOSE | re.MULTILINE,
)
_MARKED = re.compile(
    r"""[(\[](?P<bracket>[A-Za-z])[)\]]
      | \*\*\s?\(?(?P<bold>[A-Z])\)?[.:)]?\s?\*\*
      | ^[ \t>]*\(?(?P<line>[A-Z])\)?[.):]?[ \t]*$
      | ^[ \t>*]*(?P<item>[A-Z])[.):](?=[\s*])""",
    re.VERBOSE | re.MULTILINE,
)
_LAST_WORD = re.compile(r"(?<![\w'’])(?P<last>[A-Z])[\s.!*_`\"'”’)\]}$]*\Z")
_WHOLE = re.compile(r"[\s*_`\"'“‘(\[{$<]*(?P<whole>[A-Za-z])[\s.,:;!*_`\"'”’)\]}$>]*\Z")


def choice(reply: str, answer: object, row: Json) -> float:
    """Whether the option that the reply settles on is the answer's (one of them, for a list)."""
    expected = {option_letter(accepted) for accepted in alternatives(answer)}
    return float(stated_option(reply) in expected)


def option_letter(answer: object) -> str:
    """The upper-case letter of a row's answer: ``B``, ``(b)``, ``B.``, or an integer that counts from 0.

    Raises ``ValueError`` for anything else.
    """
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < 26:
        return chr(ord("A") + answer)
    text = as_text(answer)
    if (found := _WHOLE.match(text)) is None:
        raise ValueError(f"the answer {text[:60]!r} is not a letter of an option")
    return found["whole"].upper()


def stated_option(reply: str) -> str | None:
    """The upper-case letter of the option that a reply settles on, if it does."""
    text = reply[-CHOICE_REPLY_CHARS:]
    boxed = text.rfind("\\boxed{")
    if boxed >= 0 and (letter := _only_letter(boxed_content(text, boxed))) is not None:
        return letter
    if (found := _WHOLE.match(text)) is not None:
        return found["whole"].upper()
    for pattern in (_ANNOUNCED, _MARKED):
        if (stated := max(pattern.finditer(text), key=lambda match: match.start(), default=None)) is not None:
            return _named(stated)
    return None if (found := _LAST_WORD.search(text)) is None else _named(found)


def _only_letter(content: str) -> str | None:
    content = re.sub(r"\\(?:text|textbf|mathrm|mathbf)\s?\{([^{}]*)\}", r"\1", content)
    found = _WHOLE.match(content) or re.match(r"\s*\(?(?P<whole>[A-Z])[).:]", content)
    return None if found is None else found["whole"].upper()


def _named(match: re.Match[str]) -> str:
    return next(letter for letter in match.groups() if letter is not None).upper()
