"""`Pulse`: how silence is noticed, on a virtual clock."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from scavenge.edge.http.exchange import SLACK, Pulse


async def silence_after(gaps_s: list[float], idle_s: float) -> float | None:
    """The seconds from the last byte until silence was noticed, when bytes move after each gap; ``None``: before."""
    last_at = trio.current_time()
    with trio.CancelScope() as scope:
        pulse = Pulse(scope, idle_s)
        pulse.sending()
        for gap_s in gaps_s:
            await trio.sleep(gap_s)
            pulse.received(b"x", trio.current_time())
            last_at = trio.current_time()
        gaps_s.clear()
        await trio.sleep_forever()
    return None if gaps_s else trio.current_time() - last_at


@pytest.mark.parametrize("gap_s", [0.001, 0.5, 1.0, 7.0, 63.0])
async def test_silence_is_noticed_never_early_and_at_most_a_little_late(
    autojump_clock: trio.testing.MockClock, gap_s: float
) -> None:
    noticed_s = await silence_after([gap_s] * 40, 64.0)
    assert noticed_s is not None
    assert noticed_s + 1e-6 >= 64.0
    assert noticed_s <= 64.0 * (1 + SLACK) + 1e-6


async def test_a_gap_that_is_too_long_is_silence(autojump_clock: trio.testing.MockClock) -> None:
    assert await silence_after([1.0, 66.0, 1.0], 64.0) is None


async def test_connecting_and_what_follows_the_end_do_not_count(autojump_clock: trio.testing.MockClock) -> None:
    with trio.CancelScope() as scope:
        pulse = Pulse(scope, 1.0)
        pulse.sending()
        pulse.pause()
        pulse.sending()
        assert scope.deadline < 1.1
        pulse.pause()
        await trio.sleep(60)
        pulse.sending()
        pulse.received(b"x", trio.current_time())
        pulse.stop()
        await trio.sleep(60)
        pulse.received(b"x", trio.current_time())
        await trio.sleep(60)
    assert not scope.cancelled_caught
    assert pulse.first_byte_s == 0.0


async def test_after_a_pause_silence_counts_from_its_end(autojump_clock: trio.testing.MockClock) -> None:
    with trio.CancelScope() as scope:
        pulse = Pulse(scope, 64.0)
        pulse.sending()
        pulse.received(b"x", trio.current_time())
        pulse.pause()
        await trio.sleep(1000)
        pulse.go_on(trio.current_time())
        await trio.sleep_forever()
    assert trio.current_time() == pytest.approx(1064.0, abs=64 * SLACK + 1e-6)


async def test_without_a_limit_silence_is_never_noticed(autojump_clock: trio.testing.MockClock) -> None:
    with trio.CancelScope() as scope:
        pulse = Pulse(scope)
        pulse.sending()
        pulse.received(b"", trio.current_time())
        await trio.sleep(3600)
    assert not scope.cancelled_caught
    assert pulse.first_byte_s is None
