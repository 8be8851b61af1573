"""What the image plan has its shell do, and what it tells those who wait. Values only."""

from __future__ import annotations

from typing import NewType, TypeAlias

import attrs

WaiterId = NewType("WaiterId", int)


@attrs.frozen
class List:
    """Ask the engine once for all images that it has. One is under way at most."""


@attrs.frozen
class LookAtDisk:
    """Find out how much room the engine's disk has. One is under way at most."""


@attrs.frozen
class Deliver:
    """Have the image delivered by the source of that number (its place in the order of sources, from 0)."""

    image: str
    source: int


@attrs.frozen
class Remove:
    """Remove an image that this run brought, by its name. It is claimed by nobody here."""

    image: str


@attrs.frozen
class Ready:
    """The image is there. ``how``: ``present`` (it was there), ``delivered`` or ``assumed`` (the engine is silent)."""

    how: str
    source: str = ""
    """The lane that delivered it, where one did."""


@attrs.frozen
class Unavailable:
    """The image will not be there: ``why`` tells what each source said, in one line."""

    why: str


@attrs.frozen
class Answer:
    """Tell a waiter what came of its wait; it is no waiter any more."""

    waiter: WaiterId
    image: str
    what: Ready | Unavailable


Command: TypeAlias = "List | LookAtDisk | Deliver | Remove | Answer"
