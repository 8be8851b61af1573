"""Prompts out of rows: ``{field}`` in a text, and lists of chat messages. Pure.

It decides which field holds the prompt, and what is wrong with it. It must not know how a reply is scored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

import attrs

from scavenge.core.naming import listed
from scavenge.core.score import as_text
from scavenge.types import Json, Messages

PROMPT_FIELDS = ("messages", "prompt", "question")
"""Where the prompt is looked for when no field is named, in this order."""
PROMPT = "prompt"
"""What ``{prompt}`` stands for in a template: the prompt's field, whatever its name."""
ONLY_PROMPT = "{prompt}"

_PIECE = re.compile(r"\{\{|\}\}|\{(?P<field>[^{}]*)\}|[{}]")


@attrs.frozen
class Template:
    """A text with holes for the fields of a row."""

    literals: tuple[str, ...]
    fields: tuple[str, ...]
    """``literals[0] fields[0] literals[1] ...``: there is one literal more than there are fields."""

    @classmethod
    def parse(cls, text: str) -> Template:
        """Read ``{field}``, and ``{{`` and ``}}`` for braces.

        Raises ``ValueError`` for a brace alone and for anything but a field's name between braces.
        """
        literals, fields, begin, literal = [], [], 0, ""
        for piece in _PIECE.finditer(text):
            literal += text[begin : piece.start()]
            begin = piece.end()
            if piece[0] in ("{{", "}}"):
                literal += piece[0][0]
                continue
            fields.append(_field_name(piece))
            literals.append(literal)
            literal = ""
        return cls((*literals, literal + text[begin:]), tuple(fields))

    def fill(self, values: Json) -> str:
        """The text with the values in place: strings as they are, others as JSON.

        Raises ``ValueError`` for a field that the row does not have, or has as null.
        """
        filled = [self.literals[0]]
        for field, literal in zip(self.fields, self.literals[1:], strict=True):
            if (value := values.get(field)) is None:
                raise ValueError(_missing(field, values))
            filled += (as_text(value), literal)
        return "".join(filled)


def _field_name(piece: re.Match[str]) -> str:
    field = piece["field"]
    if field is None:
        raise ValueError(
            f"a single {piece[0]} at character {piece.start() + 1}; write {piece[0] * 2} for the brace itself"
        )
    if not field.strip() or re.search(r"[.\[\]!:]", field):
        raise ValueError(f"{{{field}}} at character {piece.start() + 1}: only a field's name may stand between braces")
    return field


def _missing(field: str, row: Json) -> str:
    if field in row:
        return f'the field "{field}" is null'
    return f'there is no field "{field}"; the row has {listed(row)}'


# --- prompts


@attrs.frozen
class PromptMaker:
    """Makes the messages of a row. ``field`` is the prompt's; ``None``: the first of :data:`PROMPT_FIELDS` it has."""

    template: Template
    field: str | None = None
    system: str | None = None

    def messages(self, row: Json) -> Messages:
        """What the model is asked.

        Raises ``ValueError`` that says what the row lacks.
        """
        made = self._user_messages(row)
        if self.system is None:
            return made
        if made[0]["role"] in ("system", "developer"):
            raise ValueError("the row's messages begin with a system message, and `system` gives another")
        return [{"role": "system", "content": self.system}, *made]

    def _user_messages(self, row: Json) -> Messages:
        values: dict[str, object] = dict(row)
        if PROMPT in self.template.fields:
            name = self._prompt_field(row)
            prompt = row[name]
            if isinstance(prompt, list):
                return self._listed(name, prompt)
            if not isinstance(prompt, str) or not prompt.strip():
                raise ValueError(f'the field "{name}" must be a text that is not empty, or a list of chat messages')
            values[PROMPT] = prompt
        return [{"role": "user", "content": self.template.fill(values)}]

    def _prompt_field(self, row: Json) -> str:
        if self.field is None:
            found = next((name for name in PROMPT_FIELDS if row.get(name) is not None), None)
            if found is None:
                wanted = listed(PROMPT_FIELDS)
                raise ValueError(
                    f"none of the fields {wanted} is there; name one with `prompt`; the row has {listed(row)}"
                )
            return found
        if row.get(self.field) is None:
            raise ValueError(_missing(self.field, row))
        return self.field

    def _listed(self, name: str, prompt: list[object]) -> Messages:
        if self.template != _WHOLE:
            raise ValueError(f'the field "{name}" is a list of messages, which a template cannot hold')
        if not prompt:
            raise ValueError(f'the field "{name}" is an empty list of messages')
        for index, message in enumerate(prompt):
            if (wrong := _message_fault(message)) is not None:
                raise ValueError(f"{name}[{index}]: {wrong}")
        return cast("Messages", prompt)


_WHOLE = Template.parse(ONLY_PROMPT)


def _message_fault(message: object) -> str | None:
    """What keeps a value from being a chat message of the OpenAI protocol, if anything does."""
    if not isinstance(message, Mapping):
        return "a message is an object with role and content"
    role = message.get("role")
    if not isinstance(role, str) or not role:
        return "role must be a string such as user"
    content = message.get("content")
    if isinstance(content, str) or (content is None and message.get("tool_calls")):
        return None
    if isinstance(content, list) and content and all(isinstance(part, Mapping) and "type" in part for part in content):
        return None
    return "content must be a text or a list of parts with a type"
