"""Servers of different speed behind one ledger, their speeds learnt from their replies; in virtual time, without Trio.

The servers are the model of a batching engine, so that the speeds to be learnt are known exactly.
"""

from __future__ import annotations

import random

import attrs

from scavenge.core.ledger import Ask, SlotLedger
from scavenge.core.pace import Line, Pace
from scavenge.testing.engine import Engine, EngineSettings


@attrs.define(eq=False)
class Request:
    number: int
    came_at: float
    tokens: int
    lease: object = None
    sent_at: float = 0.0


@attrs.define(eq=False, slots=False)
class MixedFleet:
    """``servers`` gives each the seconds per token that it takes at least, those that a stream adds, and its slots.

    With ``learning`` the ledger is told the speeds, otherwise it goes by load alone.
    """

    servers: dict[str, tuple[float, float, int]]
    learning: bool = True
    now: float = 0.0
    served: list[tuple[str, float]] = attrs.field(factory=list)  # where, and how long after it came
    errors: list[float] = attrs.field(factory=list)  # of each reply: how far off the speed at its load is known then
    _came: int = 0

    def __attrs_post_init__(self):
        self.ledger = SlotLedger()
        self.engines, self.paces, self.running = {}, {}, {}
        self.waiting = {}
        for url, (token_s, load_s, slots) in self.servers.items():
            self.ledger.join(url, slots)
            self.engines[url] = Engine(EngineSettings(token_s, load_s, slots))
            self.paces[url] = Pace()

    def law(self, url):
        return Line(*self.servers[url][:2])

    def come(self, tokens):
        """Let a request come now."""
        self._came += 1
        ticket = self.ledger.enqueue(Ask((self._came,)))
        self.waiting[ticket] = Request(self._came, self.now, tokens)
        self._send()

    def _send(self):
        for ticket, lease in self.ledger.grant():
            request = self.waiting.pop(ticket)
            request.lease, request.sent_at = lease, self.now
            self.running[request.number] = request
            assert self.engines[lease.url].submit(request.number, 0, request.tokens, self.now)
        idle = [url for url in self.servers if self.ledger.free(url)]
        assert not (idle and self.waiting), f"somebody waits though {idle} have room"

    def next_at(self):
        return min((at for engine in self.engines.values() if (at := engine.next_event_at()) is not None), default=None)

    def let_pass(self, until):
        """Let time pass; tell how many replies have ended."""
        before = len(self.served)
        self.now = until
        for url, engine in self.engines.items():
            for progress in engine.advance(until):
                if progress.finished:
                    self._end(url, self.running.pop(progress.request_id))
        self._send()
        return len(self.served) - before

    def _end(self, url, request):
        streams = self.ledger.lent(url)
        duration_s = self.now - request.sent_at
        self.served.append((url, self.now - request.came_at))
        self.paces[url].observe(request.tokens, duration_s, streams, self.now)
        self.ledger.give_back(request.lease)
        if self.learning:
            self.ledger.set_line(url, self.paces[url].line())
        self._compare(url, streams)

    def _compare(self, url, streams):
        known, true_s = self.paces[url].line(), self.law(url).at(streams)
        self.errors.append(known.at(streams) / true_s - 1)

    @property
    def mean_s(self):
        """The mean time from a request's coming to its end."""
        return sum(seconds for _, seconds in self.served) / len(self.served)

    def shares(self, since=0):
        """The part of the replies that each server gave."""
        urls = [url for url, _ in self.served[since:]]
        return {url: urls.count(url) / len(urls) for url in self.servers}


def keep_in_flight(fleet, requests, at_once, seed=0):
    """So many requests, ``at_once`` of them under way or waiting at any time."""
    rnd = random.Random(seed)
    for _ in range(at_once):
        fleet.come(draw(rnd))
    left = requests - at_once
    while (at := fleet.next_at()) is not None:
        for _ in range(min(left, fleet.let_pass(at))):
            fleet.come(draw(rnd))
            left -= 1
    return fleet


def come_every(fleet, requests, every_s, seed=0):
    """So many requests, one each ``every_s`` seconds, whatever the fleet makes of them."""
    rnd = random.Random(seed)
    for number in range(requests):
        come_at = number * every_s
        while (at := fleet.next_at()) is not None and at <= come_at:
            fleet.let_pass(at)
        fleet.let_pass(come_at)
        fleet.come(draw(rnd))
    while (at := fleet.next_at()) is not None:
        fleet.let_pass(at)
    return fleet


def draw(rnd):
    return max(1, round(rnd.lognormvariate(5, 0.6)))
