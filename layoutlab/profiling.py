"""`layoutlab profile`: what each function of a finished run's variants computes, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from layoutlab.compiling import file_sha256
from layoutlab.device.base import Device, Leased, TimesFunctions
from layoutlab.device.choose import choose
from layoutlab.device.kryo.peaks import stated_peaks
from layoutlab.device.rpc.device import describe_remote
from layoutlab.engine.base import Artifact, from_json
from layoutlab.errors import DeviceError, LayoutlabError, StageError, UsageError
from layoutlab.profiled import keep_function_times
from layoutlab.progress import Progress
from layoutlab.report.profile_data import Profile, measured_profile, simulated_profile
from layoutlab.roofline.measure import find_peaks
from layoutlab.roofline.peaks import Peaks
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import DeviceSpec, VariantSpec
from layoutlab.store import Store


def profile_spec(
    loaded: LoadedSpec, results: Path, progress: Progress
) -> Iterator[tuple[str, Profile | LayoutlabError]]:
    """The profile of each variant of the spec's last run, or why it has none.

    Raises UsageError when the spec has no finished run, DeviceError when this is not the device of that run.
    """
    with Store(results / "runs" / loaded.spec.name) as store:
        events = store.last_run()
        finished = next((event for event in events if event["kind"] == "finished"), None)
        if finished is None:
            raise UsageError(f"{store.folder} holds no finished run: layoutlab run {loaded.path}, then profile again")
        run = _ProfiledRun(loaded, store, events[0], finished["protocol"], progress)
        for variant in loaded.spec.variants:
            progress.show(f"{variant.name}: profile")
            try:
                yield variant.name, run.profile(variant)
            except (StageError, UsageError) as error:
                yield variant.name, error


class _ProfiledRun:
    """A finished run, and what is needed to look into its variants."""

    def __init__(
        self, loaded: LoadedSpec, store: Store, event: Mapping[str, Any], protocol: str, progress: Progress
    ) -> None:
        self._loaded, self._store, self._event, self._protocol = loaded, store, event, protocol
        self._progress = progress
        self._device = None if event["simulated"] else self._find_device()

    def _log(self, name: str) -> Path:
        return self._store.folder / "logs" / f"{name}.log"

    def _find_device(self) -> Device:
        # Where the run was, which --device may have said.
        place = DeviceSpec.model_validate(self._event["spec"]["device"])
        device = choose(
            self._loaded.spec.model_copy(update={"device": place}),
            lambda: dict(self._event["target"]),
            _no_core,
            lambda address: describe_remote(address, self._loaded.spec, self._log("device")),
        ).device
        if device.name != self._event["device"]:
            raise DeviceError(
                f"{self._store.folder} was run on {self._event['device']}, and this is {device.name}: "
                "profile it there, or run the spec here"
            )
        return device

    def profile(self, variant: VariantSpec) -> Profile:
        artifact = self._artifact(variant.name)
        if self._device is None:
            return self._simulated(variant.name, artifact)
        runner = {"kind": artifact.runner, "path": artifact.path, "threads": self._loaded.spec.threads}
        log = self._log(variant.name)
        with self._device.lease(log) as leased:
            assert isinstance(leased, TimesFunctions)  # as all are that measure
            taken = leased.time_functions(runner, self._store.folder / "inputs.npz", self._loaded.spec.measure, log)
            peaks = self._peaks(self._device, leased, log)
        keep_function_times(self._store, variant.name, artifact.sha256, taken, peaks)
        return measured_profile(variant.name, str(self._event["device"]), artifact, taken, peaks)

    def _peaks(self, device: Device, leased: Leased, log: Path) -> Peaks | None:
        """The device's peaks. A profile can do without."""
        try:
            return find_peaks(self._store, self._loaded.spec, self._event["target"], device, leased, log)
        except (StageError, DeviceError) as error:
            self._progress.say(f"no bounds, for the peaks of {device.name} cannot be measured: {error}")
            return None

    def _artifact(self, variant: str) -> Artifact:
        """What the last run measured of the variant. Raises UsageError when that is not there any more."""
        events = [event for event in self._store.last_run() if event.get("variant") == variant]
        uses = next((event for event in events if event["kind"] == "uses"), None)
        if any(event["kind"] == "failed" for event in events):
            raise UsageError(f"it failed in the last run: layoutlab report {self._loaded.path} says why")
        built = self._store.find("built", key=uses["built"], budget=uses["budget"]) if uses else None
        if built is None:
            raise UsageError(f"the last run built no {variant}: layoutlab report {self._loaded.path} says why")
        artifact = from_json(Artifact, built["artifact"])
        path = Path(artifact.path)
        if not path.is_file() or file_sha256(path) != artifact.sha256:
            raise UsageError(f"{path} is not what the last run measured: layoutlab run {self._loaded.path} again")
        if artifact.provenance is None:
            raise UsageError(
                f"{path} was built by a layoutlab that did not note what its functions compute: remove it, "
                f"and layoutlab run {self._loaded.path} again, which builds it from the same records"
            )
        return artifact

    def _simulated(self, variant: str, artifact: Artifact) -> Profile:
        counted = self._store.find("samples", protocol=self._protocol, row=variant)
        if counted is None:
            raise UsageError(f"the last run did not count {variant}: layoutlab report {self._loaded.path} says why")
        device = str(self._event["device"])
        return simulated_profile(variant, device, artifact, counted, stated_peaks(device))


def _no_core() -> Any:
    raise DeviceError("the run was no simulated one")
