"""What is done on the device itself: run a model, time it, or count it on a simulated core.

The same functions serve this machine (through `layoutlab.jobs`) and every other device (through `layoutlab.agent`), so
all of them follow one protocol. Paths are the device's own. Only numpy, TVM's runtime and LiteRT are imported here:
a device has nothing else.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from layoutlab.device.candidate_timing import Timing, random_values, time_candidate
from layoutlab.device.runners import open_runner
from layoutlab.measure.busy import busy_reasons, cores_of_others, read_cpu_times
from layoutlab.measure.conditions import read_conditions
from layoutlab.measure.cooldown import cool_down
from layoutlab.measure.cores import choose_cores, pinned
from layoutlab.measure.disturbed import disturbances
from layoutlab.measure.inputs import load_sets, save_sets
from layoutlab.measure.timing import sample


def compute_outputs(runner: dict[str, Any], inputs: str, outputs: str) -> dict[str, Any]:
    """Run every input set of the file `inputs` and write the results to the file `outputs`."""
    opened = open_runner(runner)
    save_sets(Path(outputs), [opened.run(values) for values in load_sets(Path(inputs))])
    return {"runtime": opened.runtime}


def take_samples(
    runner: dict[str, Any],
    inputs: str,
    repeats: int,
    min_repeat_ms: float,
    warmup_ms: float,
    cores: str | Sequence[int] = "big",
    cooldown_ms: float = 0,
    cooldown_until_c: float | None = None,
    cooldown_limit_s: float = 300,
) -> dict[str, Any]:
    """Time the first input set: `repeats` samples in ms, and the machine's state before and after them.

    `cores` is as for `measure.cores.choose_cores`, and in the answer the cores it meant here (None: not pinned); the
    device cools down as `measure.cooldown` says before its state is read. `others_cores` is how many cores other
    processes used meanwhile (None: not readable); `disturbed` has reasons in plain words.
    """
    pinned_to = choose_cores(cores, runner["threads"])
    # Before TVM or LiteRT start threads, which then stay on these cores.
    with pinned(pinned_to):
        opened = open_runner(runner)
        opened.set_inputs(load_sets(Path(inputs))[0])
        cooled = cool_down(cooldown_ms, cooldown_until_c, cooldown_limit_s)
        before = read_conditions(cores=pinned_to)
        idle = read_cpu_times()
        samples_ms = sample(opened.invoke, repeats=repeats, min_repeat_ms=min_repeat_ms, warmup_ms=warmup_ms)
        done = read_cpu_times()
        after = read_conditions(cores=pinned_to)
    return {
        "samples_ms": samples_ms,
        "conditions": [before, after],
        "cores": None if pinned_to is None else list(pinned_to),
        "cooldown": cooled,
        "others_cores": cores_of_others(idle, done),
        "disturbed": [
            *disturbances(before, after, pinned_to, runner["threads"]),
            *busy_reasons(idle, done, runner["threads"]),
        ],
        "runtime": opened.runtime,
    }


def count_inference(runner: dict[str, Any], inputs: str, marks: str) -> dict[str, Any]:
    """Count one inference of the first input set, after one that warms the caches; for the simulated core.

    `marks` is the library with the marks around a counted region. The counts lie in a file of the core's folder that
    is named after `pid`; `loaded` has the (start, end, path) of each mapped library.
    """
    opened = open_runner(runner)
    opened.set_inputs(load_sets(Path(inputs))[0])
    count = _counter(marks)
    count(opened.invoke, cold=True)
    pid = count(opened.invoke, cold=False)
    return {"pid": pid, "loaded": _loaded_libraries(), "runtime": opened.runtime}


def count_candidate(library: str, arguments: Sequence[tuple[str, Sequence[int]]], marks: str) -> dict[str, Any]:
    """Count one call of `main` in a candidate's library with cold caches; for the simulated core.

    `arguments` are (dtype, shape) of each tensor. Cold is what a call within a network mostly meets: its weights were
    last read one inference ago.
    """
    import tvm

    function = tvm.runtime.load_module(library)["main"]
    tensors = [tvm.runtime.tensor(random_values(dtype, tuple(shape))) for dtype, shape in arguments]
    return {"pid": _counter(marks)(lambda: function(*tensors), cold=True)}


def measure_candidate(
    library: str,
    arguments: Sequence[tuple[str, Sequence[int]]],
    repeats: int,
    min_repeat_ms: int,
    cold_cache: bool,
    cores: str | Sequence[int] = "big",
    threads: int = 1,
) -> float:
    """Median seconds of one call of `main` in a candidate's library; see `candidate_timing.Timing`.

    `arguments` are (dtype, shape) of each tensor. `cores` is as for `measure.cores.choose_cores`, `threads` the size of
    TVM's thread pool. For a process that has not used TVM yet: both hold from the start.
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    timing = Timing(repeats=repeats, min_repeat_ms=min_repeat_ms, cold_cache=cold_cache)
    with pinned(choose_cores(cores, threads)):
        return time_candidate(library, arguments, timing)


def _counter(marks: str) -> Callable[..., int]:
    """A function that counts one call of a callable without arguments, and returns this process' number."""
    library = ctypes.PyDLL(marks)
    library.layoutlab_counted.restype = ctypes.py_object
    library.layoutlab_counted.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_long]
    call = ctypes.cast(ctypes.pythonapi.PyObject_CallNoArgs, ctypes.c_void_p)

    def count(function: Callable[[], Any], *, cold: bool) -> int:
        library.layoutlab_counted(call, function, int(cold))
        library.layoutlab_write_counts()
        return os.getpid()

    return count


def _loaded_libraries() -> list[tuple[int, int, str]]:
    """(start, end, path) of the executable mappings of this process."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and "x" in fields[1]:
            start, end = (int(value, 16) for value in fields[0].split("-"))
            found.append((start, end, fields[5]))
    return found
