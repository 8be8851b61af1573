"""A witness that takes no work, and an endpoint whose silences come thick and fast."""

from __future__ import annotations

from random import Random

from scavenge.core.health import EndpointHealth
from scavenge.core.health_settings import HealthSettings
from scavenge.core.health_state import State
from scavenge.types import Healthy, Lost, LostCause, Misrouted

SETTINGS = HealthSettings()


def misconfigured(settings: HealthSettings = SETTINGS) -> EndpointHealth:
    health = EndpointHealth.listed(settings, Random(1), 0.0)
    health.on_outcome(Misrouted("the key is refused", curable=False), 1.0)
    health.on_probe_sent()
    health.on_probe(Misrouted("the key is refused", curable=False), 1.0)
    return health


def test_one_that_only_new_settings_cure_can_be_asked_as_a_witness_and_stays_as_it_is():
    health = misconfigured()
    assert health.next_probe_at is None
    for result in (Healthy(), Lost("nothing", LostCause.SILENT), Misrouted("the key is refused", curable=False)):
        health.ask_soon(5.0)
        assert health.probe_due(5.0)
        health.on_probe_sent()
        assert not health.on_probe(result, 6.0)
        assert (health.state, health.why) == (State.MISCONFIGURED, "the key is refused")
        assert health.next_probe_at is None


def test_a_witness_whose_silence_is_undecided_is_asked_again():
    health = misconfigured()
    health.undecided(5.0)
    assert health.probe_due(7.0)


def test_without_probes_no_witness_is_asked():
    health = misconfigured(HealthSettings(probe=False))
    health.ask_soon(5.0)
    health.undecided(5.0)
    assert health.next_probe_at is None


def test_what_is_undecided_again_and_again_does_not_put_off_its_probe():
    health = EndpointHealth.listed(SETTINGS, Random(1), 0.0)
    health.on_probe(Healthy(), 0.0)
    for instant in range(1, 11):
        health.undecided(float(instant))
    assert health.probe_due(3.0)
