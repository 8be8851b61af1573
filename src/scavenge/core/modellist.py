"""What the reply to a probe says: is the server there, and does it serve the model. Pure.

The list of models is OpenAI's ``data`` or Ollama's and llama.cpp's ``models``; an entry goes by ``id``, ``name`` or
``model``, by an alias, and without ``:latest`` or the folders of a file's path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scavenge.core.errorbody import Wording, describe, stated_error
from scavenge.core.naming import nearest
from scavenge.core.outcome import outcome_of_error_in_reply, outcome_of_status
from scavenge.core.plainjson import read_json_fast
from scavenge.types import Failed, Healthy, Misrouted, Outcome

_NO_LIST = frozenset({404, 405, 501})


def outcome_of_probe(
    model: str, status: int, headers: Mapping[str, str], body: bytes, wording: Wording, now_time: float = 0.0
) -> Healthy | Outcome:
    """What a server's reply to a probe means; header names are in lower case."""
    if status in _NO_LIST:
        return Healthy(listed=False)
    if not 200 <= status < 300:
        return outcome_of_status(status, headers, body, wording, now_time)
    try:
        document = read_json_fast(body)
    except ValueError:
        return _without_json(body, status, wording)
    if (facts := stated_error(document)) is not None:
        return outcome_of_error_in_reply(facts, status, wording, streamed=False)
    entries = _entries(document)
    return Healthy(listed=False) if entries is None else _look_up(model, entries, status, wording)


def _without_json(body: bytes, status: int, wording: Wording) -> Healthy | Failed:
    text = body.decode(errors="replace").strip()
    if not text.startswith("<"):
        return Healthy(listed=False)
    return Failed(wording.line(f"HTTP {status} with {describe(text)} in place of a list of models"), status)


def _entries(document: object) -> list[object] | None:
    if isinstance(document, list):
        return document
    if isinstance(document, Mapping):
        lists = [value for key in ("data", "models") if isinstance(value := document.get(key), list)]
        return [entry for entries in lists for entry in entries] if lists else None
    return None


def _look_up(model: str, entries: list[object], status: int, wording: Wording) -> Healthy | Misrouted:
    names = {name for entry in entries for name in _names(entry)}
    if names & {model, f"{model}:latest"} or model in {name.rsplit("/", 1)[-1] for name in names if name[:1] in "/."}:
        return Healthy()
    if not names:
        return Misrouted(wording.line(f"{wording.tried}: the server lists no models"), status, curable=True)
    near = nearest(model, names)
    hint = f"did you mean {near!r}" if near else f"it lists {', '.join(map(repr, sorted(names)[:5]))}"
    message = f"{wording.tried}: the server does not list the model {model!r}; {hint}"
    return Misrouted(wording.line(message), status, curable=True)


def _names(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, Mapping):
        aliases = entry.get("aliases")
        names = [
            entry.get("id"),
            entry.get("name"),
            entry.get("model"),
            *(aliases if isinstance(aliases, list) else ()),
        ]
        for name in names:
            if isinstance(name, str) and name:
                yield name
