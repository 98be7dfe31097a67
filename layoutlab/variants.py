"""From a spec's variant to the job an engine gets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layoutlab.device.base import DeviceKind
from layoutlab.device.rpc.address import RpcAddress
from layoutlab.engine.base import BorrowedRecords, CompileJob, EngineOptions, HookOptions, PassOptions, TuningOptions
from layoutlab.engine.relay.interpreter import find_python
from layoutlab.errors import UsageError
from layoutlab.hooks import is_allowed, not_allowed
from layoutlab.spec.load import LoadedSpec
from layoutlab.spec.models import Spec, VariantSpec


def compile_job(
    loaded: LoadedSpec,
    variant: VariantSpec,
    model: Path,
    target: dict[str, Any],
    folder: Path,
    allowed: Sequence[str],
    device_kind: DeviceKind = "host",
    borrowed: Sequence[BorrowedRecords] = (),
    rpc: RpcAddress | None = None,
) -> CompileJob:
    """The job that compiles `variant` of the model for `target` (TVM's dict form), keeping its files in `folder`."""
    return CompileJob(
        model_path=str(model),
        target=target,
        folder=str(folder.resolve()),
        convert_layout=variant.convert_layout,
        hook=hook_options(variant, allowed, loaded.conv_numbers),
        tune=variant.tune,
        tuning=TuningOptions(
            **loaded.spec.tuning.model_dump(exclude={"logs"}),
            cores=loaded.spec.measure.cores,
            passes=PassOptions(disabled=variant.passes.disabled, opt_level=variant.passes.opt_level),
            logs=tuple(str(path) for path in autotvm_logs(loaded)),
        ),
        device_kind=device_kind,
        rpc=rpc,
        borrowed=tuple(borrowed),
        fuse=variant.fuse,
        engine=engine_options(loaded.spec, variant),
    )


def engine_options(spec: Spec, variant: VariantSpec) -> EngineOptions:
    """What compiles the variant; for Relay with its interpreter. Raises DeviceError when there is none."""
    engine = spec.engine_of(variant)
    if engine.kind == "relax":
        return EngineOptions()
    return EngineOptions(kind="relay", python=find_python(engine.python), tophub=engine.tophub)


def autotvm_logs(loaded: LoadedSpec) -> list[Path]:
    """The absolute paths of the AutoTVM logs that the spec names."""
    return [Path(os.path.realpath(loaded.path.parent / log)) for log in loaded.spec.tuning.logs]


def hook_options(
    variant: VariantSpec, allowed: Sequence[str], numbers: tuple[int, ...] | None = None
) -> HookOptions | None:
    """The variant's hook with its options; None without one. `numbers`: see `LoadedSpec.conv_numbers`."""
    hook = variant.alter_op_layout
    if hook is None:
        return None
    return HookOptions(
        label=hook.label(),
        name=hook.hook,
        block=hook.block,
        pad=hook.channels == "pad",
        rules=None if hook.rules is None else tuple(rule.to_rule() for rule in hook.rules),
        allowed=tuple(allowed),
        numbers=numbers,
    )


def compiled_otherwise(variant: VariantSpec) -> list[str]:
    """How a variant departs from TVM's usual way of compiling, as tables flag it."""
    flags = [] if variant.fuse else ["fusion off"]
    if variant.passes.disabled:
        flags.append(f"without {', '.join(variant.passes.disabled)}")
    if variant.passes.opt_level is not None:
        flags.append(f"opt level {variant.passes.opt_level}")
    return flags


def relay_flags(variant: VariantSpec) -> list[str]:
    """What tables flag of a variant that Relay compiles, where TVM's own hook decides unless the spec names one."""
    return ["Relay"] if variant.alter_op_layout else ["Relay", "TVM's own hook"]


def users_hook(variant: VariantSpec) -> str | None:
    """`package.module:function` when the variant's hook is the user's own code."""
    hook = variant.alter_op_layout
    return hook.hook if hook is not None and hook.hook is not None and ":" in hook.hook else None


def require_allowed(loaded: LoadedSpec, allowed: Sequence[str]) -> None:
    """Raise UsageError, naming each, when the spec has hooks that nobody allowed to run."""
    refused = [
        name for variant in loaded.spec.variants if (name := users_hook(variant)) and not is_allowed(name, allowed)
    ]
    if refused:
        raise UsageError("\n".join(not_allowed(name) for name in dict.fromkeys(refused)))


def worker_environment(loaded: LoadedSpec) -> dict[str, str]:
    """What workers see: the number of threads, and the spec's folder where a hook of the user's may live in it.

    Python runs what it finds there under the right name, so nobody else's workers see that folder.
    """
    threads = {"TVM_NUM_THREADS": str(loaded.spec.threads)}
    if not any(users_hook(variant) for variant in loaded.spec.variants):
        return threads
    paths = [str(loaded.path.parent.resolve()), os.environ.get("PYTHONPATH", "")]
    return {**threads, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
