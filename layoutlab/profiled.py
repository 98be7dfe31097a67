"""The times of a variant's functions, as a store's events keep them: profiles are made of them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from layoutlab.device.kryo.peaks import stated_peaks
from layoutlab.engine.base import Artifact, from_json
from layoutlab.errors import StageError
from layoutlab.report.profile_data import Profile, measured_profile, simulated_profile
from layoutlab.roofline.peaks import Peaks
from layoutlab.store import Store


def keep_function_times(store: Store, variant: str, sha256: str, taken: Mapping[str, Any], peaks: Peaks | None) -> None:
    """Keep what `device.function_times` measured of the library with this sha256, and the device's peaks."""
    store.append(
        "profiled",
        variant=variant,
        artifact=sha256,
        taken=dict(taken),
        peaks=None if peaks is None else asdict(peaks),
    )


def find_profile(
    store: Store, variant: str, artifact: Artifact, run: Mapping[str, Any], protocol: str
) -> Profile | None:
    """The last profile of the variant's library in the run, which began with the event `run`.

    None where its functions were not timed, or not counted one by one, or nothing says what they compute.
    """
    device = str(run["device"])
    if artifact.provenance is None:
        return None
    try:
        if run.get("simulated"):
            counted = store.find("samples", protocol=protocol, row=variant)
            if counted is None or not counted.get("functions"):
                return None
            return simulated_profile(variant, device, artifact, counted, stated_peaks(device))
        event = store.find("profiled", variant=variant, artifact=artifact.sha256)
        if event is None:
            return None
        peaks = None if event["peaks"] is None else from_json(Peaks, event["peaks"])
        return measured_profile(variant, device, artifact, event["taken"], peaks)
    except StageError:
        return None
