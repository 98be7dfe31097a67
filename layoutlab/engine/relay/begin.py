"""What compiles those variants of a spec that our TVM does not: found, and asked what it is, before anything else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from layoutlab.engine.relay.interpreter import RelayEngine, find_python
from layoutlab.errors import DeviceError, StageError
from layoutlab.process import run_job
from layoutlab.spec.models import Spec

_START_S = 300


def relay_pythons(spec: Spec) -> dict[str, str]:
    """The interpreter of each variant that Relay compiles. Raises DeviceError when there is none."""
    engines = {variant.name: spec.engine_of(variant) for variant in spec.variants}
    return {name: find_python(engine.python) for name, engine in engines.items() if engine.kind == "relay"}


def describe_engines(spec: Spec, target: Mapping[str, Any], log: Path) -> dict[str, RelayEngine]:
    """What the TVM of each variant that Relay compiles is, by variant. Raises DeviceError where one does not start."""
    pythons = relay_pythons(spec)
    if pythons and spec.threads != 1:
        raise DeviceError(f"engine: relay runs with one thread, and the spec asks for {spec.threads}: set threads to 1")
    known: dict[str, RelayEngine] = {}
    for python in dict.fromkeys(pythons.values()):
        known[python] = _describe(python, target, log)
    return {name: known[python] for name, python in pythons.items()}


def _describe(python: str, target: Mapping[str, Any], log: Path) -> RelayEngine:
    arguments = {"python": python, "target": dict(target)}
    try:
        found = run_job("describe_relay", arguments, log=log, timeout_s=_START_S)
    except StageError as error:
        raise DeviceError(f"{python} does not start a TVM with Relay: {error}") from error
    return TypeAdapter(RelayEngine).validate_python(found)
