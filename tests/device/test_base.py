"""What a spec's measure means for every device alike."""

from __future__ import annotations

import inspect

from layoutlab.device.base import expected_s, longest_s, sample_arguments
from layoutlab.device.on_device import take_samples
from layoutlab.spec.models import MeasureSpec

COOLED = MeasureSpec(
    repeats=10,
    min_repeat_ms=100,
    warmup_ms=500,
    cores=(4, 5),
    cooldown_ms=2000,
    cooldown_until_c=40,
    cooldown_limit_s=60,
)


def test_take_samples_takes_all_that_the_spec_says_of_it():
    arguments = sample_arguments(COOLED)
    assert {"runner", "inputs", *arguments} == set(inspect.signature(take_samples).parameters)
    assert (arguments["cores"], sample_arguments(MeasureSpec())["cores"]) == ([4, 5], "big")


def test_the_time_limit_of_samples_includes_the_cool_down():
    assert expected_s(COOLED) == 1.5
    assert longest_s(COOLED) == 10 * 1.5 + 2 + 60
    assert longest_s(COOLED.model_copy(update={"cooldown_until_c": None})) == 10 * 1.5 + 2
