"""The second interpreter, and small models compiled with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from layoutlab.engine.base import CompileJob, EngineOptions, HookOptions, TuningOptions
from layoutlab.engine.relay.interpreter import CACHE, VARIABLE, find_python
from layoutlab.engine.relay.provision import find_base, is_whole, provide
from layoutlab.errors import DeviceError

KRYO = {"kind": "llvm", "device": "arm_cpu", "mtriple": "aarch64-linux-gnu", "mcpu": "kryo", "mattr": ["+neon"]}


@pytest.fixture(scope="session")
def relay_python() -> str:
    """A Python with a Relay-era TVM: the user's own, that of `make relay`, or one made once in layoutlab's cache."""
    if os.environ.get(VARIABLE):
        return find_python()
    try:
        return find_python()
    except DeviceError:
        pass
    cached = CACHE.expanduser()
    if not is_whole(cached) and find_base() is None:
        pytest.skip(
            "no Relay-era TVM: neither LAYOUTLAB_RELAY_PYTHON, nor .relay, nor a Python 3.10 or 3.8 to make one"
        )
    try:
        return str(provide(cached, print))
    except DeviceError as error:
        pytest.skip(f"no Relay-era TVM: {error}")


def relay_job(
    python: str,
    model: Path,
    folder: Path,
    *,
    convert_layout: str | None = None,
    hook: HookOptions | None = None,
    tune: bool = False,
    target: dict[str, Any] = KRYO,
    fuse: bool = True,
) -> CompileJob:
    """A variant of a model, not tuned unless asked for."""
    tuning = TuningOptions(
        trials=8, search="evolutionary", cost_model="xgb", pack_weights=True, batch=4, population=8, seed=1
    )
    return CompileJob(
        model_path=str(model),
        target=target,
        folder=str(folder),
        convert_layout=convert_layout,
        hook=hook,
        tune=tune,
        tuning=tuning,
        fuse=fuse,
        engine=EngineOptions(kind="relay", python=python),
    )


def quiet(event: str, **fields: Any) -> None:
    """For what reports events that nobody wants."""
