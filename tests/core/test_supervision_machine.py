"""The supervisor under arbitrary events, beside a model that keeps its own account of every worker and rollout.

Deciding is a rule of its own, so that any events meet between two decisions. At the end of each history the machine
recovers: from then on workers start, load and answer, and every rollout has to be played within a bounded time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scavenge.core.supervision import SupervisorSettings, Ticket
from supervision_account import Account

BACKOFF_MAX_S = 30.0
STARTUP_S = 60.0
RECOVERY_S = 250.0
"""Back-off, one that hangs, one that has to be killed, suspects one after another: all of that fits in."""


class SupervisorMachine(Account, RuleBasedStateMachine):
    @initialize(
        least=st.integers(1, 2),
        beyond=st.integers(0, 2),
        multiplex=st.integers(1, 3),
        deadline=st.sampled_from([20.0, 1e9]),
        seed=st.integers(0, 3),
    )
    def build(self, least, beyond, multiplex, deadline, seed):
        settings = SupervisorSettings(least, least + beyond, multiplex, STARTUP_S, BACKOFF_MAX_S, deadline)
        self.begin(settings, Random(seed))

    # --- rollouts

    @rule(older=st.booleans())
    def ask(self, older):
        self.age += 1
        ticket = Ticket(-self.age if older else self.age, f"rollout {self.age}")
        self.deaths[ticket] = 0
        self.park(ticket)

    @precondition(lambda self: self.displaced)
    @rule(data=st.data())
    def ask_again(self, data):
        ticket = data.draw(st.sampled_from(self.displaced))
        self.displaced.remove(ticket)
        self.park(ticket)

    @precondition(lambda self: self.parked or self.where or self.owed or self.displaced)
    @rule(data=st.data())
    def withdraw(self, data):
        there = [ticket for ticket in self.where if ticket not in self.withdrawn]
        choice = [*self.parked, *there, *self.owed, *self.displaced]
        if not choice:
            return
        ticket = data.draw(st.sampled_from(choice))
        self.event("withdraw", ticket)
        self.end(ticket, "withdrawn")
        self.withdrawn.add(ticket)
        self.parked.pop(ticket, None)
        self.owed.pop(ticket, None)
        if ticket in self.displaced:
            self.displaced.remove(ticket)
        if ticket in there and self.where[ticket].stage == "ready":
            self.to_abort.add(ticket)

    @precondition(lambda self: self.where)
    @rule(data=st.data())
    def answer(self, data):
        self.answered(data.draw(st.sampled_from(list(self.where))))

    # --- workers

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def ready(self, data):
        """Also one that is over, and one that has been ready before."""
        self.loaded(data.draw(st.sampled_from(list(self.processes.values()))))

    @precondition(lambda self: self.workers("starting"))
    @rule(data=st.data())
    def cannot_be_spawned(self, data):
        process = data.draw(st.sampled_from(self.workers("starting")))
        self.event("on_not_spawned", process.number, "no memory")
        self.how[process.slot] = "not spawned"
        self.gone(process)

    @precondition(lambda self: self.workers("starting", "ready"))
    @rule(data=st.data())
    def broken(self, data):
        process = data.draw(st.sampled_from(self.workers("starting", "ready")))
        self.event("on_broken", process.number, "KeyError")
        process.blamed = process.stage == "ready"
        if process.stage == "starting":
            self.how[process.slot] = "loading"
        self.to_abort -= process.inside
        self.leave(process, "over")

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def die(self, data):
        self.died(data.draw(st.sampled_from(list(self.processes.values()))))

    @precondition(lambda self: self.workers("ready"))
    @rule(data=st.data())
    def freeze(self, data):
        data.draw(st.sampled_from(self.workers("ready"))).frozen = True

    # --- time

    @rule(seconds=st.sampled_from([0.1, 0.9, 5.0]))
    def live_on(self, seconds):
        """Time passes as it does: whoever is not frozen is heard of, and what is decided is done."""
        self.live(self.now + seconds)

    @rule(seconds=st.sampled_from([40.0, 100.0]))
    def live_long(self, seconds):
        self.live(self.now + seconds)

    @rule(seconds=st.sampled_from([3.0, 1_000.0]))
    def stall(self, seconds):
        """Nobody runs: what the workers said meanwhile is heard after the next decision."""
        self.now += seconds
        if self.settled:
            self.decide()  # no worker that is not frozen is killed as one that hangs, see kill()

    @rule()
    def settle(self):
        self.decide()

    # --- what always holds

    @invariant()
    def no_more_workers_than_allowed(self):
        assert len(self.workers("starting", "ready")) <= self.settings.max

    @invariant()
    def the_status_counts_as_the_model_does(self):
        status = self.supervisor.status(self.now)
        assert (status.ready, status.starting) == (len(self.workers("ready")), len(self.workers("starting")))
        assert (status.playing, status.parked) == (len(self.where), len(self.parked))
        assert status.state in ("starting", "ready", "degraded", "empty")

    @precondition(lambda self: self.settled and not self.gave_up)
    @invariant()
    def nobody_waits_for_a_place_that_is_free(self):
        suspects = [ticket for ticket in self.parked if ticket.deaths >= 2]
        room = [
            process
            for process in self.workers("ready")
            if len(process.inside) < self.settings.multiplex and all(one.deaths < 2 for one in process.inside)
        ]
        if len(self.parked) > len(suspects):
            assert len(room) <= len(suspects)  # each of them may be being emptied for one
        elif suspects and len(self.workers("ready")) == 1:
            assert all(process.inside for process in room)

    def teardown(self):
        """The machine recovers: whatever is still owed is played, and the pool grows to its full size."""
        if hasattr(self, "supervisor"):
            self.recover(answering=True, until=lambda: len(self.ended) == len(self.deaths))
            assert self.gave_up or self.ended.keys() == self.deaths.keys()
            assert self.settings.request_deadline_s < RECOVERY_S or "refused" not in self.ended.values()
            for _ in range(self.settings.max * self.settings.multiplex):
                self.ask(older=False)
            self.recover(answering=False, until=lambda: len(self.workers("ready")) == self.settings.max)
            assert self.gave_up or len(self.workers("ready")) == self.settings.max

    def recover(self, answering: bool, until: Callable[[], bool]) -> None:
        """From now on workers start, load and, but for the frozen ones, answer; for a bounded time."""
        give_up_at = self.now + RECOVERY_S
        while self.now < give_up_at and not self.gave_up and not until():
            self.decide()
            for ticket in tuple(self.displaced):
                self.displaced.remove(ticket)
                self.park(ticket)
            for process in self.workers("over"):
                self.died(process)
            for process in self.workers("starting"):
                self.loaded(process)
            for ticket, process in tuple(self.where.items()):
                if not process.frozen and (answering or ticket in self.withdrawn):
                    self.answered(ticket)
            self.live(self.now + 0.25)


TestSupervisorMachine = SupervisorMachine.TestCase
