"""Who we are to registries, by Docker's and Podman's files and the programs that they name.

The files, in order: ``$REGISTRY_AUTH_FILE``, ``config.json`` in ``$DOCKER_CONFIG`` or ``~/.docker``, and Podman's
``auth.json`` in ``$XDG_RUNTIME_DIR/containers`` (or else ``/run/containers/UID``) and ``~/.config/containers``. The
first that has something for an image counts. What is broken costs itself and one warning. Files and answers of programs
are remembered for :data:`REMEMBERED_S`, so that a login during a run counts soon after.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import attrs
import trio

from scavenge.core.images.dockerauth import Auth, BadConfig, DockerConfig, Helper, Way, helper_auth, parse_config
from scavenge.edge.program import run_program
from scavenge.edge.threads import LimitedThreads

REMEMBERED_S = 300.0
HELPER_WITHIN_S = 10.0
"""How long a program may take; one that asks somebody for a password would take for ever."""

FILE_BYTES = 2**20


_NEVER: tuple[float, None] = (float("-inf"), None)


def _nothing(text: str) -> None:
    """Who is told nothing."""


def _is_past(remembered_at: float) -> bool:
    """Whether what was seen then has to be looked at again."""
    return trio.current_time() - remembered_at >= REMEMBERED_S


@attrs.define(eq=False)
class Credentials:
    """Finds credentials. *warn* is told what is broken, each thing once; *hide* what must never be shown."""

    _environ: Mapping[str, str] = attrs.field(repr=False)
    _warn: Callable[[str], None] = attrs.field(default=_nothing, kw_only=True, repr=False)
    _hide: Callable[[str], None] = attrs.field(default=_nothing, kw_only=True, repr=False)
    _warned: set[str] = attrs.field(factory=set, init=False)
    _configs: tuple[DockerConfig, ...] = attrs.field(default=(), init=False)
    _read_at: float = attrs.field(default=_NEVER[0], init=False)
    _answers: dict[Helper, tuple[float, Auth | None]] = attrs.field(factory=dict, init=False, repr=False)
    _one_at_a_time: trio.Lock = attrs.field(factory=trio.Lock, init=False, repr=False)
    _threads: LimitedThreads = attrs.field(factory=partial(LimitedThreads, 1), init=False, repr=False)

    async def find(self, image: str) -> Auth | None:
        """The credentials for an image (its canonical name) or ``None``. Never raises.

        Cancelled, it kills the program that it asks.
        """
        async with self._one_at_a_time:
            if _is_past(self._read_at):
                await self._read()
            for config in self._configs:
                for way in config.ways(image):
                    if isinstance(way, Helper) and _is_past(self._answers.get(way, _NEVER)[0]):
                        await self._ask(way)
                    if (auth := self._take(way)) is not None:
                        for secret in auth.secrets():
                            self._hide(secret)
                        return auth
        return None

    def _take(self, way: Way) -> Auth | None:
        if isinstance(way, Helper):
            return self._answers[way][1]
        if isinstance(way, Auth):
            return way
        self._say(way.why)
        return None

    async def _read(self) -> None:
        read = partial(_read_all, tuple(files(self._environ)))
        self._configs, problems = await self._threads.run(read, abandon_on_cancel=True)
        self._read_at = trio.current_time()
        for problem in problems:
            self._say(problem)

    async def _ask(self, helper: Helper) -> None:
        answer: Auth | None = None
        try:
            answer = await _run_helper(helper)
        except BadConfig as exc:
            self._say(str(exc))
        self._answers[helper] = trio.current_time(), answer
        await trio.lowlevel.checkpoint()

    def _say(self, problem: str) -> None:
        if problem not in self._warned:
            self._warned.add(problem)
            self._warn(f"no credentials from {problem}")


def files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Where credentials may be, in the order that counts."""
    home = Path(environ["HOME"]) if environ.get("HOME") else None
    if named := environ.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
    if folder := environ.get("DOCKER_CONFIG"):
        yield Path(folder) / "config.json"
    elif home is not None:
        yield home / ".docker" / "config.json"
    if folder := environ.get("XDG_RUNTIME_DIR"):
        yield Path(folder) / "containers" / "auth.json"
    else:
        yield Path(f"/run/containers/{os.getuid()}/auth.json")  # where podman has it then
    if folder := environ.get("XDG_CONFIG_HOME"):
        yield Path(folder) / "containers" / "auth.json"
    elif home is not None:
        yield home / ".config" / "containers" / "auth.json"


def _read_all(paths: tuple[Path, ...]) -> tuple[tuple[DockerConfig, ...], list[str]]:
    configs: list[DockerConfig] = []
    problems: list[str] = []
    for path in paths:
        try:
            if path.is_file():  # reading anything else might never end
                with path.open("rb") as file:
                    configs.append(parse_config(file.read(FILE_BYTES), str(path)))
        except OSError as exc:
            problems.append(f"{path}: {exc.strerror}")
        except BadConfig as exc:
            problems.append(str(exc))
    return tuple(configs), problems


async def _run_helper(helper: Helper) -> Auth | None:
    """What a program says. Raises :class:`BadConfig`."""
    command = [helper.program, "get"]
    try:
        ran = await run_program(command, Path("/"), HELPER_WITHIN_S, told=helper.server.encode())
    except OSError as exc:
        raise BadConfig(f"{helper.origin}, which cannot be started: {exc.strerror}") from None
    if ran.hung:
        raise BadConfig(f"{helper.origin}, which does not end within {HELPER_WITHIN_S:g} s")
    return helper_auth(helper, ran.exit_code, ran.output, ran.complaints)
