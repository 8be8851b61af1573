"""Lends the places of a pool's sessions, and lets their calls go. The doorkeeper decides who; nothing here does.

A session holds its place from before its first call to its end, also while its tools run; the slots of its calls are
somebody else's. The order is place, then turn, then slots, and whoever holds a later one never waits for an earlier
one; a call beside another of the same session never waits for its turn. So there is no circle to be caught in.

Invariants: whoever is at the doorkeeper's door is one parked task, which is woken once, with its place, or withdraws
when it is cancelled; every paused call is one parked task, which is woken once, or gives the call up; every call that
:meth:`SessionGate.turn` let go is owed one :meth:`SessionGate.turn_ended`. Only entering and turns wait.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
import trio

from scavenge.core.sessions.book import Call, LiveSession, Stage
from scavenge.core.sessions.doorkeeper import LEFT, Doorkeeper
from scavenge.core.sessions.policy import Capacity, SessionPolicy, SessionsView
from scavenge.errors import UsageError
from scavenge.events import Observer, SessionsMoved
from scavenge.signals import ServerLoad
from scavenge.status import SessionsStatus
from scavenge.types import EndpointId, Url, Usage

TOLD_SHARE = 0.1
"""A limit or budget that moved by no more than this part of itself is not told of."""


@attrs.define(eq=False)
class SessionGate:
    """The session gate of one pool. ``name`` is the policy's, for people."""

    endpoint_id: EndpointId
    name: str
    policy: SessionPolicy
    emit: Observer = attrs.field(repr=False)
    _keeper: Doorkeeper = attrs.field(init=False)
    _entering: dict[LiveSession, trio.lowlevel.Task] = attrs.field(factory=dict, init=False, repr=False)
    _paused: dict[Call, trio.lowlevel.Task] = attrs.field(factory=dict, init=False, repr=False)
    _told: SessionsView = attrs.field(init=False)
    """What observers have heard of last."""
    _looks_at: float = attrs.field(default=math.inf, init=False)
    """Until when :meth:`wait_due` waits."""
    _sooner: trio.Event = attrs.field(factory=trio.Event, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._keeper = Doorkeeper(self.policy)
        self._told = self.policy.view()

    # --- how it is doing

    @property
    def taken(self) -> int:
        """How many sessions have a place."""
        return self._keeper.book.live

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return self._keeper.book.waiting

    @property
    def paused(self) -> int:
        """How many have one, and wait between two calls."""
        return self._keeper.book.paused

    @property
    def wants_load(self) -> bool:
        """Whether the policy goes by the servers' own figures."""
        return self.policy.wants_load

    def status(self) -> SessionsStatus | None:
        """How the sessions are doing; ``None`` while none has ever asked for a place."""
        book, view = self._keeper.book, self.policy.view()
        if not book.knocked:
            return None
        return SessionsStatus(
            policy=self.name,
            live=book.live,
            waiting=book.waiting,
            paused=book.paused,
            limit=view.limit,
            context_tokens=book.counted_tokens,
            budget_tokens=view.budget_tokens,
            reason=view.reason,
        )

    # --- places

    @trio.lowlevel.enable_ki_protection
    async def enter(self, age: int) -> LiveSession:
        """Wait for a place; the lower *age*, the earlier. The caller has to :meth:`leave`, or somebody it tells to.

        *Cancellation* takes the session from the door; once the place is granted, it is returned.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        place = self._keeper.knock(age)
        self.settle()
        if place.stage is Stage.LIVE:
            await trio.lowlevel.cancel_shielded_checkpoint()  # a granted place must reach its owner
        else:
            self._entering[place] = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(lambda _: self._withdraw(place))
        return place

    def _withdraw(self, place: LiveSession) -> trio.lowlevel.Abort:
        del self._entering[place]
        self._keeper.withdraw(place)
        return trio.lowlevel.Abort.SUCCEEDED

    @trio.lowlevel.enable_ki_protection
    def leave(self, place: LiveSession) -> None:
        """Give a place back, from any task; calls of it that are paused raise :class:`UsageError`. Never waits.

        Raises :class:`UsageError` when it was given back before.
        """
        for call in self._keeper.leave(place, trio.current_time()):
            trio.lowlevel.reschedule(self._paused.pop(call))
        self.settle()

    def restart(self, place: LiveSession) -> None:
        """Whoever has a place begins another conversation in it. Never waits.

        Raises :class:`UsageError` when it was given back.
        """
        self._keeper.restart(place)
        self.settle()

    # --- turns

    @trio.lowlevel.enable_ki_protection
    async def turn(self, place: LiveSession, prompt_tokens: float) -> float:
        """Wait until a call with a prompt of about so many tokens may go, and tell for how many seconds it was paused.

        The caller owes one :meth:`turn_ended`. Raises :class:`UsageError` when the place was given back.

        *Cancellation* gives the call up; once it may go, this returns.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        asked_at = trio.current_time()
        call = self._keeper.ask(place, prompt_tokens, asked_at)
        self.settle()
        if call.may_go:
            await trio.lowlevel.cancel_shielded_checkpoint()  # somebody has to end what went out
        else:
            self._paused[call] = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(lambda _: self._drop(call))
        if not call.may_go:
            raise UsageError(LEFT)
        return trio.current_time() - asked_at

    def _drop(self, call: Call) -> trio.lowlevel.Abort:
        del self._paused[call]
        self._keeper.drop(call, trio.current_time())
        self.settle()
        return trio.lowlevel.Abort.SUCCEEDED

    @trio.lowlevel.enable_ki_protection
    def turn_ended(
        self,
        place: LiveSession,
        usage: Usage | None = None,
        first_token_s: float | None = None,
        url: Url | None = None,
    ) -> None:
        """A call that went is over, from any task, also after its place was given back. Never waits.

        *usage* is what the reply told, ``None``: there was none; *first_token_s* runs from when the request went to
        its endpoint, and *url* is the endpoint that answered.
        """
        self._keeper.end(place, usage, first_token_s, url, trio.current_time())
        self.settle()

    # --- what there is to work with

    def set_slots(self, slots: int) -> None:
        """Hear how many requests the pool may have in flight: the sum of its endpoints' limits."""
        self._keeper.set_slots(slots, trio.current_time())
        self.settle()

    def set_capacity(self, loads: Mapping[Url, ServerLoad]) -> None:
        """Hear which endpoints there are, and what each tells of itself; one that tells nothing has an empty load.

        To be called whenever an endpoint comes or goes, and when figures were read. Sessions whose endpoint is gone
        keep their place, and count again once they go on elsewhere.
        """
        self._keeper.set_capacity(Capacity(dict(loads)), trio.current_time())
        self.settle()

    # --- granting

    @trio.lowlevel.enable_ki_protection
    def settle(self) -> None:
        """Let in and on whoever may, and wake exactly those tasks."""
        now = trio.current_time()
        places, calls = self._keeper.grant(now)
        granted = [self._paused.pop(call, None) for call in calls]
        granted += [self._entering.pop(place, None) for place in places]
        for task in granted:
            if task is not None:
                trio.lowlevel.reschedule(task)
        self._tell()
        if (self._keeper.next_wake_at() or math.inf) < self._looks_at:
            self._sooner.set()

    def _tell(self) -> None:
        view = self.policy.view()
        if _moved(self._told.limit, view.limit) or _moved(self._told.budget_tokens, view.budget_tokens):
            self._told = view
            self.emit(SessionsMoved(self.endpoint_id, self.taken, view.reason, view.limit, view.budget_tokens))

    async def wait_due(self) -> None:
        """Wait until time may let somebody go, or until that may be sooner than it was."""
        self._sooner = trio.Event()
        self._looks_at = self._keeper.next_wake_at() or math.inf
        with trio.move_on_at(self._looks_at):
            await self._sooner.wait()
        self._looks_at = math.inf


async def run_session_gate(gate: SessionGate) -> None:
    """Let those in and on whose time has come, until it is cancelled."""
    while True:
        await gate.wait_due()
        gate.settle()


def _moved(told: float | None, new: float | None) -> bool:
    """Whether a bound has moved far enough to be told."""
    if told is None or new is None:
        return told is not new
    return abs(new - told) > TOLD_SHARE * told
