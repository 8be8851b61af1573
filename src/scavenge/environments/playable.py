"""Whether an object or a class is an environment that can be played, and where: in this process or in workers.

It decides by the attributes ``backend`` and ``in_worker`` and by the kinds of its functions; it calls none. It must not
know what an environment is named in a file, nor how it is made.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import attrs

from scavenge.core.codeplace import raised_line
from scavenge.core.naming import one_line, shown
from scavenge.environments.references import fail
from scavenge.runtime.ports import Environment

_BACKENDS = ("trio", "asyncio", "sync")
_FUNCTIONS = ("examples", "play", "open", "close")
_ATTRIBUTES = ("multi_turn", "backend", "in_worker")
_MISSING: Final = object()


@attrs.frozen
class Traits:
    """What an environment says of itself that decides where it is played."""

    backend: str = Environment.backend
    in_worker: bool = Environment.in_worker


@attrs.frozen
class Wishes:
    """What the evaluation file says of it. ``where`` is the place of the ``[[eval]]`` table."""

    where: str
    in_worker: bool | None
    """``None``: as the environment says."""
    workers: bool
    """Whether there are worker processes at all."""

    def check(self) -> None:
        """Raise :class:`scavenge.errors.ConfigError` where a worker is asked for and there are none."""
        if self.in_worker and not self.workers:
            fail(f"{self.where}.in_worker", "is true, but [workers] has enabled = false; change one of the two")

    def hosted(self, traits: Traits) -> bool:
        """Whether it is played in workers.

        Raises :class:`scavenge.errors.ConfigError` when it has to be and may not.
        """
        if traits.backend == "trio":
            return self.workers and (traits.in_worker if self.in_worker is None else self.in_worker)
        only = f'the environment has backend = "{traits.backend}" and is played in worker processes only'
        if self.in_worker is False:
            fail(f"{self.where}.in_worker", f"is false, but {only}; leave in_worker out, or set it to true")
        if not self.workers:
            fail(f"{self.where}.env_id", f"{only}, but [workers] has enabled = false; set it to true")
        return True


def class_traits(factory: object) -> Traits | None:
    """What a class of environments says of those it makes; ``None`` for another callable, or where it cannot say."""
    if not inspect.isclass(factory) or not hasattr(factory, "play"):
        return None
    backend, in_worker = getattr(factory, "backend", Traits().backend), getattr(factory, "in_worker", False)
    known = backend in _BACKENDS and isinstance(in_worker, bool)  # a property is known of what is made only
    return Traits(backend, in_worker) if known else None


def check_class(kind: type, traits: Traits, maker: str, where: str) -> None:
    """Raise :class:`scavenge.errors.ConfigError` for a class that makes nothing that can be played."""
    if missing := [name for name in _FUNCTIONS if not hasattr(kind, name)]:
        fail(where, f"{maker} lacks {missing[0]}; subclass scavenge.Environment")
    _check_functions({name: getattr(kind, name) for name in _FUNCTIONS}, kind.__name__, traits.backend, where)


def check_made(made: object, maker: str, where: str) -> Traits:
    """What an environment says of itself, once it is known to be one that can be played.

    Raises :class:`scavenge.errors.ConfigError`.
    """
    if inspect.iscoroutine(made):
        made.close()
        fail(where, f"{maker} is a coroutine function; an environment is made by a plain function or class")
    kind = type(made).__name__
    has = {name: _read(made, name, maker, where) for name in (*_FUNCTIONS, *_ATTRIBUTES)}
    if missing := [name for name, value in has.items() if value is _MISSING]:
        fail(where, f"{maker} made {kind}, which lacks {missing[0]}; subclass scavenge.Environment")
    backend, in_worker = has["backend"], has["in_worker"]
    if not isinstance(backend, str) or backend not in _BACKENDS:
        fail(where, f"backend is {shown(backend)}, must be one of {', '.join(map(shown, _BACKENDS))}")
    for name in ("in_worker", "multi_turn"):
        if not isinstance(has[name], bool):
            fail(where, f"{name} of {kind} is {shown(has[name])}, must be True or False")
    _check_functions(has, kind, backend, where)
    return Traits(backend, bool(in_worker))


def _read(made: object, name: str, maker: str, where: str) -> Any:
    try:
        return getattr(made, name, _MISSING)
    except Exception as exc:
        fail(
            where,
            f"{maker} made {type(made).__name__}, whose {name} cannot be read: {raised_line(exc, made, one_line)}",
        )


def _check_functions(has: dict[str, Any], kind: str, backend: str, where: str) -> None:
    wanted = "def" if backend == "sync" else "async def"
    own = {"examples": "def examples(self)", "play": f"{wanted} play(self, example, model)"}
    for name, signature in own.items():
        if _is_base(has[name], name):
            fail(where, f"{kind} has no {name} of its own; give it `{signature}`")
    if not callable(has["examples"]) or _is_async(has["examples"]):
        fail(where, f"{kind}: examples must be a plain function, `def examples(self)`; it may block")
    for name in ("play", "open", "close"):
        _check_function(has[name], name, kind, backend, where)


def _check_function(function: Any, name: str, kind: str, backend: str, where: str) -> None:
    arguments = "self, example, model" if name == "play" else "self"
    if _is_base(function, name):
        return
    if backend == "sync":
        if not callable(function) or _is_async(function) or inspect.isgeneratorfunction(function):
            remedy = f'write `def {name}({arguments})`, or set backend = "asyncio"'
            fail(where, f'{kind}: {name} must be a plain function with backend = "sync"; {remedy}')
    elif not inspect.iscoroutinefunction(inspect.unwrap(function)):
        remedy = f"write `async def {name}({arguments})`"
        other = ', or set backend = "sync" for one that blocks' if name == "play" else ""
        fail(where, f'{kind}: {name} must be an async function with backend = "{backend}"; {remedy}{other}')


def _is_base(function: Any, name: str) -> bool:
    return getattr(function, "__func__", function) is getattr(Environment, name)


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
