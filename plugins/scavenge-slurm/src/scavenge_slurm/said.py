"""What a job tells of itself: words in its comment, keys in its state file. Pure.

A job is no trusted author: what it writes may be half-written or nonsense. Nonsense is as good as nothing: a fact that
is not known, which costs that job only.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping

import tomli

from scavenge_slurm.jobs import Job

_BETWEEN = re.compile(r"[\s,;]+")
_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)=(.+)")
_URL = re.compile(
    r"https?://(?:(?!-)[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[(?P<ip6>[0-9a-f:.]+)\])(?::(?P<port>[0-9]+))?(?:/[!$-;=@-~]*)?",
    re.IGNORECASE,
)
"""What an endpoint's URL may be: a host, a port and a path, without user name, query and fragment."""

_YES = frozenset({"true", "yes", "1"})


class NotWhole(ValueError):
    """A state file that is not what a job means to say; the text says why, on one line."""


def words(job: Job) -> list[str]:
    """The words of a job's comments."""
    return [word for comment in job.comments for word in _BETWEEN.split(comment) if word]


def comment_pairs(job: Job) -> dict[str, str]:
    """The words ``key=value`` of a job's comments; of two with one key, the first."""
    pairs: dict[str, str] = {}
    for word in words(job):
        if found := _PAIR.fullmatch(word):
            pairs.setdefault(found[1], found[2])
    return pairs


def state_pairs(data: bytes, suffix: str) -> dict[str, str]:
    """The keys of a state file, a table in JSON or TOML; tables and lists in it are passed over.

    Raises :class:`NotWhole`.
    """
    try:
        text = data.decode("utf-8")
        document: object = json.loads(text) if suffix == ".json" else tomli.loads(text)
    except (ValueError, RecursionError) as exc:
        raise NotWhole(f"no {suffix[1:].upper()}: {' '.join(str(exc).split())}") from None
    if not isinstance(document, dict) or not document:
        raise NotWhole("no table with a key in it")
    return {str(key): _plain(value) for key, value in document.items() if isinstance(value, str | int | float)}


def _plain(value: str | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def facts_of(job: Job, node: str, file: Mapping[str, str]) -> dict[str, object]:
    """The facts of the server that a job has on a node."""
    comment = comment_pairs(job)
    told = {**comment, **file}
    host, port = told.get("host") or node, _port(told.get("port"))
    return {
        "job_id": job.job_id,
        "array_job_id": job.array_job_id,
        "array_task_id": job.array_task_id,
        "name": job.name,
        "user": job.user,
        "account": job.account,
        "partition": job.partition,
        "node": node,
        "host": host,
        "port": port,
        "url": _url(told.get("url"), host, port),
        **_named("comment.", comment.items()),
        **_named("file.", file.items()),
    }


def says_draining(job: Job, file: Mapping[str, str]) -> bool:
    """Whether the job says that its server takes no new work any more."""
    return {**comment_pairs(job), **file}.get("draining", "").lower() in _YES


def _named(prefix: str, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {f"{prefix}{key}": value for key, value in pairs}


def _port(text: str | None) -> int | None:
    port = int(text) if text is not None and re.fullmatch(r"[0-9]{1,5}", text) else 0
    return port if 0 < port < 65536 else None


def _url(text: str | None, host: str, port: int | None) -> str | None:
    if text is None and (port is None or "/" in host):
        return None
    place = f"[{host}]" if ":" in host and not host.startswith("[") else host
    url = f"http://{place}:{port}/v1" if text is None else text
    return url if _is_url(url) else None


def _is_url(text: str) -> bool:
    found = _URL.fullmatch(text)
    if found is None or (found["port"] and _port(found["port"]) is None):
        return False
    try:
        return found["ip6"] is None or ipaddress.IPv6Address(found["ip6"]) is not None
    except ValueError:
        return False
