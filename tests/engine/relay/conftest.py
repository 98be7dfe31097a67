"""The second interpreter, and small models compiled with it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from layoutlab.engine.relay.interpreter import CACHE, VARIABLE, ask, find_python
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


def inside_job(
    model: Path,
    folder: Path,
    *,
    target: dict[str, Any] = KRYO,
    convert_layout: str | None = None,
    decisions: Sequence[Any] | None = None,
    keep: bool = True,
    fuse: bool = True,
) -> dict[str, Any]:
    """A job of `inside.verbs` that tunes nothing."""
    return {
        "model": str(model),
        "target": target,
        "folder": str(folder),
        "convert_layout": convert_layout,
        "decisions": decisions,
        "keep": keep,
        "passes": {"disabled": [], "opt_level": None},
        "fuse": fuse,
        "options": {"tune": False, "borrowed": []},
    }


def laid_out(python: str, model: Path, folder: Path, **options: Any) -> dict[str, Any]:
    """What TVM makes of a model's layouts."""
    found: dict[str, Any] = ask(python, "lay_out", {"job": inside_job(model, folder, **options)}, folder=folder)
    return found
