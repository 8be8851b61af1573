"""How images lie in a store of files: what their files are called, and the record beside each archive. Pure.

A record is one JSON object of a known version with every key, and no other. The archive's name holds the beginning of
its digest, so an archive is never replaced by another: a record always names one that is whole, whoever writes beside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import attrs
import orjson

from scavenge.core.images.reference import BadReference, canonical, safe_file_name
from scavenge.core.naming import listed, shown, suggestion
from scavenge.images import ImageRecord, Platform

VERSION = 1
MOST_RECORD_BYTES = 2**20
"""An image has a few dozen layers, 127 at most in Docker, so a record has a few kilobytes."""
KINDS = (".tar", ".tar.gz", ".tgz", ".tar.zst")
"""How an archive's name may end."""

_VERSION_KEY = "scavenge_image"
_PLATFORM_TEXT = re.compile(r"[a-z0-9][a-z0-9_.-]{0,31}(/[a-z0-9][a-z0-9_.-]{0,31}){1,2}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}")
_DIGEST_CHARACTERS = 16
_SAME_AS_PLAIN = {("arm64", "v8")}
"""Architectures with the variant that they have where none is said (OCI image index, platform variants)."""


class BadRecord(ValueError):
    """A text that is no record; its message names the key and what is wrong with it."""


# --- names


def record_name(image: str, platform: Platform) -> str:
    """The name of the record's file: the same for the same image and platform, wherever it is."""
    return f"{_stem(image, platform)}.json"


def archive_name(image: str, platform: Platform, sha256: str, kind: str = ".tar") -> str:
    """The name of the archive's file with that digest; *kind* is one of :data:`KINDS`."""
    return f"{_stem(image, platform)}.{sha256[:_DIGEST_CHARACTERS]}{kind}"


def kind_of(name: str) -> str:
    """How an archive's name ends, as far as that is known; ``.tar`` where it is not."""
    return next((kind for kind in KINDS if name.endswith(kind)), ".tar")


def _stem(image: str, platform: Platform) -> str:
    words = str(_plain(platform)).replace("/", "-")
    return f"{safe_file_name(image)}.{re.sub('[^a-z0-9_.-]', '-', words.lower())[:60]}"


# --- what fits


def read_platform(text: str) -> Platform:
    """``linux/amd64`` or ``linux/arm64/v8`` as a platform. Raises ``ValueError``."""
    if not _PLATFORM_TEXT.fullmatch(text):
        raise ValueError(f'expected a platform such as "linux/amd64", got {shown(text)}')
    return Platform(*text.split("/"))


def misfit(record: ImageRecord, image: str, platform: Platform) -> str:
    """Why a record is not that of an image for a platform; empty when it is.

    A variant that one of both does not tell is no difference.
    """
    if record.image != image:
        return f"it is the record of {record.image}"
    own, wanted = _plain(record.platform), _plain(platform)
    if (own.os, own.architecture) != (wanted.os, wanted.architecture):
        return f"it is for {record.platform}"
    if own.variant and wanted.variant and own.variant != wanted.variant:
        return f"it is for {record.platform}"
    return ""


def _plain(platform: Platform) -> Platform:
    said = (platform.architecture, platform.variant)
    return attrs.evolve(platform, variant="") if said in _SAME_AS_PLAIN else platform


# --- the record


def record_json(record: ImageRecord) -> bytes:
    """The record as the text of its file."""
    document = {
        _VERSION_KEY: VERSION,
        "image": record.image,
        "platform": str(record.platform),
        "config_digest": record.config_digest,
        "diff_ids": record.diff_ids,
        "archive": record.archive,
        "size_bytes": record.size_bytes,
        "sha256": record.sha256,
        "created": record.created,
        "made_by": record.made_by,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def parse_record(data: bytes) -> ImageRecord:
    """The record in the text of its file.

    Raises :class:`BadRecord`, which names the key, for whatever is no record of a version that is known.
    """
    if len(data) > MOST_RECORD_BYTES:
        raise BadRecord(f"longer than {MOST_RECORD_BYTES} bytes, so it is no record of an image")
    try:
        document = orjson.loads(data)
    except ValueError:
        raise BadRecord("no JSON, so it is no record of an image") from None
    if not isinstance(document, dict) or _VERSION_KEY not in document:
        raise BadRecord(f'no JSON object with the key "{_VERSION_KEY}", so it is no record of an image')
    _check_version(document.pop(_VERSION_KEY))
    _check_keys(document)
    return ImageRecord(**{key: _read(key, document[key]) for key in _READERS})


def _check_version(version: object) -> None:
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise BadRecord(f"{_VERSION_KEY}: expected a version, got {shown(version)}")
    if version > VERSION:
        raise BadRecord(f"{_VERSION_KEY}: version {version}, and this scavenge reads {VERSION}; install a newer one")


def _check_keys(document: Mapping[str, object]) -> None:
    if missing := [key for key in _READERS if key not in document]:
        raise BadRecord(f"{missing[0]}: this key is missing")
    if unknown := sorted(set(document) - _READERS.keys()):
        raise BadRecord(f"{shown(unknown[0])}: unknown key; {suggestion(unknown[0], _READERS)}")


def _read(key: str, value: object) -> Any:
    try:
        return _READERS[key](value)
    except ValueError as exc:
        raise BadRecord(f"{key}: {exc}") from None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value.strip() or len(value) > 255:
        raise ValueError(f"expected a short text, got {shown(value)}")
    return value


def _image(value: object) -> str:
    text = _text(value)
    try:
        whole = canonical(text)
    except BadReference as exc:
        raise ValueError(str(exc)) from None
    if whole != text:
        raise ValueError(f"expected the whole name of an image, {shown(whole)}, got {shown(text)}")
    return text


def _platform(value: object) -> Platform:
    return read_platform(_text(value))


def _matching(pattern: re.Pattern[str], noun: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"expected {noun}, got {shown(value)}")
        return value

    return read


_digest = _matching(_DIGEST, "sha256: and 64 hexadecimal digits")


def _digests(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list of digests, got {shown(value)}")
    return tuple(map(_digest, value))


def _archive(value: object) -> str:
    name = _matching(_FILE_NAME, "the name of a file beside the record")(value)
    if not name.endswith(KINDS):
        raise ValueError(f"expected a name that ends in {listed(KINDS)}, got {shown(name)}")
    return name


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a number of bytes, got {shown(value)}")
    return value


def _moment(value: object) -> str:
    text = _text(value)
    try:
        offset = datetime.fromisoformat(text).utcoffset()
    except ValueError:
        offset = None
    if offset != timedelta(0):
        raise ValueError(f'expected a time in UTC such as "2026-01-31T12:00:00Z", got {shown(text)}')
    return text


_READERS: Mapping[str, Callable[[object], Any]] = {
    "image": _image,
    "platform": _platform,
    "config_digest": _digest,
    "diff_ids": _digests,
    "archive": _archive,
    "size_bytes": _size,
    "sha256": _matching(_SHA256, "64 hexadecimal digits"),
    "created": _moment,
    "made_by": _text,
}
