"""The slot ledger once more, written to be obviously right instead of fast; tests compare the two step by step.

The model keeps plain lists and walks the whole queue in order. Where the ledger has a choice among equals, the model
checks that its choice is one of the best and follows it.
"""

from __future__ import annotations

import math

import attrs

from scavenge.core.ledger import Ask
from scavenge.core.pace import Line


@attrs.define(eq=False)
class Entry:
    limit: int
    cap: float
    turn: int
    gone: bool = False
    line: Line | None = None


class SlotModel:
    """Accounts, queue and leases of a ledger, counted independently. ``ledger`` is what is checked."""

    def __init__(self, ledger):
        self.ledger = ledger
        self.entries = {}
        self.queue = []  # tickets of the ledger, in order
        self.leases = []
        self.turn = 0
        self.kept = None  # (ticket, url)
        self.excess = {}  # url -> slots that a shrink or a large group may leave above the limit

    # --- what happens

    def join(self, url, limit, hard_cap=None):
        self.ledger.join(url, limit, hard_cap)
        cap = math.inf if hard_cap is None else hard_cap
        self.entries[url] = Entry(min(limit, cap), cap, self.turn)
        self._note_excess(url)

    def leave(self, url):
        self.ledger.leave(url)
        self.entries[url].gone = True
        self.entries[url].limit = 0
        self._note_excess(url)
        self._drop(url)

    def set_limit(self, url, limit, hard_cap=None):
        self.ledger.set_limit(url, limit, hard_cap)
        entry = self.entries[url]
        entry.cap = math.inf if hard_cap is None else hard_cap
        entry.limit = min(limit, entry.cap)
        self._note_excess(url)

    def set_line(self, url, line):
        self.ledger.set_line(url, line)
        self.entries[url].line = line

    def enqueue(self, ask):
        ticket = self.ledger.enqueue(ask)
        self.queued(ticket)
        return ticket

    def queued(self, ticket):
        self.queue.append(ticket)
        self.queue.sort(key=lambda waiting: waiting.ask.order)  # stable: equal ones in the order they came

    def withdraw(self, ticket):
        self.ledger.withdraw(ticket)
        self.withdrawn(ticket)

    def withdrawn(self, ticket):
        self.queue.remove(ticket)
        if self.kept and self.kept[0] is ticket:
            self.kept = None

    def give_back(self, lease):
        self.ledger.give_back(lease)
        self.given_back(lease)

    def given_back(self, lease):
        self.leases.remove(lease)
        self._note_excess(lease.url)
        self._drop(lease.url)

    def grant(self):
        granted = self.ledger.grant()
        self.check_grants(granted)
        return [lease for _, lease in granted]

    # --- what must be

    def check_grants(self, granted):
        """Walk the queue as the rules say, and compare."""
        final = self.ledger.kept
        expected = iter(granted)
        keeping = None
        for ticket in list(self.queue):
            places = self._places(ticket, keeping)
            if places:
                granted_ticket, lease = next(expected, (None, None))
                assert granted_ticket is ticket, "a ticket that fits was passed over"
                assert lease.url in places, f"{lease.url} is not among the best places {places}"
                self._lend(ticket, lease)
            elif keeping is None and ticket.ask.slots > 1 and self._able(ticket):
                assert final is not None, "no endpoint is kept free for the first group"
                assert final.ticket is ticket, "an endpoint is kept free for somebody else"
                if self.kept and self.kept[0] is ticket:
                    assert final.account.url == self.kept[1], "the endpoint that is kept free changed"
                assert final.account.url in self._able(ticket)
                keeping = (ticket, final.account.url)
        assert next(expected, None) is None, "more was granted than fits"
        assert keeping is not None or final is None, "an endpoint is kept free for nobody"
        self.kept = keeping

    def check(self):
        """Compare every count, and the invariants that hold between any two calls."""
        assert {account.url for account in self.ledger} == set(self.entries)
        for url, entry in self.entries.items():
            lent = self.lent(url)
            assert self.ledger.lent(url) == lent
            assert self.ledger.free(url) == max(0, entry.limit - lent)
            assert set(self.ledger.leases_on(url)) == {lease for lease in self.leases if lease.url == url}
            assert (url in self.ledger) == (not entry.gone)
            assert lent <= max(entry.limit, self.excess[url]), "lent above the limit"
        assert self.ledger.tickets() == self.queue
        assert self.ledger.waiting == len(self.queue)
        for slots in (1, 3, 7):
            ever = any(not entry.gone and entry.cap >= slots for entry in self.entries.values())
            assert self.ledger.fits_ever(slots) == ever

    def lent(self, url):
        return sum(lease.slots for lease in self.leases if lease.url == url)

    # --- the rules

    def _able(self, ticket):
        """Open endpoints that can hold it, now or when they are idle, less the avoided ones if that leaves some."""
        able = [url for url, entry in self.entries.items() if entry.limit and ticket.ask.slots <= entry.cap]
        return [url for url in able if url not in ticket.ask.avoid] or able

    def _holds(self, ticket, url):
        return url in self._able(ticket)

    def _places(self, ticket, keeping):
        slots = ticket.ask.slots
        usable = [url for url in self._able(ticket) if keeping is None or url != keeping[1]]
        within = [url for url in usable if self.lent(url) + slots <= self.entries[url].limit]
        fits = within + [url for url in usable if url not in within and self.lent(url) == 0]
        if ticket.ask.prefer in fits:
            return [ticket.ask.prefer]
        candidates = within or fits
        rank = {url: self._rank(url) for url in candidates}
        return [url for url in candidates if rank[url] == min(rank.values())]

    def _rank(self, url):
        """The idle ones without a speed, those with one by what a request more would be served at, the rest by load."""
        entry, lent = self.entries[url], self.lent(url)
        if entry.line is None:
            return (2 if lent else 0, lent / entry.limit, entry.turn)
        return (1, entry.line.roughly_at(lent + 1), entry.turn)

    def _lend(self, ticket, lease):
        assert lease.slots == ticket.ask.slots
        self.queue.remove(ticket)
        self.leases.append(lease)
        self.turn += 1
        entry = self.entries[lease.url]
        entry.turn = self.turn
        self.excess[lease.url] = max(self.excess[lease.url], self.lent(lease.url) if lease.slots > entry.limit else 0)

    def _note_excess(self, url):
        self.excess[url] = self.lent(url)
        if self.kept and not self._holds(*self.kept):
            self.kept = None  # though it may qualify again before the next grant

    def _drop(self, url):
        if self.entries[url].gone and not self.lent(url):
            del self.entries[url]


URLS = ["a", "b", "c", "d"]
LINES = [None, Line(1 / 64, 1 / 1024), Line(1 / 16, 1 / 16), Line(0, 1 / 8), Line(1 / 8, 1 / 8192)]
"""Powers of two: every cost is exact, so that what is equal is equal however it is computed."""


def random_step(model, rnd):
    """One random change; every step keeps to what a caller may do."""
    listed = [url for url, entry in model.entries.items() if not entry.gone]
    unlisted = [url for url in URLS if url not in listed]
    limit, cap = rnd.choice([0, 1, 2, 3, 5]), rnd.choice([None, None, 1, 2, 4])
    match rnd.choice("jslppqqqqwggggbbbb"):
        case "j" if unlisted:
            model.join(rnd.choice(unlisted), limit, cap)
        case "s" if listed:
            model.set_limit(rnd.choice(listed), limit, cap)
        case "l" if listed and rnd.random() < 0.5:
            model.leave(rnd.choice(listed))
        case "p" if listed:
            model.set_line(rnd.choice(listed), rnd.choice([None, None, None, *LINES]))
        case "q":
            model.enqueue(random_ask(rnd))
        case "w" if model.queue:
            model.withdraw(rnd.choice(model.queue))
        case "b" if model.leases:
            model.give_back(rnd.choice(model.leases))
        case "g":
            model.grant()


def random_ask(rnd):
    return Ask(
        order=(rnd.randrange(4),),
        slots=rnd.choice([1, 1, 1, 1, 2, 3, 6]),
        avoid=frozenset(rnd.sample(URLS, rnd.choice([0, 0, 0, 1, 2, 3]))),
        prefer=rnd.choice([None, None, *URLS]),
    )


def run_random_steps(ledger, rnd, steps):
    """Drive a ledger through random steps beside the model."""
    model = SlotModel(ledger)
    for _ in range(steps):
        random_step(model, rnd)
        model.check()
    model.grant()
    model.check()
