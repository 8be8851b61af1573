"""Cancellation at every step of acquiring, holding and releasing."""

from __future__ import annotations

import pytest

from dispatcher_sweeps import SWEEPS, sweep
from scavenge.core import ledger
from scavenge.runtime import dispatcher


@pytest.mark.parametrize("story", SWEEPS, ids=lambda story: story.__name__)
def test_cancellation_at_any_step_gives_everything_back(story):
    assert sweep(story, ledger.SlotLedger, dispatcher.Dispatcher) > 3
