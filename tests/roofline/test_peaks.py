"""Bounds from given peaks, the forms of peaks, and those stated for the simulated core."""

from __future__ import annotations

import json

import pytest

from layoutlab.device.kryo.peaks import stated_peaks
from layoutlab.report.peaks import peaks_json, peaks_text
from layoutlab.roofline.peaks import Bound, Peaks, Stream, measured_peaks


def kernel(name: str, working_set_bytes: int, work: dict, *samples_s: float) -> dict:
    return {"name": name, "working_set_bytes": working_set_bytes, "flop": 0, "bytes": 0, **work, "samples_s": samples_s}


TAKEN = {
    "vector_floats": 8,
    "kernels": [
        kernel("fma", 0, {"flop": 10**8}, 1.05e-3, 1.1e-3),
        kernel("read", 1 << 14, {"bytes": 10**8}, 1e-3, 1e-3),
        kernel("triad", 1 << 14, {"bytes": 10**8}, 2e-3),
        kernel("read", 1 << 20, {"bytes": 10**8}, 5e-3),
        kernel("triad", 1 << 20, {"bytes": 10**8}, 4e-3, 6e-3),
        kernel("fma", 0, {"flop": 10**8}, 1e-3, 1.01e-3),
        kernel("read", 1 << 24, {"bytes": 10**8}, 1e-2),
    ],
}
PEAKS = measured_peaks("a CPU", 2, TAKEN)

TEXT = """\
a CPU, 2 threads, float32, 8 in a vector: measured, the fastest of several repeats

kernel           working set           peak    spread
-------------  -------------  -------------  --------
multiply-adds      registers  100.0 GFLOP/s       10%
read                  16 KiB     100.0 GB/s        0%
triad                 16 KiB      50.0 GB/s        0%
read                   1 MiB      20.0 GB/s        0%
triad                  1 MiB      25.0 GB/s       50%
read                  16 MiB      10.0 GB/s        0%
"""


def test_the_text():
    assert peaks_text(PEAKS) == TEXT


def test_json_has_everything():
    data = json.loads(peaks_json(PEAKS))
    assert (data["measured"], data["gflops"], data["threads"], data["sources"]) == (True, 100.0, 2, [])
    assert data["streams"][3] == {
        "name": "triad",
        "working_set_bytes": 1 << 20,
        "gigabytes_per_s": 25.0,
        "spread": pytest.approx(0.5),
    }


def test_a_busy_machine_is_noted():
    kernels = [kernel("fma", 0, {"flop": 1}, 1e-3, 2e-3), *TAKEN["kernels"][1:]]
    assert peaks_text(measured_peaks("a CPU", 2, {**TAKEN, "kernels": kernels})).endswith(
        "\n\nBUSY: something else ran on the device while its peaks were measured, so they may be higher: measure them "
        "again when it is quiet (layoutlab peaks SPEC --again)\n"
    )


@pytest.mark.parametrize(
    ("working_set_bytes", "gigabytes_per_s"),
    [(0, 100), (1 << 14, 100), ((1 << 14) + 1, 25), (1 << 20, 25), ((1 << 20) + 1, 10), (1 << 30, 10)],
)
def test_the_bandwidth_is_that_of_the_cache_that_holds_the_bytes(working_set_bytes, gigabytes_per_s):
    assert PEAKS.gigabytes_per_s(working_set_bytes) == pytest.approx(gigabytes_per_s)


def test_a_nearer_cache_is_never_taken_for_slower():
    """On a busy machine a small stream may come out slower than a large one, which a small one can be as fast as."""
    slow = Stream(name="read", working_set_bytes=1 << 12, gigabytes_per_s=1.0, spread=0.0)
    peaks = Peaks(
        device="", threads=1, vector_floats=4, gflops=1.0, spread=0.0, streams=(slow, *PEAKS.streams), sources=()
    )
    assert peaks.gigabytes_per_s(1) == pytest.approx(100)


@pytest.mark.parametrize(
    ("what", "flop", "moved_bytes", "bound", "binds"),
    [
        ("a convolution", 20_000_000, 1_000_000, (200.0, 40.0), "compute"),
        ("a dense layer: two operations for each weight of four bytes", 2_500_000, 5_000_000, (25.0, 500.0), "memory"),
        ("a layout transform", 0, 10_000, (0.0, 0.1), "memory"),
        ("a depthwise convolution within the first cache", 90_000, 16_000, (0.9, 0.16), "compute"),
        ("the same bytes and operations on the ridge", 4_000_000, 1_000_000, (40.0, 40.0), "memory"),
    ],
)
def test_what_binds_a_function(what, flop, moved_bytes, bound, binds):
    found = PEAKS.bound(flop, moved_bytes)
    assert (found.compute_us, found.memory_us) == pytest.approx(bound), what
    assert found.us == pytest.approx(max(bound)), what
    assert found.binds == binds, what


def test_a_bound_is_the_longer_of_both():
    assert Bound(compute_us=1.0, memory_us=2.0).us == 2.0


STATED = """\
simulated core, 1 thread, float32, 4 in a vector: stated, not measured

kernel           working set          peak    spread
-------------  -------------  ------------  --------
multiply-adds      registers  19.6 GFLOP/s         -
one stream               any     78.4 GB/s         -

compute: LLVM's model of Kryo begins 1 multiply-add of 4 floats a cycle, at 2.45 GHz
memory: LLVM's model loads or stores 32 bytes a cycle, and lines that the prefetcher foresees cost nothing more; each \
other L1 miss costs 35 cycles, which no bound here has
"""


def test_the_simulated_core_states_its_peaks_with_their_sources():
    peaks = stated_peaks("simulated core")
    assert not peaks.measured
    assert peaks_text(peaks) == STATED
    # As many bytes as you like.
    assert peaks.bound(0, 10**9).us == pytest.approx(10**9 / 78.4e3)
