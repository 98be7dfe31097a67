"""How every run begins: the device, the model, the inputs; and what all steps after it need to know."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from layoutlab.baseline.tflite import versions
from layoutlab.device.choice import Choice
from layoutlab.device.choose import choose
from layoutlab.device.kryo.provision import provision
from layoutlab.device.rpc.device import describe_remote
from layoutlab.engine.base import to_json
from layoutlab.engine.relay.begin import describe_engines
from layoutlab.engine.relay.interpreter import RelayEngine
from layoutlab.errors import DeviceError, ModelError, StageError
from layoutlab.measure.cores import choose_cores
from layoutlab.model.ask import ask_about
from layoutlab.model.file import ModelFile
from layoutlab.model.resolve import bind_model
from layoutlab.process import run_job
from layoutlab.progress import Progress
from layoutlab.records.sources import Lent, lend
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import Spec
from layoutlab.store import Store


@dataclass(frozen=True, kw_only=True)
class Run:
    """What every step of one experiment needs to know.

    `lent` are records that may be borrowed; with `fresh` none are taken over from elsewhere. `engines` has, by
    variant, what compiles those that our TVM does not.
    """

    loaded: LoadedSpec
    store: Store
    progress: Progress
    model: Path
    model_sha256: str
    choice: Choice
    allowed: tuple[str, ...]
    lent: tuple[Lent, ...] = ()
    fresh: bool = False
    engines: Mapping[str, RelayEngine] = field(default_factory=dict)

    @property
    def spec(self) -> Spec:
        """The spec."""
        return self.loaded.spec

    @property
    def inputs(self) -> Path:
        """The seeded inputs, as a file that worker processes read."""
        return self.store.folder / "inputs.npz"

    @property
    def versions(self) -> dict[str, str]:
        """Versions of everything a figure depends on."""
        return {**versions(), **self.choice.device.versions}

    @property
    def rounds(self) -> int:
        """Rounds of samples: one where figures repeat exactly."""
        return 1 if self.choice.device.simulated else self.spec.measure.rounds

    def log(self, name: str) -> Path:
        """Where a job's output goes."""
        return self.store.folder / "logs" / f"{name}.log"


def begin(
    loaded: LoadedSpec,
    model: ModelFile,
    store: Store,
    progress: Progress,
    allowed: tuple[str, ...],
    kind: Literal["run", "tune", "aa"] = "run",
    borrow: Sequence[Path] = (),
    fresh: bool = False,
    inputs: Path | None = None,
) -> Run:
    """The device and the inputs; what the run depends on is recorded, as an event of this kind.

    `inputs` is a file of input sets (`measure.inputs.save_sets`) that stand in for the seeded ones.
    """
    choice = choose_device(loaded, store, progress)
    if kind != "tune" and choice.device.kind == "host":
        # Found out now, and not when all variants are tuned.
        choose_cores(loaded.spec.measure.cores, loaded.spec.threads)
    bound = bind_model(model, loaded.spec.model.batch, store.folder)
    run = Run(
        loaded=loaded,
        store=store,
        progress=progress,
        model=bound.path,
        model_sha256=bound.sha256,
        choice=choice,
        allowed=allowed,
        lent=lend(borrow, store.folder / "borrowed"),
        fresh=fresh,
        engines=describe_engines(loaded.spec, choice.target, store.folder / "logs" / "engine.log"),
    )
    for line in dict.fromkeys(engine.line for engine in run.engines.values()):
        progress.say(f"engine: {line}")
    store.append(
        kind,
        spec=loaded.spec.model_dump(mode="json"),
        model=model.path.name,
        model_sha256=model.sha256,
        model_bytes=len(model.data),
        batch=loaded.spec.model.batch,
        target=choice.target,
        device=choice.device.name,
        device_reason=choice.reason,
        rpc=None if choice.address is None else to_json(choice.address),
        simulated=choice.device.simulated,
        rounds=run.rounds,
        threads=loaded.spec.threads,
        versions=run.versions,
        **({"engines": {name: asdict(engine) for name, engine in run.engines.items()}} if run.engines else {}),
    )
    if inputs is None:
        _write_inputs(run)
    else:
        shutil.copyfile(inputs, run.inputs)
    return run


def choose_device(loaded: LoadedSpec, store: Store, progress: Progress) -> Choice:
    """The device that the spec runs on, which is made where it is the simulated core; the reason is said.

    Raises DeviceError when it cannot be had.
    """
    choice = choose(
        loaded.spec,
        lambda: _host_target(store),
        lambda: provision(progress.say, progress.show),
        lambda address: describe_remote(address, loaded.spec, store.folder / "logs" / "device.log"),
    )
    progress.say(f"device {loaded.spec.device}: {choice.reason}")
    return choice


def _host_target(store: Store) -> dict[str, Any]:
    try:
        return dict(run_job("describe_host", {}, log=store.folder / "logs" / "host.log", timeout_s=120))
    except StageError as error:
        raise DeviceError(f"TVM does not start on this machine: {error}") from error


def _write_inputs(run: Run) -> None:
    from layoutlab.measure.inputs import make_inputs, save_sets

    description = ask_about("describe_model", run.model, run.log("model"))
    dynamic = [tensor["name"] for tensor in description["inputs"] if -1 in tensor["shape"]]
    if dynamic:
        raise ModelError(
            f"{run.model}: input {', '.join(dynamic)} has a dynamic shape, and layouts are chosen for fixed ones. "
            "Bind a dynamic batch with model.batch in the spec; convert the model anew for any other dimension"
        )
    check = run.spec.check
    try:
        sets = make_inputs(description["inputs"], run.spec.model.input_range, check.inputs, check.seed)
    except ModelError as error:
        raise ModelError(f"{run.model}: making inputs: {error}") from None
    save_sets(run.inputs, sets)
