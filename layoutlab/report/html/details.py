"""What report.html shows besides the comparison, from a store's events: profiles, how tuning went, transforms."""

from __future__ import annotations

from dataclasses import dataclass, field

import yaml

from layoutlab.engine.base import LayoutTransform
from layoutlab.profiled import find_profile
from layoutlab.report.comparison import built_artifacts
from layoutlab.report.profile_data import Profile
from layoutlab.spec.models import Spec
from layoutlab.store import Store
from layoutlab.tuning_progress import Progress, find_progress


@dataclass(frozen=True, kw_only=True)
class Details:
    """By variant, as far as there is any: the profile, how tuning went, and the transforms left in the graph.

    `spec` is the run's spec as YAML.
    """

    spec: str
    profiles: dict[str, Profile] = field(default_factory=dict)
    progress: dict[str, tuple[Progress, ...]] = field(default_factory=dict)
    transforms: dict[str, tuple[LayoutTransform, ...]] = field(default_factory=dict)


def find_details(store: Store) -> Details:
    """The details of the store's last run, which must have finished."""
    events = store.last_run()
    run, spec = events[0], Spec.model_validate(events[0]["spec"])
    protocol = next(event["protocol"] for event in events[::-1] if event["kind"] == "finished")
    artifacts = built_artifacts(spec, store, events)
    profiles = {
        name: profile
        for name, artifact in artifacts.items()
        if (profile := find_profile(store, name, artifact, run, protocol))
    }
    folders = {event["variant"]: event["folder"] for event in events if event["kind"] == "uses" and event.get("folder")}
    return Details(
        spec=spec_yaml(spec),
        profiles=profiles,
        progress={name: found for name in artifacts if (found := find_progress(store, folders.get(name, "")))},
        transforms={name: artifact.census_after.transforms for name, artifact in artifacts.items()},
    )


def spec_yaml(spec: Spec) -> str:
    """A spec as the file that gives it; what has its default value is left out."""
    data = spec.model_dump(mode="json", exclude_defaults=True)
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100))
