"""The peaks of the simulated core, which follow from its model and are stated, not measured."""

from __future__ import annotations

from layoutlab.device.kryo.constants import CLOCK_GHZ, PENALTY
from layoutlab.roofline.peaks import Peaks, Stream

VECTOR_FLOATS = 4
# LLVM's AArch64SchedKryo.td lets one `fmla v.4s` begin in a cycle, on its units X and Y together; llvm-mca prices a
# loop of independent ones so.
FMAS_PER_CYCLE = 1
# Two of its units (LSA, LSB) load or store 16 bytes each; llvm-mca prices `ldr q`, `ldp q` and `str q` so.
BYTES_PER_CYCLE = 32


def stated_peaks(device: str) -> Peaks:
    """Peaks of the simulated core: arithmetic as LLVM's model has it, and loads and stores that hit L1.

    The model has no bandwidth behind L1: a line that its prefetcher foresees costs nothing, so one stream is as fast
    through any number of bytes. Lines that are not foreseen cost PENALTY cycles each; there is no bound in that.
    """
    return Peaks(
        device=device,
        threads=1,
        vector_floats=VECTOR_FLOATS,
        gflops=2 * VECTOR_FLOATS * FMAS_PER_CYCLE * CLOCK_GHZ,
        spread=None,
        streams=(
            Stream(
                name="one stream",
                working_set_bytes=None,
                gigabytes_per_s=BYTES_PER_CYCLE * CLOCK_GHZ,
                spread=None,
            ),
        ),
        sources=(
            f"compute: LLVM's model of Kryo begins {FMAS_PER_CYCLE} multiply-add of {VECTOR_FLOATS} floats a cycle, "
            f"at {CLOCK_GHZ} GHz",
            f"memory: LLVM's model loads or stores {BYTES_PER_CYCLE} bytes a cycle, and lines that the prefetcher "
            f"foresees cost nothing more; each other L1 miss costs {PENALTY:g} cycles, which no bound here has",
        ),
    )
