"""Who is given to which worker now: the oldest first, to the emptiest; suspects alone. Pure.

A suspect waits for its turn by age like all others. Then a worker is kept for it: that one is given nothing more until
it is empty, plays the suspect, and is open again. So a suspect is not overtaken for ever, and the others keep one
worker wherever there are two.
"""

from __future__ import annotations

from collections.abc import Iterator

from scavenge.core.supervision.commands import Give
from scavenge.core.supervision.crew import Crew
from scavenge.core.supervision.parking import Parking


def gives(parking: Parking, crew: Crew, multiplex: int) -> Iterator[Give]:
    """Take out of the parking what can be played now, and put it into workers."""
    crew.swap_kept()
    while crew.open:
        if parking.suspect_is_first() and _may_keep(parking, crew):
            _keep(parking, crew)
        elif (give := _give_plain(parking, crew, multiplex)) is not None:
            yield give
        else:
            break
    for ticket, worker in crew.emptied():
        parking.remove(ticket)
        crew.put(ticket, worker)
        yield Give(ticket, worker.id)


def _may_keep(parking: Parking, crew: Crew) -> bool:
    """Whether another worker may be kept for a suspect: not the last one of several while there is other work."""
    others = len(parking) + crew.playing - parking.suspects - crew.alone
    return crew.open > 1 or crew.ready == 1 or not others


def _keep(parking: Parking, crew: Crew) -> None:
    worker = crew.emptiest()
    assert worker is not None  # noqa: S101 - one is open
    crew.keep(worker, parking.set_aside())


def _give_plain(parking: Parking, crew: Crew, multiplex: int) -> Give | None:
    ticket, worker = parking.first(), crew.emptiest()
    if ticket is None or worker is None or len(worker.places) >= multiplex:
        return None
    parking.remove(ticket)
    crew.put(ticket, worker)
    return Give(ticket, worker.id)
