"""The models that calls can name, as OpenAI's clients list them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from scavenge.calls import ModelCard, Page
from scavenge.core.naming import shown
from scavenge.core.plainjson import write_json
from scavenge.edge.gateway.framing import JSON
from scavenge.edge.gateway.wire import Refusal


def models_page(cards: Sequence[ModelCard], name: str | None) -> Page:
    """All models, or the one with that *name*. Raises :class:`Refusal` where there is none."""
    if name is None:
        return _page({"object": "list", "data": [_plain(card) for card in cards]})
    for card in cards:
        if card.id == name:
            return _page(_plain(card))
    there = ", ".join(shown(card.id) for card in cards) or "none"
    raise Refusal(404, "model_not_found", f"there is no model {shown(name)}; there is {there}")


def _plain(card: ModelCard) -> dict[str, object]:
    return {"id": card.id, "object": "model", "created": 0, "owned_by": "scavenge", "root": card.root}


def _page(document: dict[str, object]) -> Page:
    return Page(200, JSON, write_json(document))
