"""From what a Relay-era TVM wrote into a folder to one library that runs without it, here or on another device.

TVM is not imported: neither this one nor that.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layoutlab.device.base import DeviceKind
from layoutlab.engine.relax.link import linker_for, zig_for
from layoutlab.errors import StageError, first_message

# What the engine finds in a variant's folder: TVM's code, its graph, and what `relay.save_param_dict` wrote.
OBJECT, GRAPH, PARAMS = "lib.o", "graph.json", "params.bin"
LIBRARY = "model.so"

_RUNTIME = Path(__file__).with_name("runtime.c")


def link_artifact(
    folder: Path, *, target: dict[str, Any], device_kind: DeviceKind, inputs: Sequence[str], tvm: str
) -> Path:
    """Link OBJECT, GRAPH and PARAMS of a folder into its LIBRARY, which is whole or absent; returns its path.

    `target` is a parsed target, `inputs` are the names of the graph's inputs in the model's order, `tvm` is what tables
    call the TVM that compiled it. The library is for `runner.RelayRunner`; that TVM can load it too. Raises StageError.
    """
    graph = json.loads((folder / GRAPH).read_text())
    _require_inputs(graph, inputs)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        work = Path(name)
        (work / "executor.json").write_text(json.dumps({"graph": graph, "inputs": list(inputs), "tvm": tvm}))
        (work / PARAMS).symlink_to((folder / PARAMS).resolve())
        runtime = compile_runtime(work, target=target, device_kind=device_kind, graph=True)
        link_objects(work / LIBRARY, [folder / OBJECT, runtime], device_kind)
        os.replace(work / LIBRARY, folder / LIBRARY)
    return folder / LIBRARY


def compile_runtime(
    folder: Path, *, target: dict[str, Any], device_kind: DeviceKind, graph: bool = False, main: str | None = None
) -> Path:
    """Compile the runtime that a library needs into `folder`, with the files of its graph there if `graph`.

    Today's TVM finds the objects' function `main` in the library, as its own `main`.
    """
    if device_kind == "host":
        compiler, environment = [_c_compiler()], {}
    else:
        compiler = [zig_for(device_kind), "cc", "-target", _zig_target(target)]
        # Its cache would be for nothing else than this.
        environment = {name: str(folder / "zig") for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    flags = ["-O2", "-fPIC", "-c", *(["-DLAYOUTLAB_GRAPH"] if graph else [])]
    flags += [f"-DLAYOUTLAB_MAIN={main}"] if main else []
    output = folder / "runtime.o"
    _run([*compiler, *flags, "-o", str(output), str(_RUNTIME)], environment, folder)
    return output


def link_objects(output: Path, objects: Sequence[Path], device_kind: DeviceKind) -> None:
    """Link objects into a shared library for a kind of device."""
    linker = linker_for(device_kind)
    names = [str(each) for each in objects]
    if linker is not None:
        linker(str(output), names)
    else:
        _run([_c_compiler(), "-shared", "-o", str(output), *names, "-lm"], {}, output.parent)


def _require_inputs(graph: dict[str, Any], inputs: Sequence[str]) -> None:
    arguments = [graph["nodes"][node]["name"] for node in graph["arg_nodes"]]
    if missing := [name for name in inputs if name not in arguments]:
        raise StageError("build", f"the graph has no input {', '.join(missing)}; it has {', '.join(arguments)}")


def _c_compiler() -> str:
    return os.environ.get("CC", "cc")


def _zig_target(target: dict[str, Any]) -> str:
    """zig's name of a triple: without the vendor in it, aarch64-unknown-linux-gnu."""
    machine, *rest = str(target.get("mtriple", "")).split("-")
    if not rest:
        raise StageError("build", "a target for another machine needs its -mtriple, e.g. aarch64-linux-gnu")
    return "-".join([machine, *rest[-2:]])


def _run(command: Sequence[str], environment: dict[str, str], folder: Path) -> None:
    """Run a compiler in the folder, which is where it looks for the files of the graph."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**os.environ, **environment})
    except FileNotFoundError:
        raise StageError("build", f"{command[0]} is not there: install a C compiler, or name one in CC") from None
    if done.returncode:
        raise StageError("build", f"{Path(command[0]).name}: {first_message(done.stderr)}")
