"""The timing loop, driven by a clock of the test's own."""

from __future__ import annotations

import pytest

from layoutlab.measure import timing


class Clock:
    """A call takes `cost_s`; time passes in no other way."""

    def __init__(self, cost_s: float, first_s: float | None = None) -> None:
        self.now, self.cost_s, self.first_s, self.calls = 0.0, cost_s, first_s, 0

    def invoke(self) -> None:
        self.now += self.first_s if self.calls == 0 and self.first_s else self.cost_s
        self.calls += 1

    def perf_counter(self) -> float:
        return self.now


def take(clock, monkeypatch, **options):
    monkeypatch.setattr(timing.time, "perf_counter", clock.perf_counter)
    return timing.sample(clock.invoke, **options)


def test_samples_are_milliseconds_of_one_call(monkeypatch):
    clock = Clock(cost_s=0.004)
    samples = take(clock, monkeypatch, repeats=5, min_repeat_ms=100, warmup_ms=500)
    assert samples == pytest.approx([4.0] * 5)
    assert clock.calls == 125 + 5 * 25


def test_a_slow_first_call_does_not_shorten_the_samples(monkeypatch):
    clock = Clock(cost_s=0.001, first_s=0.3)
    samples = take(clock, monkeypatch, repeats=2, min_repeat_ms=100, warmup_ms=500)
    assert samples == pytest.approx([1.0, 1.0])
    assert clock.calls == pytest.approx(1 + 200 + 2 * 100, abs=2)


def test_a_call_longer_than_a_sample_is_one_call_a_sample(monkeypatch):
    clock = Clock(cost_s=2.0)
    assert take(clock, monkeypatch, repeats=3, min_repeat_ms=100, warmup_ms=500) == pytest.approx([2000.0] * 3)
    assert clock.calls == 4


def test_no_warm_up_still_calls_once_before_timing(monkeypatch):
    clock = Clock(cost_s=0.05)
    take(clock, monkeypatch, repeats=1, min_repeat_ms=100, warmup_ms=0)
    assert clock.calls == 1 + 2
