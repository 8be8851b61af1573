"""Asks one plugin for what it adds, through the hooks. Every fault is a ``PluginError`` that names the plugin.

It decides whether a plugin keeps to the hooks. It must not know of other plugins: each has a manager of its own, so
that no plugin can stop another's answers.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import attrs
import pluggy

import scavenge.plugin
from scavenge.core.codeplace import raised_line
from scavenge.core.naming import one_line, shown, suggestion
from scavenge.errors import PluginError
from scavenge.plugin import AdmissionPolicyType, EndpointSourceType, EnvironmentType, ImageStoreType, Scorer

T = TypeVar("T")


@attrs.frozen
class Collected:
    """What one plugin adds."""

    sources: tuple[EndpointSourceType, ...] = ()
    policies: tuple[AdmissionPolicyType, ...] = ()
    environments: tuple[EnvironmentType, ...] = ()
    scorers: tuple[Scorer, ...] = ()
    stores: tuple[ImageStoreType, ...] = ()


def collect(name: str, plugin: object) -> Collected:
    """Everything that the plugin's hooks return.

    Raises :class:`scavenge.errors.PluginError`.
    """
    hooks = _hooks_of(name, plugin)
    return Collected(
        sources=_returned(name, hooks, "scavenge_endpoint_sources", EndpointSourceType),
        policies=_returned(name, hooks, "scavenge_admission_policies", AdmissionPolicyType),
        environments=_returned(name, hooks, "scavenge_environments", EnvironmentType),
        scorers=_returned(name, hooks, "scavenge_scorers", Scorer),
        stores=_returned(name, hooks, "scavenge_image_stores", ImageStoreType),
    )


def _hooks_of(name: str, plugin: object) -> pluggy.PluginManager:
    manager = pluggy.PluginManager("scavenge")
    manager.add_hookspecs(scavenge.plugin)
    hooks = sorted(vars(manager.hook))
    try:
        manager.register(plugin, name=name)
        callers = manager.get_hookcallers(plugin)
    except Exception as exc:  # pluggy's own errors, and whatever looking at the plugin raises
        raise PluginError(name, f"does not fit the hooks: {one_line(str(exc))}") from exc
    if not callers:
        raise PluginError(name, "implements no hook; is @hookimpl missing?")
    if unknown := sorted(caller.name for caller in callers if not caller.has_spec()):
        raise PluginError(name, f"unknown hook {shown(unknown[0])}; {suggestion(unknown[0], hooks)}")
    return manager


def _returned(name: str, manager: pluggy.PluginManager, hook: str, kind: type[T]) -> tuple[T, ...]:
    caller: pluggy.HookCaller = getattr(manager.hook, hook)
    found = [item for impl in caller.get_hookimpls() for item in _call(name, hook, impl.function, kind)]
    counts = Counter(getattr(item, "name", "") for item in found)
    if twice := [item for item, count in counts.items() if count > 1]:
        raise PluginError(name, f"{hook} returns two of the name {shown(twice[0])}")
    return tuple(found)


def _call(name: str, hook: str, function: Callable[[], object], kind: type[T]) -> list[T]:
    try:
        returned = function()
    except (Exception, SystemExit) as exc:
        raise PluginError(name, f"{hook} raised {raised_line(exc, function, one_line)}") from exc
    if inspect.iscoroutine(returned):
        returned.close()
        raise PluginError(name, f"{hook} is a coroutine function; a hook is a plain function")
    if not isinstance(returned, (list, tuple)):
        raise PluginError(name, f"{hook} returned {shown(returned)}, expected a list of {kind.__name__}")
    for item in returned:
        if not isinstance(item, kind):
            raise PluginError(name, f"{hook} returned {shown(item)} in its list, expected {kind.__name__}")
    return list(returned)
