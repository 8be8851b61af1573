"""What an engine says while it pulls or loads: JSON objects, one after the other, in pieces of any size. Pure.

Knows nothing of connections, nor of what an error means (:mod:`scavenge.core.images.said`). Whatever comes, feeding it
never raises: what is no such stream is an error text. The first error stands.

Docker separates its objects by CRLF and ends a pull with ``Status: …``; an error after the first byte comes as an
object with ``errorDetail`` under status 200. Podman separates by newlines, knows only ``error``, and ends a pull with
one more ``Download complete`` (its libpod calls with ``Pull complete``), so that a stream of podman's that is cut
between two layers looks whole: whoever wants to be sure looks whether the image is there. A load ends with
``Loaded image: NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs
import orjson

from scavenge.core.naming import one_line, shown
from scavenge.images import Transferred

OBJECT_BYTES = 2**20
"""How long one object may be."""

ERROR_CHARACTERS = 4000
LAYERS = 10_000
"""Of how many layers the progress is followed, and how many loaded names are kept."""

SHOWN_BYTES = 200
"""How much of an answer is shown that is no such stream."""

_STRUCTURE = re.compile(rb'["\\{}]')
_SPACE = re.compile(rb"[ \t\r\n]*")
_LOADED = re.compile(r"Loaded image(?:\(s\))?(?: ID)?: *(.*)", re.DOTALL)
_DOCKER_ENDS = "Status: "
_PODMAN_ENDS = frozenset({"Download complete", "Pull complete"})
_CUT = "the engine's answer was cut before its end"
_GARBAGE = "the engine's answer is not what it should be"


@attrs.define
class _Layer:
    done_bytes: int = 0
    total_bytes: int = 0


@attrs.define(eq=False)
class PullStream:
    """The answer to one pull or load. ``feed`` it what comes, then ask how it ended.

    Invariants: the object under way begins at ``_start`` of ``_held``; what stands before ``_seen`` has been looked at;
    ``_depth`` braces are open there, and ``_quoted`` tells whether that is inside a string. With ``_garbage``, nothing
    is read any more.
    """

    last_status: str = attrs.field(default="", init=False)
    _error: str | None = attrs.field(default=None, init=False)
    _names: list[str] = attrs.field(factory=list, init=False)
    _layers: dict[str, _Layer] = attrs.field(factory=dict, init=False)
    _is_dockers: bool = attrs.field(default=False, init=False)
    _garbage: bytearray | None = attrs.field(default=None, init=False, repr=False)
    """The beginning of what is no object."""
    _held: bytearray = attrs.field(factory=bytearray, init=False, repr=False)
    _start: int = attrs.field(default=0, init=False)
    _seen: int = attrs.field(default=0, init=False)
    _depth: int = attrs.field(default=0, init=False)
    _quoted: bool = attrs.field(default=False, init=False)

    @property
    def error(self) -> str | None:
        """What the engine says went wrong, or what is wrong with its answer."""
        if self._error is None and self._garbage is not None:
            return f"{_GARBAGE}: {shown(self._garbage.decode('utf-8', 'replace'))}"
        return self._error

    @property
    def loaded(self) -> tuple[str, ...]:
        """What was loaded, as the engine calls it: names with tags, or ``sha256:…`` for what has no name."""
        return tuple(self._names)

    @property
    def transferred(self) -> Transferred:
        """How much of the layers that are under way, or done, has come."""
        layers = self._layers.values()
        done_bytes = sum(layer.done_bytes for layer in layers)
        total_bytes = sum(max(layer.total_bytes, layer.done_bytes) for layer in layers)
        return Transferred(done_bytes, total_bytes or None)

    def feed(self, data: bytes) -> None:
        """Take in the next piece of the answer."""
        if self._garbage is not None:
            self._garbage += data[: SHOWN_BYTES - len(self._garbage)]
            return
        self._held += data
        while end := self._end_of_object():
            self._read(bytes(self._held[self._start : end]))
            self._start = self._seen = end
        del self._held[: self._start]
        self._seen -= self._start
        self._start = 0

    def end(self) -> str | None:
        """What went wrong, now that nothing more comes; ``None``: it ended as it should."""
        if self.error is not None:
            return self.error
        whole = bool(self._names) or self._has_final_status()
        return None if whole and not self._held else _CUT

    def _has_final_status(self) -> bool:
        if self.last_status.startswith(_DOCKER_ENDS):
            return True
        return not self._is_dockers and self.last_status in _PODMAN_ENDS

    def _end_of_object(self) -> int:
        """Where the object under way ends, 0: not yet, or never."""
        if not self._depth and not self._find_start():
            return 0
        for mark in _STRUCTURE.finditer(self._held, self._seen):
            if mark.start() >= self._seen:  # else it is escaped
                self._seen = mark.end()
                if self._closes(mark[0]):
                    break
        else:
            self._seen = max(self._seen, len(self._held))
        if self._seen - self._start > OBJECT_BYTES:
            self._fail(f"{_GARBAGE}: a line of more than {OBJECT_BYTES >> 20} MiB")
            self._give_up()
        return 0 if self._depth else self._seen

    def _find_start(self) -> bool:
        """Skip what stands between two objects; whether another one begins."""
        found = _SPACE.match(self._held, self._start)
        self._start = self._seen = found.end() if found else self._start
        if self._held[self._start : self._start + 1].strip(b"{"):
            self._give_up()
        return self._start < len(self._held)

    def _closes(self, mark: bytes) -> bool:
        """Take one mark of structure into account; whether it closes the object."""
        if mark == b"\\":
            self._seen += 1 if self._quoted else 0
        elif mark == b'"':
            self._quoted = not self._quoted
        elif not self._quoted:
            self._depth += 1 if mark == b"{" else -1
        return self._depth == 0

    def _give_up(self) -> None:
        """Read nothing any more."""
        self._garbage = self._held[self._start : self._start + SHOWN_BYTES]
        self._held.clear()
        self._start = self._seen = self._depth = 0

    def _fail(self, text: str) -> None:
        if self._error is None:
            self._error = one_line(text, ERROR_CHARACTERS)

    def _read(self, line: bytes) -> None:
        try:
            said = orjson.loads(line)
        except orjson.JSONDecodeError:
            self._give_up()
        else:
            self._hear(said)

    def _hear(self, said: Mapping[str, object]) -> None:
        if (error := _error_in(said)) is not None:
            self._fail(error or "the engine says that it failed, and not why")
            return
        status = said.get("status")
        if isinstance(status, str):
            self._read_status(status, said)
        if isinstance(stream := said.get("stream"), str) and (found := _LOADED.match(stream.strip())):
            names = re.split(r"[\s,]+", found[1])
            self._names += [name for name in names if name][: LAYERS - len(self._names)]

    def _read_status(self, status: str, said: Mapping[str, object]) -> None:
        self.last_status = one_line(status)
        self._is_dockers |= status.startswith("Pulling from ")
        layer = said.get("id")
        if not isinstance(layer, str) or (layer not in self._layers and len(self._layers) >= LAYERS):
            return
        if status == "Downloading":
            known = self._layers.setdefault(layer, _Layer())
            detail = said.get("progressDetail")
            current, total = _bytes_in(detail, "current"), _bytes_in(detail, "total")
            known.done_bytes = max(known.done_bytes, current)
            known.total_bytes = max(known.total_bytes, total)
        elif status == "Download complete" and layer in self._layers:
            known = self._layers[layer]
            known.done_bytes = max(known.done_bytes, known.total_bytes)


def _error_in(said: Mapping[str, object]) -> str | None:
    """The text of an error, empty where there is one without any; ``None``: it is none.

    ``message`` stands alone in what podman answers when it fails outside of the pull itself.
    """
    detail = said.get("errorDetail")
    texts = [detail.get("message") if isinstance(detail, Mapping) else None, said.get("error")]
    if "status" not in said and "stream" not in said:
        texts.append(said.get("message"))
    found = next((text for text in texts if isinstance(text, str) and text.strip()), None)
    if found is None:
        return "" if said.get("error") or detail else None
    return found


def _bytes_in(detail: object, key: str) -> int:
    number = detail.get(key) if isinstance(detail, Mapping) else None
    return max(0, int(number)) if isinstance(number, int | float) and abs(number) < 2**60 else 0
