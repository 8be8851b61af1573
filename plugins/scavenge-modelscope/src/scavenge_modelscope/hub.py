"""ModelScope's SDK, as far as it is used: every call blocks, and is made in a thread.

``upload_file`` of the SDK makes a public repository where there is none, prints to the standard output, tells nobody
how far it is and cannot be stopped; so files are stored by the calls that it is made of: a blob, and then a commit.

Invariant: whoever leaves a call behind in its thread has the thread end soon, and close what it has opened.
"""

from __future__ import annotations

import base64
import hashlib
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import requests
from modelscope_hub import HubApi, HubConfig
from modelscope_hub.errors import (
    APIError,
    AuthenticationError,
    HubError,
    NotExistError,
    PermissionDeniedError,
    QuotaExceededError,
    RateLimitError,
)

from scavenge.plugin import StoreError
from scavenge_modelscope.config import ModelScopeConfig

PIECE_BYTES = 2**20
STEP_BYTES = 2**16
"""So much of what came is lost when a connection breaks."""
INLINE_BYTES = 64 * 2**10
"""What is no larger may stand in a commit itself; the SDK draws the line there."""
CONNECT_S = 30
IDLE_S = 120
"""How long the site may say, or take, nothing."""

_REMEDIES: dict[type[APIError], str] = {
    AuthenticationError: "it wants a token, or refuses the one that it got; see `token_var`",
    PermissionDeniedError: "the token may not do that; see `token_var`, and who may write to the repository",
    QuotaExceededError: "the account has no room left; delete something there, or ask for more",
    NotExistError: "not there, or private and the token may not see it; make it, or see `repo` and `token_var`",
}


_RAISED = (HubError, requests.RequestException, OSError)


class Passing(Exception):
    """What may go well when it is tried again; the text says what it was."""


class Left(Exception):
    """Nobody waits for this call any more."""


@attrs.define(eq=False)
class Hub:
    """One repository."""

    config: ModelScopeConfig
    _token: str | None = attrs.field(repr=False)
    _folder: str
    """Where the SDK keeps its own files: never the user's, which may hold another token."""
    _api: Any = attrs.field(init=False, repr=False)
    _seen: bool = attrs.field(default=False, init=False)
    """Whether the repository is known to be there."""

    def __attrs_post_init__(self) -> None:
        folder = Path(self._folder)
        own = HubConfig(endpoint=self.config.endpoint, token=self._token or "", cache_dir=folder, config_dir=folder)
        self._api = HubApi(own).legacy

    def close(self) -> None:
        """Close the connections that are idle; the SDK has no call for it."""
        for name in ("_session", "_read_session"):
            session: requests.Session | None = getattr(self._api, name, None)
            if session is not None:
                session.close()

    # --- reading

    def ask(self, name: str, start: int) -> requests.Response:
        """The head of a file's answer, its body as a stream.

        Raises ``FileNotFoundError``, :class:`Passing` and :class:`StoreError`.
        """
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        where = (self.config.repo, self.config.repo_type, name, self.config.revision)
        try:
            return self._api.download_stream(*where, headers=headers)  # type: ignore[no-any-return]
        except _RAISED as exc:
            failure = self._meant(name, exc)
        # raised out here, so that it does not hold the SDK's error, which holds an answer with its connection
        if isinstance(failure, _NotThere):
            self._check_repository()
            failure = FileNotFoundError(name)
        raise failure

    def _check_repository(self) -> None:
        """Raise :class:`StoreError` unless the repository is there: else each of its files would just be missing."""
        if not self._seen:
            try:
                with self.told(""):
                    self._api.get_repo_info(self.config.repo, self.config.repo_type)
            except _NotThere as exc:
                raise StoreError(f"{self.config.where}: {_REMEDIES[NotExistError]}") from exc
            self._seen = True

    # --- storing

    def store(self, name: str, path: Path, upload: Upload) -> None:
        """Store a file under a name, in a commit of its own.

        Raises :class:`Passing`, :class:`StoreError` and :class:`Left`.
        """
        where = (self.config.repo, self.config.repo_type)
        with path.open("rb") as file:
            size, digest = _measured(file, upload)
            action = {"action": "create", "path": name, "size": size}
            try:
                with self.told(name):
                    if size <= INLINE_BYTES:
                        content = base64.b64encode(file.read()).decode()
                        action |= {"type": "normal", "sha256": "", "content": content, "encoding": "base64"}
                    else:
                        self._send(where, file, size, digest, upload)
                        action |= {"type": "lfs", "sha256": digest, "content": "", "encoding": ""}
                    upload.go_on()
                    self._api.create_commit(*where, [action], f"Store {name}", self.config.revision)
            except _NotThere as exc:
                raise StoreError(f"{self.config.where}: {_REMEDIES[NotExistError]}") from exc

    def _send(self, where: tuple[str, str], file: io.BufferedReader, size: int, digest: str, upload: Upload) -> None:
        urls = self._api.validate_blobs(*where, [{"oid": digest, "size": size}])
        if (url := urls.get(digest)) is not None:  # without one the site has it
            self._api.upload_blob(url, Body(file, upload), size, timeout=(CONNECT_S, IDLE_S))

    # --- errors

    @contextmanager
    def told(self, name: str) -> Iterator[None]:
        """Raise what the SDK raises as :class:`Passing`, :class:`StoreError` or ``_NotThere``, without secrets."""
        try:
            yield
        except _RAISED as exc:
            raise self._meant(name, exc) from None

    def _meant(self, name: str, exc: Exception) -> Exception:
        if isinstance(exc, NotExistError):
            return _NotThere(name)
        if not isinstance(exc, HubError):
            return Passing(self._line(f"{type(exc).__name__}: {exc}"))
        status = getattr(exc, "status_code", None)
        said = self._line(f"HTTP {status}: {exc.message}" if status else str(exc.message))
        where = f"{self.config.where}: {name}: "
        if isinstance(exc, RateLimitError):
            return StoreError(f"{where}{said}; it is left alone for a while", retry_after_s=exc.retry_after or 0.0)
        if exc.retryable:
            return Passing(said)
        remedy = next((remedy for kind, remedy in _REMEDIES.items() if isinstance(exc, kind)), "see what the site says")
        return StoreError(f"{where}{said}; {remedy}")

    def _line(self, text: str) -> str:
        if self._token:
            text = text.replace(self._token, "[secret]")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line if len(line) <= 300 else line[:299] + "…"


class _NotThere(Exception):
    """The site knows no such thing."""


# --- what goes up


@attrs.define(eq=False)
class Upload:
    """A file on its way, as both threads see it. ``heard`` is called in the one that sends."""

    heard: Callable[[int, int], None]
    left: threading.Event = attrs.field(factory=threading.Event)

    def go_on(self) -> None:
        """Raise :class:`Left` when nobody waits any more."""
        if self.left.is_set():
            raise Left


class Body:
    """A file as the body of a request, which may be begun again, and is stopped when nobody waits for it."""

    def __init__(self, file: io.BufferedReader, upload: Upload) -> None:
        self._file = file
        self._upload = upload
        self._size = file.seek(0, io.SEEK_END)
        file.seek(0)

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        self._upload.go_on()
        data = self._file.read(PIECE_BYTES if size < 0 else max(size, PIECE_BYTES))
        self._upload.heard(self._file.tell(), self._size)
        return data

    def tell(self) -> int:
        """How much was read."""
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Begin again."""
        return self._file.seek(offset, whence)


def _measured(file: io.BufferedReader, upload: Upload) -> tuple[int, str]:
    hasher, size = hashlib.sha256(), 0
    while piece := file.read(PIECE_BYTES):
        upload.go_on()
        hasher.update(piece)
        size += len(piece)
    file.seek(0)
    return size, hasher.hexdigest()


# --- what comes down


class Stream:
    """An answer that is read in threads, one at a time, and may be left while one of them is at it."""

    def __init__(self, hub: Hub, name: str) -> None:
        self._hub = hub
        self._name = name
        self._lock = threading.Lock()
        self._busy = False
        self._left = threading.Event()
        self._response: requests.Response | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._broken: Passing | None = None

    def connect(self, start: int) -> requests.Response:
        """Ask for the file from a place on. Raises what :meth:`Hub.ask` raises, and :class:`Left`."""
        with self._working():
            self._response = self._hub.ask(self._name, start)
            self._pieces = self._response.iter_content(STEP_BYTES)
            return self._response

    def read(self) -> bytes:
        """The next piece, empty at the end. Raises :class:`Passing` where the connection breaks."""
        gathered = bytearray()
        with self._working():
            while len(gathered) < PIECE_BYTES and self._broken is None and (step := self._step()):
                gathered += step
        if not gathered and self._broken is not None:
            raise self._broken
        return bytes(gathered)

    def _step(self) -> bytes:
        """A little more; what came before a break is kept."""
        try:
            with self._hub.told(self._name):
                return next(self._pieces, b"")
        except Passing as exc:
            self._broken = exc
            return b""

    def leave(self) -> None:
        """Close it, at once or when the thread that is at it comes back. Never waits."""
        with self._lock:
            self._left.set()
            if not self._busy:
                self._close()

    @contextmanager
    def _working(self) -> Iterator[None]:
        with self._lock:
            if self._left.is_set():
                raise Left
            self._busy = True
        try:
            yield
        finally:
            with self._lock:
                self._busy = False
                if self._left.is_set():
                    self._close()

    def _close(self) -> None:
        if self._response is not None:
            self._response.close()
