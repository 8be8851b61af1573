"""The checks for endpoint sources find each way in which an answer can be wrong, and tell what it is."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from source_registry import Plain, Polling, Registry, Watching, WrongOnes, opener, watcher

from scavenge.plugin import Listing, SourceError

WRONG = WrongOnes()


@pytest.fixture
def registry() -> Registry:
    return Registry()


# --- while all is well


@WRONG.kind(r"opened once, the first listing after opening: list_endpoints\(\) returned list, not a Listing; wrap")
class ReturnsAList(Plain):
    async def list_endpoints(self):
        return list((await super().list_endpoints()).endpoints)


@WRONG.kind(r"list_endpoints\(\) returned Listing at once; make it an `async def`")
class IsNotAsync(Plain):
    def list_endpoints(self):
        return Listing(self.registry.rows())


@WRONG.kind(r"expected a list of endpoints, got 3; give Listing\(\.\.\.\) a list of EndpointSpec")
class ListsANumber(Plain):
    async def list_endpoints(self):
        return Listing(3)


@WRONG.kind(r"http://10\.0\.0\.2:8000/v1 came twice in one pool; list each server once")
class ListsTwice(Plain):
    async def list_endpoints(self):
        rows = list((await super().list_endpoints()).endpoints)
        return Listing([*rows, attrs.evolve(rows[1], url=f"{rows[1].url}/")])


@WRONG.kind(r"wrong rows: listing: endpoint\[0\]\.max_concurrent: .*0")
class HasAWrongRow(Plain):
    async def list_endpoints(self):
        rows = (await super().list_endpoints()).endpoints
        return Listing([attrs.evolve(row, max_concurrent=0) for row in rows])


@WRONG.kind(r"the listing came without http://10\.0\.0\.2:8000/v1 and with http://10\.0\.0\.9:8000/v1; list all")
class ListsAnother(Plain):
    async def list_endpoints(self):
        rows = (await super().list_endpoints()).endpoints
        return Listing([rows[0], attrs.evolve(rows[1], url="http://10.0.0.9:8000/v1")])


@WRONG.kind(r"asked again with nothing changed: the listing came without http://10\.0\.0\.1:8000/v1, although")
class ListsEachOnce(Plain):
    listed = False

    async def list_endpoints(self):
        rows = (await super().list_endpoints()).endpoints
        rows, self.listed = rows[self.listed :], True
        return Listing(rows)


@WRONG.kind(r"nothing changed: the listing came other settings of http://10\.0\.0\.1:8000/v1, http")
class ChangesItsMind(Plain):
    turn = 0

    async def list_endpoints(self):
        self.turn += 1
        rows = (await super().list_endpoints()).endpoints
        return Listing([attrs.evolve(row, max_concurrent=self.turn) for row in rows])


@WRONG.kind(r"opened once, the first listing after opening: list_endpoints\(\) raised ValueError: bad")
class Raises(Plain):
    async def list_endpoints(self):
        raise ValueError("bad")


@WRONG.kind(r"list_endpoints\(\) raised SystemExit: 3; let it raise SourceError when it cannot say")
class Exits(Plain):
    async def list_endpoints(self):
        raise SystemExit(3)


@WRONG.kind(r"list_endpoints\(\) raised Cancelled: .*; let it raise SourceError")
class KeepsACancellation(Plain):
    async def list_endpoints(self):
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as exc:
                kept = exc
        raise kept


@WRONG.kind(r"the first listing after opening: no answer within 3 s; say what there is without waiting")
class Hangs(Plain):
    async def list_endpoints(self):
        await trio.sleep_forever()


@WRONG.kind(r"asked again with nothing changed: no answer within 3 s")
class HangsLater(Polling):
    long_poll = False


@WRONG.kind(r"the first listing after opening: it ran hot, 50000 steps without an answer; let it wait")
class RunsHot(Plain):
    async def list_endpoints(self):
        while True:
            await trio.lowlevel.checkpoint()


@WRONG.kind(r"asked again with nothing changed: it ran hot, 2000 steps without an answer; let it wait")
class PollsHot(Polling):
    async def list_endpoints(self):
        while self.seen == self.registry.version:
            await trio.lowlevel.checkpoint()
        return await super().list_endpoints()


@WRONG.kind(r"a source with long_poll answered 20 times within 0\.25 s with nothing new; hold the answer")
class NeverHolds(Plain):
    long_poll = True


# --- when servers come and go


@WRONG.kind(r"after a change: the listing came without http://10\.0\.0\.3:8000/v1 and with .*2:8000/v1, 3 s later")
class GrowsStale(Plain):
    first: Listing | None = None

    async def list_endpoints(self):
        listing = await super().list_endpoints()
        self.first = self.first or listing
        return self.first


@WRONG.kind(r"after a change: the answer is held back, 3 s later still; say what there is now")
class HoldsForEver(Polling):
    async def list_endpoints(self):
        if self.seen >= 0:
            await trio.sleep_forever()
        return await super().list_endpoints()


@WRONG.kind(r"there and back, asked again after two changes at once: the listing came without .*, 3 s later still")
class TellsOldNewsLast(Plain):
    known: int | None = None
    late = False

    async def list_endpoints(self):
        listing = await super().list_endpoints()
        if self.late:
            return Listing(self.registry.rows(ago=1))
        self.late = self.known is not None and self.registry.version - self.known > 1
        self.known = self.registry.version
        return listing


@WRONG.kind(r"a change under a held answer: the answer is held back")
class ForgetsWhatItHeld(Polling):
    calls = 0

    async def list_endpoints(self):
        self.calls += 1
        held = self.calls > 1
        if held:
            moved = self.registry.moved
            with trio.move_on_after(0.1):
                await moved.wait()
            if self.seen == self.registry.version:
                await trio.sleep_forever()
        return await super().list_endpoints()


@WRONG.kind(r"after that answer was cancelled: the answer is held back")
class LosesAChange(Polling):
    async def list_endpoints(self):
        while self.seen == self.registry.version and not self.registry.down:
            await self.registry.moved.wait()
        self.seen = self.registry.version
        return await Plain.list_endpoints(self)


@WRONG.kind(r"asked again after listing, cancelled at moment \d+: no answer within 3 s", change=None, faults=[])
class LosesItsFirstAnswer(Polling):
    async def list_endpoints(self):
        while self.seen == self.registry.version and not self.registry.down:
            await self.registry.moved.wait()
        self.seen = self.registry.version
        return await Plain.list_endpoints(self)


@WRONG.way(r"^change\(\) changed nothing that expect\(\) tells; make another set of servers be there$")
def is_changed_by_nothing(registry):
    async def move_not() -> None:
        await trio.lowlevel.checkpoint()

    registry.move = move_not
    return opener(lambda: Plain(registry))


@WRONG.way(r"after a change: the source died: SourceError: it moved, 3 s later still", faults=[])
def dies_of_a_change(registry):
    class Mortal(Watching):
        long_poll = False

        async def watch(self):
            await self.registry.moved.wait()
            raise SourceError("it moved")

        async def list_endpoints(self):
            await trio.lowlevel.checkpoint()
            return Listing(self.registry.rows())

    return watcher(registry, Mortal)


# --- in a fault


@WRONG.kind(
    r'before the fault "outage", asked in it: an empty listing came, which says that every server is gone; raise'
)
class ListsNothingInAFault(Plain):
    async def list_endpoints(self):
        await trio.lowlevel.checkpoint()
        return Listing([] if self.registry.down else self.registry.rows())


@WRONG.kind(
    r'before the fault "outage", asked in it: the listing came without http://10\.0\.0\.\d:8000/v1; raise SourceError'
)
class ListsLessInAFault(Plain):
    async def list_endpoints(self):
        await trio.lowlevel.checkpoint()
        return Listing(self.registry.rows()[self.registry.down :])


@WRONG.kind(
    r'before the fault "outage", asked in it: the listing came other settings of http://10\.0\.0\.1:8000/v1; raise'
)
class DrainsInAFault(Plain):
    async def list_endpoints(self):
        await trio.lowlevel.checkpoint()
        first, *rest = self.registry.rows()
        return Listing([attrs.evolve(first, draining=self.registry.down), *rest])


@WRONG.kind(r'opened in the fault "outage", asked in it: an empty listing came')
class BeginsWithNothing(Plain):
    rows: Any = ()

    async def list_endpoints(self):
        await trio.lowlevel.checkpoint()
        if not self.registry.down:
            self.rows = self.registry.rows()
        return Listing(self.rows)


@WRONG.kind(r'before the fault "outage", asked in it: an empty listing came')
class EmptiesWhatItHeld(Polling):
    async def list_endpoints(self):
        was_down = self.registry.down
        try:
            return await super().list_endpoints()
        except SourceError:
            if was_down:
                raise
            return Listing([])


@WRONG.kind(r'opened in the fault "outage", asked when it was over: list_endpoints\(\) raised SourceError: it was down')
class ComesRoundOnlyIfItWasUp(Plain):
    def __init__(self, registry):
        super().__init__(registry)
        self.broken = registry.down

    async def list_endpoints(self):
        if self.broken:
            raise SourceError("it was down")
        return await super().list_endpoints()


@WRONG.kind(r'before the fault "outage", asked in it: an empty listing came')
class AnswersLateWithNothing(Polling):
    async def list_endpoints(self):
        while self.seen == self.registry.version and not self.registry.down:
            await self.registry.moved.wait()
        if self.registry.down:
            await trio.sleep(2.5)
            return Listing([])
        return await super().list_endpoints()


@WRONG.kind(r'the fault "outage", asked when it was over: list_endpoints\(\) raised SourceError: it was down once, 3 s')
class NeverComesRound(Plain):
    broken = False

    async def list_endpoints(self):
        self.broken |= self.registry.down
        if self.broken:
            raise SourceError("it was down once")
        return await super().list_endpoints()


@WRONG.kind(r'before the fault "outage", asked when it was over, and then changed under: the answer is held back')
class FreezesForGood(Polling):
    frozen = False

    async def list_endpoints(self):
        if self.frozen:
            await trio.sleep_forever()
        try:
            return await super().list_endpoints()
        except SourceError:
            self.frozen = self.seen >= 0
            raise


@WRONG.kind(r'the fault "outage", asked when it was over: an empty listing came')
class ComesRoundEmpty(Plain):
    fell = False

    async def list_endpoints(self):
        self.fell, fell = self.registry.down, self.fell
        listing = await super().list_endpoints()
        return Listing([]) if fell and not self.fell else listing


@WRONG.kind(r"SourceError was raised with the text 'no\\nanswer'; say in one line")
class TellsALot(Plain):
    async def list_endpoints(self):
        if self.registry.down:
            raise SourceError("no\nanswer")
        return await super().list_endpoints()


@WRONG.kind(r"TimeoutError was raised with the text ''; say in one line")
class TellsNothing(Plain):
    async def list_endpoints(self):
        if self.registry.down:
            raise TimeoutError
        return await super().list_endpoints()


@WRONG.kind(
    r"before the fault \"outage\", asked in it: SourceError was raised with a secret in its text; leave it out$",
    secrets=["", "s3cr3t"],
)
class TellsASecret(Plain):
    async def list_endpoints(self):
        if self.registry.down:
            raise SourceError("GET http://registry/?token=s3cr3t: no answer")
        return await super().list_endpoints()


# --- all of them


@pytest.mark.parametrize("name", WRONG.names())
async def test_a_source_whose_answers_are_wrong_is_told_so(autojump_clock, registry, name):
    await WRONG.check(registry, name)
