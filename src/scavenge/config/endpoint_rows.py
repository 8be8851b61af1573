"""The rows of a listing: each becomes an :class:`Endpoint`, or says what is wrong with it.

A wrong row costs only itself. The rules that bind rows of one pool to each other (one model, all caps or none, no URL
twice) therefore look at what the pool already is, then at the rows that are right by themselves. Looks up API keys in
the environment it is given; no message holds a key, a header's value or a proxy's password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from scavenge.config.fields import Reader
from scavenge.config.pool_rules import Row, check_pools
from scavenge.config.problems import Fault, Mismatch, Where
from scavenge.config.schema import NonEmpty, VariableName
from scavenge.core.endpoint_template import MissingFact
from scavenge.core.naming import shown
from scavenge.core.urls import check_proxy
from scavenge.errors import SourceError
from scavenge.listings import BadRow, CheckedListing, EndpointSpec, Listing, PoolMode
from scavenge.types import ApiType, Endpoint, EndpointId, Url

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name: RFC 9110, section 5.6.2."""

_FIELD_VALUE = re.compile(r"([!-~]([ \t!-~]*[!-~])?)?")
"""A header's value: RFC 9110, section 5.5, without the bytes beyond ASCII, whose meaning depends on the server."""

_NO_DEADLINE = "expected a time with a time zone, such as 2030-01-01T00:00:00Z"

_FRAMING_HEADERS = frozenset({"connection", "content-length", "transfer-encoding"})


def _check_headers(instance: object, attribute: attrs.Attribute[Any], table: Mapping[str, object]) -> None:
    seen: set[str] = set()
    for name, value in table.items():
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{shown(name)} is no name of an HTTP header")
        if name.lower() in _FRAMING_HEADERS:
            raise ValueError(f"{name} is written by scavenge itself; remove it")
        if name.lower() in seen:
            raise ValueError(f"{name} stands here twice; names of headers differ by more than upper and lower case")
        if type(value) is not str or not _FIELD_VALUE.fullmatch(value):
            raise ValueError(f"the value of {name} must be a string of printable ASCII without spaces around it")
        seen.add(name.lower())


def _check_proxy(instance: object, attribute: attrs.Attribute[Any], value: str) -> None:
    check_proxy(value)


def _check_deadline(instance: object, attribute: attrs.Attribute[Any], value: datetime) -> None:
    if value.utcoffset() is None:
        raise ValueError(_NO_DEADLINE)


@attrs.frozen
class EndpointRow:
    """One ``[[endpoint]]``: the keys, their aliases, and what each must be by itself."""

    endpoint_id: EndpointId = attrs.field(validator=NonEmpty())
    model: str = attrs.field(validator=NonEmpty())
    url: Url = attrs.field(metadata={"alias": "api_base_url"})
    key: str | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(VariableName()),
        metadata={"alias": "api_key_var", "secret": True},
    )
    max_concurrent: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.gt(0)))
    type: ApiType = attrs.field(default=ApiType.CHAT_COMPLETIONS, metadata={"alias": "api_client_type"})
    headers: Mapping[str, Any] = attrs.field(
        factory=dict, validator=_check_headers, metadata={"alias": "extra_headers", "secret": True}, repr=False
    )
    draining: bool = False
    proxy: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(_check_proxy), metadata={"secret": True}, repr=False
    )
    drain_deadline: datetime | None = attrs.field(default=None, validator=attrs.validators.optional(_check_deadline))
    """When the server will be taken away. A text is read as ISO 8601 writes a time."""


def check_listing(
    listing: Listing, environ: Mapping[str, str], *, present: Mapping[EndpointId, PoolMode] | None = None
) -> CheckedListing:
    """Check every row; *present* tells what the pools that are in use have in common.

    A row that is bad because another row of its pool has the same URL names the same endpoint as that good row. Raises
    :class:`SourceError` when the listing's ``endpoints`` are no list at all.
    """
    entries: object = listing.endpoints
    if not isinstance(entries, Sequence) or isinstance(entries, str | bytes):
        raise SourceError(f"{listing.where}: expected a list of endpoints, got {shown(entries)}")
    rows = [_read(index, entry, environ) for index, entry in enumerate(entries)]
    check_pools(rows, present or {})
    where = Where(listing.where)
    good = tuple(_endpoint(row, environ) for row in rows if not row.faults)
    return CheckedListing(good, tuple(_bad_row(row, where) for row in rows if row.faults))


def pool_modes(endpoints: Iterable[Endpoint]) -> dict[EndpointId, PoolMode]:
    """What the pools of these endpoints have in common, for the next :func:`check_listing`."""
    return {one.endpoint_id: PoolMode(one.model, one.max_concurrent is not None) for one in endpoints}


def _read(index: int, entry: object, environ: Mapping[str, str]) -> Row:
    if isinstance(entry, EndpointSpec):
        entry = attrs.asdict(entry, recurse=False)
    if not isinstance(entry, Mapping) or not all(isinstance(key, str) for key in entry):
        return Row(index, {}, [Fault((), "expected a table with the keys of an endpoint")])
    found = _READER.present(EndpointRow, entry)
    faults = [*_READER.unknown(EndpointRow, entry), *found.faults, *_READER.missing(EndpointRow, entry)]
    row = Row(index, found.values, faults, found.used, incomplete=_lacks_facts(entry))
    if (name := found.values.get("key")) is not None:
        faults.extend(row.fault("key", what) for what in _key_troubles(name, environ.get(name)))
        if any(header.lower() == "authorization" for header in found.values.get("headers", ())):
            faults.append(row.fault("headers", "Authorization is written from `key`; keep one of them"))
    return row


def _lacks_facts(entry: Mapping[str, object]) -> bool:
    values = (value.values() if isinstance(value, Mapping) else (value,) for value in entry.values())
    return any(isinstance(value, MissingFact) for group in values for value in group)


def _key_troubles(name: str, secret: str | None) -> Iterator[str]:
    """What is wrong with the variable. A name with small letters is not repeated: it may be the key itself."""
    variable = f"the environment variable {name}" if name.isupper() else "the environment variable that it names"
    if not secret:
        yield f"{variable} is {'not set' if secret is None else 'empty'}; set it to the API key, or remove this key"
    elif not _FIELD_VALUE.fullmatch(secret):
        yield f"{variable} holds what no HTTP header can, such as a line break or a space at an end"


def _endpoint(row: Row, environ: Mapping[str, str]) -> Endpoint:
    name = row.values.get("key")
    return Endpoint(secret=None if name is None else environ[name], **row.values)


def _bad_row(row: Row, where: Where) -> BadRow:
    problems = where.at("endpoint", row.index).problems(row.faults)
    return BadRow(problems, row.values.get("endpoint_id"), row.values.get("url"), row.index, row.incomplete)


def _api_type(value: object, _: object) -> ApiType:
    if type(value) is not str:
        raise Mismatch("a string", value)
    try:
        return ApiType(value)
    except ValueError:
        supported = " and ".join(shown(one.value) for one in ApiType)
        raise ValueError(f"{shown(value)} is not supported; supported are {supported}") from None


def _moment(value: object, _: object) -> datetime:
    if isinstance(value, datetime):
        return value
    if type(value) is not str:
        raise ValueError(f"{_NO_DEADLINE}, got {shown(value)}")
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(f"{_NO_DEADLINE}, got {shown(value)}") from None


def _row_reader() -> Reader:
    reader = Reader(Path())
    reader.converter.register_structure_hook_func(lambda kind: kind is ApiType, _api_type)
    reader.converter.register_structure_hook_func(lambda kind: kind is datetime, _moment)
    return reader


_READER = _row_reader()
