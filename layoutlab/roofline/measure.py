"""Measuring a device's peaks, once for each run: kernels are built here and run there."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layoutlab.baseline.tflite import versions
from layoutlab.begin import choose_device
from layoutlab.device.base import Device, Leased, TimesKernels
from layoutlab.device.kryo.peaks import stated_peaks
from layoutlab.process import run_job
from layoutlab.progress import Progress
from layoutlab.roofline.kernels import VERSION
from layoutlab.roofline.peaks import Peaks, measured_peaks
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import Spec
from layoutlab.store import Store

# The fastest repeat counts; each is longer than a clock's tick and shorter than most interruptions are apart.
_TIMING = {"repeats": 5, "min_repeat_ms": 10}
_BUILD_S = 120.0


def spec_peaks(loaded: LoadedSpec, results: Path, progress: Progress, again: bool) -> Peaks:
    """The peaks of the device that the spec runs on; with `again` measured even if they are known."""
    with Store(results / "runs" / loaded.spec.name) as store:
        choice = choose_device(loaded, store, progress)
        log = store.folder / "logs" / "peaks.log"
        progress.show("peaks")
        with choice.device.lease(log) as leased:
            return find_peaks(store, loaded.spec, choice.target, choice.device, leased, log, again)


def find_peaks(
    store: Store, spec: Spec, target: Mapping[str, Any], device: Device, leased: Leased, log: Path, again: bool = False
) -> Peaks:
    """The peaks of the leased device for the spec's target, threads and cores.

    They are measured unless the store has them already (or `again`), and kept in it as an event `peaks`. Raises
    StageError when they cannot be measured, DeviceLost when the device goes away.
    """
    if device.simulated:
        return stated_peaks(device.name)
    key = {
        "device": device.name,
        "id": leased.id,
        "target": dict(target),
        "threads": spec.threads,
        "cores": spec.measure.model_dump(mode="json")["cores"],
        "versions": {**versions(), **device.versions, "kernels": str(VERSION)},
    }
    taken = None if again else store.find("peaks", key=key)
    if taken is None:
        taken = store.append("peaks", key=key, **_measure(key, device, leased, log))
    return measured_peaks(device.name, spec.threads, taken)


def _measure(key: Mapping[str, Any], device: Device, leased: Leased, log: Path) -> dict[str, Any]:
    """The kernels with their samples in seconds, and the floats in a vector."""
    assert isinstance(leased, TimesKernels)  # as all are that measure
    with tempfile.TemporaryDirectory(prefix="layoutlab-") as folder:
        arguments = {"target": key["target"], "threads": key["threads"], "device_kind": device.kind, "folder": folder}
        built = run_job("build_kernels", arguments, log=log, timeout_s=_BUILD_S)
        kernels = built["kernels"]
        options = {**_TIMING, "cores": key["cores"], "threads": key["threads"]}
        samples_s = leased.time_kernels([(each["library"], each["arguments"]) for each in kernels], options, log)
    return {
        "vector_floats": built["vector_floats"],
        "kernels": [
            {**{name: each[name] for name in ("name", "flop", "bytes", "working_set_bytes")}, "samples_s": taken}
            for each, taken in zip(kernels, samples_s, strict=True)
        ],
    }
