"""The clock that a test server goes by."""

from __future__ import annotations

from tidewire.clock import AdjustableClock, SystemClock

HOUR_MS = 3_600_000


def test_clock_advanced_is_ahead_of_the_machine_until_reset() -> None:
    clock, machine = AdjustableClock(), SystemClock()
    clock.advance(3600)
    before_ms = machine.now_ms()
    assert clock.now_ms() >= before_ms + HOUR_MS
    clock.reset()
    assert clock.now_ms() < machine.now_ms() + HOUR_MS / 2


def test_frozen_clock_moves_only_when_advanced_and_resumes_from_there() -> None:
    clock = AdjustableClock()
    clock.freeze(1_900_000_000_000)
    assert clock.now_ms() == clock.now_ms() == 1_900_000_000_000
    clock.advance(1.5)
    assert clock.now_ms() == 1_900_000_001_500
    clock.unfreeze()
    assert 1_900_000_001_500 <= clock.now_ms() < 1_900_000_001_500 + HOUR_MS


def test_monotonic_time_is_the_machines_while_the_wall_clock_is_moved() -> None:
    clock = AdjustableClock()
    before_s = SystemClock().monotonic_s()
    clock.advance(86_400)
    clock.freeze()
    assert before_s <= clock.monotonic_s() <= SystemClock().monotonic_s()
