"""How long a cloud is left alone."""

from __future__ import annotations

import time
from random import Random

import pytest
from scavenge_gpucloud.pace import RETRY_AFTER_MAX_S, Pace, retry_after_s

NOW = 1_792_584_000.0  # Wed, 21 Oct 2026 12:00:00 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        (" 0.5 ", 0.5),
        ("0", 0.0),
        ("999999999", RETRY_AFTER_MAX_S),
        ("Wed, 21 Oct 2026 12:00:30 GMT", 30.0),
        ("Wed, 21 Oct 2026 11:00:00 GMT", 0.0),
        ("Wed, 21 Oct 2026 12:00:30 -0000", 30.0),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("1e9", None),
        ("nan", None),
        ("Wed, 99 Oct 9999999 12:00:30 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value, seconds):
    assert retry_after_s(value, NOW) == seconds


def test_a_date_without_a_zone_is_in_utc_wherever_the_run_is(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert retry_after_s("Wed, 21 Oct 2026 12:00:30 -0000", NOW) == 30.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_back_off_grows_with_jitter_up_to_its_longest():
    pace = Pace(backoff_first_s=1.0, backoff_max_s=8.0)
    for failures, longest_s in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (10_000, 8)):
        waits = [pace.backoff_s(failures, None, Random(seed)) for seed in range(50)]
        assert longest_s / 2 <= min(waits) < max(waits) <= longest_s
        assert len(set(waits)) > 40


def test_what_the_cloud_asks_for_is_never_undercut():
    waits = [Pace().backoff_s(1, 30.0, Random(seed)) for seed in range(50)]
    assert 30.0 <= min(waits) < max(waits) <= 31.0
