"""What ``scavenge plugins`` shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import orjson

from scavenge.app.console import screen_on_stderr
from scavenge.core.naming import listed, one_line, shown, suggestion
from scavenge.edge.console_table import table_text
from scavenge.plugins.manager import DISABLE_VARIABLE, load_plugins
from scavenge.plugins.registry import Plugin, Registry


def plugins_text(*, as_json: bool) -> str:
    """Every plugin as a table, or as JSON. A plugin that takes no part is there with the reason."""
    redact = screen_on_stderr().redact
    registry = load_plugins()
    return redact(_json(registry) if as_json else _text(registry))


def _text(registry: Registry) -> str:
    head = ("plugin", "distribution", "version", "adds")
    owners = {(clash.kind, clash.name): clash.owners for clash in registry.clashes()}
    table = table_text(head, [_row(plugin, owners) for plugin in registry.describe()])
    return "\n".join([table, *_in_vain(registry)])


def _row(plugin: Plugin, owners: Mapping[tuple[str, str], Sequence[str]]) -> tuple[str, str, str, str]:
    named: dict[str, list[str]] = {}
    for kind, name in plugin.adds:
        named.setdefault(kind, []).append(name + _clash(plugin, owners.get((kind, name), ())))
    adds = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in named.items()) or "–"
    if plugin.error is not None:
        adds = one_line(plugin.error) if plugin.disabled else f"failed: {one_line(plugin.error)}"
    return plugin.name, plugin.distribution or "–", plugin.version or "–", adds


def _clash(plugin: Plugin, owners: Sequence[str]) -> str:
    """What is to be said of a name that has these owners, if it is several."""
    if not owners:
        return ""
    others = list(owners)
    others.remove(plugin.label)
    return f" (added by {listed(others)}, too: stands for nothing)"


def _in_vain(registry: Registry) -> Iterator[str]:
    """What is turned off and is not there."""
    every = registry.describe()[1:]
    names = {name for plugin in every for name in (plugin.name, plugin.distribution) if name is not None}
    for name in registry.unknown_disabled:
        yield f"{DISABLE_VARIABLE}: no installed plugin {shown(name)}; {suggestion(name, names)}"


def _json(registry: Registry) -> str:
    document = {
        "plugins": [_entry(plugin) for plugin in registry.describe()],
        "clashes": [{"kind": clash.kind, "name": clash.name, "plugins": clash.owners} for clash in registry.clashes()],
        "unknown_disabled": registry.unknown_disabled,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def _entry(plugin: Plugin) -> dict[str, object]:
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "adds": [{"kind": kind, "name": name} for kind, name in plugin.adds],
        "error": plugin.error,
        "disabled": plugin.disabled,
    }
