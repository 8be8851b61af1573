"""What ``scavenge plugins`` shows."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from scavenge.app.console import screen_on_stderr
from scavenge.core.naming import one_line
from scavenge.edge.console_table import table_text
from scavenge.plugins.manager import load_plugins
from scavenge.plugins.registry import Plugin


def plugins_text(*, as_json: bool) -> str:
    """Every plugin as a table, or as JSON. A plugin that takes no part is there with the reason."""
    redact = screen_on_stderr().redact
    found = load_plugins().describe()
    return redact(_json(found) if as_json else _table(found))


def _table(found: Sequence[Plugin]) -> str:
    head = ("plugin", "distribution", "version", "adds")
    return table_text(head, [_row(plugin) for plugin in found])


def _row(plugin: Plugin) -> tuple[str, str, str, str]:
    kinds = dict.fromkeys(kind for kind, _ in plugin.adds)
    named = {kind: [name for other, name in plugin.adds if other == kind] for kind in kinds}
    adds = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in named.items()) or "–"
    if plugin.error is not None:
        adds = one_line(plugin.error) if plugin.disabled else f"failed: {one_line(plugin.error)}"
    return plugin.name, plugin.distribution or "–", plugin.version or "–", adds


def _json(found: Sequence[Plugin]) -> str:
    document = {"plugins": [_entry(plugin) for plugin in found]}
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
