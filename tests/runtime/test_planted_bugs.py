"""Bugs planted in the ledger and the dispatcher: the checks must find every one of them.

Each bug is a change of the source text. The changed modules take the place of the real ones while a fast part of the
tests of slots runs against them.
"""

from __future__ import annotations

import gc
import importlib.util
import inspect
import itertools
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest
import trio
from trio.testing import MockClock

from dispatcher_sweeps import SWEEPS, sweep
from dispatcher_world import random_life
from slot_model import run_random_steps

WAITING, PACE = "scavenge.core.waiting", "scavenge.core.pace"
PICKER, LEDGER = "scavenge.core.picker", "scavenge.core.ledger"
DISPATCHER = "scavenge.runtime.dispatcher"
MODULES = [WAITING, PACE, PICKER, LEDGER, DISPATCHER]
TESTS = Path(__file__).parent.parent

BUGS = [
    # the queue
    (WAITING, "insort(keys, key)", "keys.append(key)"),
    (WAITING, "del keys[0 if keys[0] is key else bisect_left(keys, key)]", "del keys[0]"),
    (WAITING, "self._note_avoided(ticket)\n        self.freshen(ticket)", "self.freshen(ticket)"),
    (WAITING, "self._note_avoided(ticket)\n        self.freshen(ticket)", "self._note_avoided(ticket)"),
    (WAITING, "if not bound:\n            self.freshen(ticket)", "if bound:\n            self.freshen(ticket)"),
    (WAITING, "self.stuck_at = -1", "pass"),
    (WAITING, "low = middle + 1", "low = middle + 2"),
    (WAITING, "self._forget_avoided(ticket)\n        ticket.bound", "ticket.bound"),
    (WAITING, "return self.ask.avoid if self.bound else NOBODY", "return self.ask.avoid"),
    (WAITING, "max(self.longest_avoid, len(ticket.ask.avoid))", "self.longest_avoid"),
    (WAITING, "if not line.keys:", "if line.keys:"),
    (WAITING, "value < 1", "value < 0"),
    # the choice
    (PICKER, "slots <= self.room or", "slots < self.room or"),
    (PICKER, "(self.lent == 0 and slots <= self.reach)", "slots <= self.reach"),
    (PICKER, "return self.cap if self.limit else 0", "return self.cap"),
    (PICKER, "self.lent / self.limit if", "self.lent if"),
    (PICKER, "(account.cost, account.turn, account.leaf)", "(account.cost, -account.turn, account.leaf)"),
    (PICKER, "(account.cost, account.turn, account.leaf)", "(account.load, account.turn, account.leaf)"),
    (PICKER, "if self.lent >= self.limit:", "if not self.limit:"),
    (PICKER, "if self.lent >= self.limit:", "if self.lent > self.limit:"),
    (PICKER, "return self.load if self.lent else -math.inf", "return self.load"),
    (PICKER, "return self.load if self.lent else -math.inf", "return -math.inf"),
    (PICKER, "-1 / self.line.roughly_at(self.lent + 1)", "1 / self.line.roughly_at(self.lent + 1)"),
    (PICKER, "-1 / self.line.roughly_at(self.lent + 1)", "-1 / self.line.roughly_at(self.lent)"),
    (PICKER, "-1 / self.line.roughly_at(self.lent + 1)", "self.line.roughly_at(self.lent + 1)"),
    (PICKER, "limit if hard_cap is None else min(limit, hard_cap)", "limit"),
    (PICKER, "top.room >= slots and top.url not in barred", "top.room >= slots"),
    (PICKER, "if account.url not in barred:", "if account.url:"),
    (PICKER, "if best[node] is better and room[node] == most:", "if best[node] is better:"),
    (PICKER, "best[left] < best[right]", "best[left] > best[right]"),
    (PICKER, "room[left] > room[right]", "room[left] < room[right]"),
    (PICKER, "max(most[2 * node], most[2 * node + 1])", "most[2 * node]"),
    (PICKER, "if most[node] == above:", "if above:"),
    (PICKER, "_put(self._idle, node, idle)", "pass"),
    (PICKER, "if account.hidden or account.lent else", "if account.hidden else"),
    (PICKER, "_NOTHING if account.hidden else (", "("),
    (PICKER, "account.hidden = hidden", "pass"),
    (PICKER, "(slots > self.room, self.cost,", "(self.cost,"),
    (PICKER, "(slots > self.room, self.cost,", "(slots > self.room, self.load,"),
    (PICKER, "self._refresh_reach(account)\n        if", "pass\n        if"),
    (PICKER, "if slots > 1 else None", "if slots < 1 else None"),
    (PICKER, "self._by_cost(self._idle,", "self._by_cost(self._reach,"),
    (PICKER, "able > len(avoid) or able >", "able >= len(avoid) or able >"),
    (PICKER, "bisect_left(self._reaches, slots)", "bisect_left(self._reaches, slots + 1)"),
    (PICKER, "insort(self._reaches, account.reach)\n        return True", "return True"),
    (PICKER, "if limit < 0", "if limit < -1"),
    (PICKER, "hard_cap < 1", "hard_cap < 0"),
    # the speed
    (PACE, "self.base_s + self.per_stream_s * streams", "self.base_s + self.per_stream_s"),
    (PACE, "round(16 * mantissa)", "round(256 * mantissa) / 16"),
    (PACE, "tokens > 0 and", "tokens and"),
    (PACE, "1 <= in_flight", "0 <= in_flight"),
    (PACE, "if not _FASTEST_S <= token_s <= _SLOWEST_S:", "if token_s <= 0:"),
    (PACE, "min(token_s, _OUTLIER * self._mean_s)", "token_s"),
    (PACE, "min(tokens, _MOST_TOKENS)", "tokens"),
    (PACE, "min(tokens, _MOST_TOKENS)", "1.0"),
    (PACE, "max(self._confirmed_at, now)", "now"),
    (PACE, "_KEEP * self._weight + tokens", "self._weight + tokens"),
    (PACE, "share * more_streams * more_streams)", "share * more_streams)"),
    (PACE, "(1 - share) * (self._covariance", "(self._covariance"),
    (PACE, "share * more_streams * more_s)", "more_streams * more_s)"),
    (PACE, "self._covariance + _SURE_AT * assumed_s", "self._covariance"),
    (PACE, "max(slope_s, _FLATTEST * assumed_s), assumed_s", "slope_s, assumed_s"),
    (PACE, "max(slope_s, _FLATTEST * assumed_s), assumed_s", "max(slope_s, _FLATTEST * assumed_s), 99"),
    (PACE, "if in_flight or (", "if ("),
    (PACE, "self._weight = self._mean_streams = self._mean_s", "self._mean_streams = self._mean_s"),
    # the ledger
    (LEDGER, "account.gone, account.line = False, None", "account.line = None"),
    (LEDGER, "account.gone, account.line = False, None", "account.gone = False"),
    (LEDGER, "account.line = line\n        self._picker.refresh(account)", "self._picker.refresh(account)"),
    (LEDGER, "account.line = line\n        self._picker.refresh(account)", "account.line = line"),
    (LEDGER, "account.turn = self._turns\n        self._resize", "self._resize"),
    (LEDGER, "self._resize(account, 0, account.hard_cap)", "self._stir(account)"),
    (LEDGER, "0, account.hard_cap)\n        self._drop_if_done(account)", "0, account.hard_cap)"),
    (LEDGER, "account.lent -= lease.slots", "account.lent -= 1"),
    (LEDGER, "self._picker.refresh(account)\n        self._stir(account)", "self._stir(account)"),
    (LEDGER, "self._picker.refresh(account)\n        self._stir(account)", "self._picker.refresh(account)"),
    (LEDGER, "del account.leases[lease.number]", "pass"),
    (LEDGER, "is not lease:", "is None:"),
    (LEDGER, "if ticket not in self._queue:", "if ticket is None:"),
    (LEDGER, "group.key < start[0].key", "group.key > start[0].key"),
    (LEDGER, "(start is None or group.key < start[0].key)", "start is None"),
    (LEDGER, "self._keep_for(group):\n                continue", "self._keep_for(group):\n                pass"),
    (LEDGER, "self._picker.able(line.slots) - 1", "self._picker.able(line.slots) + 1"),
    (LEDGER, "self._rebind(line)\n            self._check_kept()", "self._rebind(line)"),
    (LEDGER, "self._check_kept()\n        self._stir(account)", "self._check_kept()"),
    (LEDGER, "self._stirs += 1", "pass"),
    (LEDGER, "if account.gone and not account.lent:", "if account.gone:"),
    (LEDGER, "account.lent += lease.slots", "account.lent += 1"),
    (LEDGER, "account.turn = self._turns\n        self._picker", "self._picker"),
    (LEDGER, "and self.kept.ticket is ticket", ""),
    (LEDGER, "self._free_kept(self.kept)\n\n    def _next_start", "self.kept = None\n\n    def _next_start"),
    (LEDGER, "start[0].key < best[0].key", "start[0].key > best[0].key"),
    (LEDGER, "if line.stuck_at == self._stirs:", "if line.stuck_at >= 0:"),
    (LEDGER, "key < best[0].key):\n                best = self", "key > best[0].key):\n                best = self"),
    (LEDGER, "best = self._first_fresh(line)", "best = None"),
    (LEDGER, "heapq.heappop(line.fresh)", "line.fresh.clear()"),
    (LEDGER, "if account.room < 1]", "if account.room < 2]"),
    (LEDGER, "if account.fits(slots)]", "if account.room > slots]"),
    (LEDGER, "kept.ticket.key < ticket.key", "kept.ticket.key > ticket.key"),
    (LEDGER, "kept.account is account and kept", "kept"),
    (LEDGER, "account.fits(ticket.ask.slots) and account.url not in ticket.barred", "account.fits(ticket.ask.slots)"),
    (LEDGER, "account.fits(ticket.ask.slots) and account.url not in ticket.barred", "account.url not in ticket.barred"),
    (LEDGER, "and self._may_use(preferred, ticket)", ""),
    (LEDGER, "if kept is None or not self._may_use(kept.account, ticket):", "if kept is None or found is not None:"),
    (LEDGER, "min(found, kept.account", "max(found, kept.account"),
    (LEDGER, "self._picker.hide(account, True)", "pass"),
    (LEDGER, "self._picker.hide(kept.account, False)", "pass"),
    (LEDGER, "line.slots > 1 and self._picker.able(line.slots)", "self._picker.able(line.slots)"),
    (LEDGER, "line.slots > 1 and self._picker.able(line.slots)", "line.slots > 1"),
    (LEDGER, "min(heads, key=", "max(heads, key="),
    (LEDGER, "self._free_kept(self.kept)\n        account = next", "pass\n        account = next"),
    (LEDGER, "kept.account.reach < kept.ticket.ask.slots or", ""),
    (LEDGER, "or kept.account.url in kept.ticket.barred", ""),
    (LEDGER, "self._stir(kept.account)", "pass"),
    # the dispatcher
    (DISPATCHER, "await trio.lowlevel.cancel_shielded_checkpoint()", "await trio.lowlevel.checkpoint()"),
    (DISPATCHER, "await trio.lowlevel.cancel_shielded_checkpoint()", "pass"),
    (DISPATCHER, "await trio.lowlevel.checkpoint_if_cancelled()", "pass"),
    (DISPATCHER, "self.ledger.withdraw(ticket)\n        self.settle()", "self.settle()"),
    (DISPATCHER, "self.ledger.withdraw(ticket)\n        self.settle()", "self.ledger.withdraw(ticket)"),
    (DISPATCHER, "del self._waiters[ticket]", "pass"),
    (DISPATCHER, "del self._held[held.lease]\n        self.settle()", "del self._held[held.lease]"),
    (DISPATCHER, "del self._held[held.lease]", "pass"),
    (DISPATCHER, "self.ledger.give_back(held.lease)", "pass"),
    (DISPATCHER, "if waiter.parked is not None:", "if waiter.parked is None:"),
    (DISPATCHER, "self._dispatcher.release(self)", "pass"),
    (DISPATCHER, "with self.scope:", "if self.scope:"),
    (DISPATCHER, "if self.revoked and self.scope.cancelled_caught:", "if self.revoked:"),
    (DISPATCHER, "if self.revoked and self.scope.cancelled_caught:", "if self.scope.cancelled_caught:"),
    (DISPATCHER, "held.revoked = True", "pass"),
    (DISPATCHER, "held.scope.cancel()", "pass"),
    (DISPATCHER, "(held := self._held[lease]).revoked", "(held := self._held[lease]).scope is None"),
    (DISPATCHER, "for lease in self.ledger.leases_on(url) if not", "for lease in self._held if not"),
    (DISPATCHER, "if not self.elastic and not", "if self.elastic and not"),
    (DISPATCHER, "now - waiter.asked_at, now", "now, now"),
    (DISPATCHER, "if self.on_change is not None:\n            self.on_change()", "pass"),
    (DISPATCHER, "@trio.lowlevel.enable_ki_protection\n    def settle", "def settle"),
    (DISPATCHER, "@trio.lowlevel.enable_ki_protection\n    async def acquire", "async def acquire"),
    (DISPATCHER, "@trio.lowlevel.enable_ki_protection\n    async def lease", "async def lease"),
    (DISPATCHER, "@trio.lowlevel.enable_ki_protection\n    def using", "def using"),
    (DISPATCHER, "@trio.lowlevel.enable_ki_protection\n    def release", "def release"),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _keep_wreckage_here():
    """Let what broken runs leave behind be collected in this module, unseen, and not in somebody else's test."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    yield
    gc.collect()
    sys.unraisablehook = hook


def plant(monkeypatch, module, old, new):
    """Let the modules of slots be replaced by copies, one of them with the bug."""
    for name in MODULES:
        path = importlib.util.find_spec(name).origin
        text = Path(path).read_text(encoding="utf-8")
        if name == module:
            assert text.count(old) == 1, f"the text to change is there {text.count(old)} times"
            text = text.replace(old, new)
        copy = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, copy)
        exec(compile(text, path, "exec"), copy.__dict__)


def check_speed():
    """The tests of what is learnt of speeds, which needs nothing of the other modules."""
    for story, arguments in stories("core/test_pace.py"):
        story(**arguments)


def check_all():
    """A fast part of the tests, against whatever modules are in place."""
    ledger_class, dispatcher_class = sys.modules[LEDGER].SlotLedger, sys.modules[DISPATCHER].Dispatcher
    for seed in range(15):
        run_random_steps(ledger_class(), random.Random(seed), steps=150)
    for file in ("core/test_ledger_rules.py", "core/test_picker.py"):
        for story, arguments in stories(file):
            story(**arguments)
    for story, arguments in stories("runtime/test_dispatcher_stories.py"):
        if inspect.iscoroutinefunction(story):
            trio.run(within_a_day, story, clock=MockClock(autojump_threshold=0))
        else:
            story(**arguments)
    for story in SWEEPS:
        sweep(story, ledger_class, dispatcher_class)
    for seed in range(5):
        random_life(dispatcher_class(ledger_class()), random.Random(seed), steps=100)


async def within_a_day(story):
    with trio.fail_after(24 * 3600):  # of the virtual clock: a lost wake-up ends in an error
        await story(*[None] * len(inspect.signature(story).parameters))


def stories(file):
    """The tests in a file, each with its arguments; what a test of Trio takes is only a clock."""
    spec = importlib.util.spec_from_file_location("stories", TESTS / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, story in vars(module).items():
        if name.startswith("test_"):
            for choice in itertools.product(*[cases_of(mark) for mark in getattr(story, "pytestmark", ())]):
                yield story, {name: value for case in choice for name, value in case.items()}


def cases_of(mark):
    """The cases of one ``parametrize``, each a dictionary."""
    names, values = mark.args
    several = not isinstance(names, str)
    return [dict(zip(names, value, strict=True)) if several else {names: value} for value in values]


def test_without_a_bug_the_checks_pass(monkeypatch):
    plant(monkeypatch, None, "", "")
    check_speed()
    check_all()


@pytest.mark.parametrize(("module", "old", "new"), BUGS)
def test_a_planted_bug_is_found(monkeypatch, module, old, new):
    plant(monkeypatch, module, old, new)
    with pytest.raises(BaseException) as found:  # whatever it breaks
        check_speed() if module == PACE else check_all()
    assert not isinstance(found.value, SyntaxError | NameError), "the bug is no code"
    assert "from inside a run()" not in str(found.value), "an earlier check left its run behind"
