"""The forms of a device's peaks: text and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from tabulate import tabulate

from layoutlab.roofline.peaks import Peaks

BUSY = (
    "BUSY: something else ran on the device while its peaks were measured, so they may be higher: measure them again "
    "when it is quiet (layoutlab peaks SPEC --again)"
)


def peaks_text(peaks: Peaks) -> str:
    """A table, with the sources of stated peaks below it."""
    how = "measured, the fastest of several repeats" if peaks.measured else "stated, not measured"
    threads = f"{peaks.threads} thread{'s' if peaks.threads > 1 else ''}"
    rows = [("multiply-adds", "registers", f"{peaks.gflops:.1f} GFLOP/s", _share(peaks.spread))]
    rows += [
        (stream.name, size_text(stream.working_set_bytes), f"{stream.gigabytes_per_s:.1f} GB/s", _share(stream.spread))
        for stream in peaks.streams
    ]
    table = tabulate(
        rows,
        headers=("kernel", "working set", "peak", "spread"),
        tablefmt="simple",
        disable_numparse=True,
        colalign=("left", "right", "right", "right"),
    )
    lines = [f"{peaks.device}, {threads}, float32, {peaks.vector_floats} in a vector: {how}", "", table]
    if peaks.sources:
        lines += ["", *peaks.sources]
    if peaks.busy:
        lines += ["", BUSY]
    return "\n".join(lines) + "\n"


def peaks_json(peaks: Peaks) -> str:
    """The same as data."""
    return json.dumps({"format": 1, "measured": peaks.measured, **asdict(peaks)}, indent=1) + "\n"


def size_text(size: int | None) -> str:
    """A number of bytes in KiB or MiB."""
    if size is None:
        return "any"
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def _share(spread: float | None) -> str:
    return "-" if spread is None else f"{spread:.0%}"
