"""A doorkeeper with sessions in it, by few words."""

from __future__ import annotations

from contextlib import asynccontextmanager

from scavenge.core.sessions.book import Stage
from scavenge.core.sessions.budget import Budget, BudgetSettings
from scavenge.core.sessions.doorkeeper import Doorkeeper
from scavenge.core.sessions.policy import Capacity
from scavenge.signals import ServerLoad
from scavenge.types import Url, Usage

A, B = Url("http://a/v1"), Url("http://b/v1")


class House:
    """A doorkeeper and its clock; each step grants what it allows, as the gate does."""

    def __init__(self, policy=None, slots=100, **settings):
        self.now = 0.0
        self.policy = policy or Budget(BudgetSettings(**settings))
        self.keeper = Doorkeeper(self.policy)
        self.book = self.keeper.book
        self.calls = {}
        self.ages = 0
        self.set_slots(slots)

    def grant(self):
        granted = self.keeper.grant(self.now)
        assert self.keeper.grant(self.now) == ([], []), "somebody waited who might go"
        return granted

    def set_slots(self, slots):
        self.keeper.set_slots(slots, self.now)
        return self.grant()

    def tell(self, **loads):
        """Let the endpoints a and b (as named) tell of themselves."""
        urls = {"a": A, "b": B}
        self.keeper.set_capacity(Capacity({urls[name]: load for name, load in loads.items()}), self.now)
        return self.grant()

    def tell_kv(self, tokens):
        return self.tell(a=ServerLoad(kv_tokens=tokens))

    def knock(self, age=None):
        self.ages = self.ages + 1 if age is None else age
        session = self.keeper.knock(self.ages)
        self.grant()
        return session

    def enter(self, age=None):
        session = self.knock(age)
        assert session.stage is Stage.LIVE, "held at the door"
        return session

    def ask(self, session, prompt):
        """Ask for a call; whether it may go."""
        call = self.calls[session] = self.keeper.ask(session, prompt, self.now)
        self.grant()
        return call.may_go

    def rest(self, seconds=1.0):
        """Let time pass."""
        self.now += seconds
        return self.grant()

    def goes(self, session):
        """Whether its latest call may go."""
        return self.calls[session].may_go

    def end(self, session, prompt=None, reply=0, cached=None, first_token_s=None, url=A):
        usage = None if prompt is None else Usage(prompt, reply, cached)
        self.keeper.end(session, usage, first_token_s, url, self.now)
        return self.grant()

    def take(self, session, prompt, reply=0, cached=None, first_token_s=None, url=A):
        """A whole turn, which may go at once."""
        assert self.ask(session, prompt), "paused"
        self.end(session, prompt, reply, cached, first_token_s, url)

    def leave(self, session):
        withdrawn = self.keeper.leave(session, self.now)
        self.grant()
        return withdrawn

    def enter_with(self, tokens):
        """A session that has made two calls, and whose context has so many tokens."""
        session = self.enter()
        self.take(session, tokens, cached=0)
        self.take(session, tokens, cached=tokens)
        return session


@asynccontextmanager
async def place_in(gate, age):
    """Have a place while the block runs."""
    place = await gate.enter(age)
    try:
        yield place
    finally:
        gate.leave(place)
