"""One row of a listing for each of many servers that are alike: texts with facts of the server in them. Pure.

For sources that find servers and know some facts of each: an address, a port, tags. Knows neither the source nor what a
right row is: a fact that is not there makes a value that no row may have, so that the row says so when it is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar

import attrs

from scavenge.core.naming import shown, suggestion
from scavenge.listings import EndpointSpec

_PLACEHOLDER = re.compile(r"\{([^{}|]*)(?:\|([^{}]*))?\}")


@attrs.frozen
class MissingFact:
    """What stands in a row in place of a text for which a fact is missing. No key takes it."""

    fact: str

    def __str__(self) -> str:
        return f"a text with {{{self.fact}}} in it, which is not known of this server"


def _check_text(template: EndpointTemplate, field: attrs.Attribute[Any], value: object) -> None:
    for text in _texts(value):
        rest = _PLACEHOLDER.sub("", text)
        if "{" in rest or "}" in rest:
            raise ValueError(f"a brace without its other one in {shown(text)}")
        for name, _ in _PLACEHOLDER.findall(text):
            if not _is_known(name, template.FACTS):
                raise ValueError(f"no fact {shown(name)}; {suggestion(name, template.FACTS)}")


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for text in value.values() if isinstance(text, str))


def _is_known(name: str, facts: tuple[str, ...]) -> bool:
    return any(name.startswith(fact) and name != fact if fact.endswith(".") else name == fact for fact in facts)


@attrs.frozen(kw_only=True)
class EndpointTemplate:
    """The keys of ``endpoints.toml`` for servers that a source finds: a base of the source's configuration class.

    ``{name}`` in a text stands for a fact of the server, ``{name|text}`` for that text where the fact is not known. A
    derived class says in ``FACTS`` which facts there are; one that ends with a dot, such as ``tag.``, stands for all
    that begin so. Raises ``ValueError`` for a text whose braces do not fit or that names another fact.

    versionadded: 0.1
    """

    FACTS: ClassVar[tuple[str, ...]] = ()

    endpoint_id: str = attrs.field(validator=_check_text)
    model: str = attrs.field(validator=_check_text)
    url: str = attrs.field(validator=_check_text)
    key: str | None = attrs.field(default=None, validator=_check_text)
    max_concurrent: int | str | None = attrs.field(default=None, validator=_check_text)
    """A number, or a text that becomes one."""
    api_client_type: str | None = attrs.field(default=None, validator=_check_text)
    """The ``type`` of ``endpoints.toml`` by its alias: in a ``[[source]]``, ``type`` names the kind of source."""
    headers: dict[str, str] | None = attrs.field(default=None, validator=_check_text, repr=False)
    proxy: str | None = attrs.field(default=None, validator=_check_text, repr=False)

    def row(
        self, facts: Mapping[str, object], *, draining: bool = False, drain_deadline: datetime | None = None
    ) -> EndpointSpec:
        """The row of the server with these facts. One that is ``None`` or empty is not known.

        A row for which a fact is missing is wrong, and says which when it is checked.

        versionadded: 0.1
        """
        headers: dict[str, object] = {name: _filled(text, facts) for name, text in (self.headers or {}).items()}
        return EndpointSpec(
            endpoint_id=_filled(self.endpoint_id, facts),
            model=_filled(self.model, facts),
            url=_filled(self.url, facts),
            key=_filled(self.key, facts),
            max_concurrent=_number(_filled(self.max_concurrent, facts)),
            type=_filled(self.api_client_type, facts),
            headers=headers or None,
            draining=draining or None,
            proxy=_filled(self.proxy, facts),
            drain_deadline=drain_deadline,
        )


def _filled(value: object, facts: Mapping[str, object]) -> object:
    """A text with its placeholders filled; a :class:`MissingFact` where that is not possible."""
    if not isinstance(value, str):
        return value
    for name, default in ((found[1], found[2]) for found in _PLACEHOLDER.finditer(value)):
        if default is None and facts.get(name) in (None, ""):
            return MissingFact(name)
    return _PLACEHOLDER.sub(lambda found: _fact(found[1], found[2], facts), value)


def _fact(name: str, default: str | None, facts: Mapping[str, object]) -> str:
    fact = facts.get(name)
    return default or "" if fact in (None, "") else str(fact)


def _number(value: object) -> object:
    """The number that a text writes; anything else as it is, for the check of the row to name."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else value
